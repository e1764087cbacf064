"""Elasticsearch's bulk interface: what its own client and log shippers send is stored; the rest is refused by item."""

from __future__ import annotations

import json

import elasticsearch
import elasticsearch.helpers
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.server.bulk import Wrong, bulk_answer, read_actions, record_of
from aggregator.server.shipped import Place, Refusal
from esformat import InvalidEventError


def post(web, *lines, path="/_bulk", **options):
    body = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return web.post(path, content=body, headers={"content-type": "application/x-ndjson"}, **options)


def rows(web, query="SELECT FROM {}"):
    answer = web.post("/v1/query", json={"query": query})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_the_client_of_elasticsearch(web, server):
    """Elasticsearch's own Python client takes this for a server of its kind, and its bulk helper stores."""
    documents = [{"_index": "nginx", "message": f"GET /{n}", "@timestamp": 1772352000000 + n} for n in range(250)]
    with elasticsearch.Elasticsearch(server.url) as client:
        assert client.info()["tagline"] == "You Know, for Search"
        stored, errors = elasticsearch.helpers.bulk(client, documents, chunk_size=100)
        assert (stored, errors) == (250, [])
        with pytest.raises(elasticsearch.helpers.BulkIndexError) as caught:
            elasticsearch.helpers.bulk(client, [{"_op_type": "delete", "_index": "nginx", "_id": "1"}])
        assert caught.value.errors[0]["delete"]["status"] == 400
        with pytest.raises(elasticsearch.BadRequestError):
            client.bulk(operations=b"junk\n")
    found = rows(web, "SELECT FROM index = nginx")
    assert [row["data"] for row in found] == [f"GET /{n}" for n in range(250)]
    assert found[1]["timestamp"] == "2026-03-01T08:00:00.001000Z"


@pytest.mark.parametrize(("document", "record"), [
    ({"@timestamp": "2026-03-01T08:00:00.5Z", "message": "hi"}, {"ts": 1772352000_500000, "msg": "hi"}),
    ({"log": "hi", "host": {"name": "a", "ip": ["1", "2"]}}, {"msg": "hi", "host.name": "a", "host.ip": ["1", "2"]}),
    ({"message": "a", "log": {"file": {"path": "/x"}}, "n": 1.5}, {"msg": "a", "log.file.path": "/x", "n": 1.5}),
    ({"message": 5, "msg": "x", "ts": 1}, {"message": 5, "_msg": "x", "_ts": 1}),
    ({"@timestamp": 1.5}, {"ts": 1500}), ({}, {}),
    ({"@timestamp": "gestern"}, {"@timestamp": "gestern"}), ({"@timestamp": True}, {"@timestamp": True}),
    ({"@timestamp": 1e30}, {"@timestamp": 1e30}), ({"_ts": 1, "ts": 2, "__ts": 3}, {"_ts": 1, "__ts": 2, "___ts": 3}),
    ({"a.b": 1, "a": {"b": 2}, "_a.b": 3}, {"a.b": 1, "_a.b": 2, "__a.b": 3}), ({"a": {}}, {"a": {}}),
    ([1], None), (5, None),
])  # fmt: skip
def test_documents(document, record):
    """A document becomes a record; what cannot is refused for itself."""
    (action,) = read_actions(b'{"index": {"_index": "a"}}\n' + json.dumps(document).encode(), None)
    found = record_of(action)
    assert isinstance(found, Wrong) if record is None else found == ({"index": "a"}, record)


def test_items_stand_for_themselves(web):
    """Some items are stored, some are not; the answer has one for each, in their order."""
    answer = post(
        web, {"index": {}}, {"message": "one"}, {"update": {"_id": "1"}}, {"doc": {}}, {"delete": {"_id": "1"}},
        {"create": {"_index": "other", "_id": 7}}, {"message": "two"}, {"index": {}}, "no json", {"index": {}},
        {"message": "x", "@timestamp": "gestern"}, {"index": {"_index": "x" * 5000}}, {"message": "long"}, "",
        path="/shop/_bulk",
    )  # fmt: skip
    told = answer.json()
    assert (answer.status_code, told["errors"]) == (200, True)
    assert answer.headers["x-elastic-product"] == "Elasticsearch"
    items = [(verb, item["status"], item["_index"][:5]) for each in told["items"] for verb, item in each.items()]
    assert items == [
        ("index", 201, "shop"), ("update", 400, "shop"), ("delete", 400, "shop"), ("create", 201, "other"),
        ("index", 400, "shop"), ("index", 201, "shop"), ("index", 201, "xxxxx"),
    ]  # fmt: skip
    assert told["items"][3]["create"]["_id"] == "7"
    found = {row["data"]: row["fields"] for row in rows(web)}
    assert sorted(found) == ["long", "one", "two", "x"]
    assert found["x"] == {"@timestamp": "gestern"}
    assert found["long"] == {"index": "x" * 5000}
    told = web.get("/metrics").text
    for name, count in {
        'changed_records_total{reason="time_replaced"': 1, 'changed_records_total{reason="tags_cut"': 1,
        'refused_records_total{reason="invalid"': 1, 'refused_records_total{reason="unsupported"': 2,
    }.items():  # fmt: skip
        assert f'aggregator_{name},source="bulk"}} {count}.0' in told


@pytest.mark.parametrize("lines", [
    ["junk", {"message": "x"}], [{"index": {}}, {"message": "x"}], [{"index": {"_index": "a"}}], [""], [],
    [{"index": {"_index": 5}}, {}], [{"index": 5}, {}], [{"stir": {"_index": "a"}}, {}], ["[1]", {}],
    [{"index": {"_index": "a"}, "b": {}}, {}],
])  # fmt: skip
def test_bodies_that_make_no_sense(shared_web, lines):
    """Nothing is stored, and the error is one of Elasticsearch's."""
    answer = post(shared_web, *lines)
    assert (answer.status_code, answer.json()["status"]) == (400, 400)
    assert answer.json()["error"]["reason"]
    assert shared_web.get("/v1/topics").json() == {"topics": []}


def test_what_shippers_look_at(shared_web):
    """Health, licence and version, each with the header that clients insist on."""
    for path in ("/", "/_cluster/health", "/_license"):
        answer = shared_web.get(path)
        assert (answer.status_code, answer.headers["x-elastic-product"]) == (200, "Elasticsearch")
    assert shared_web.head("/").status_code == 200


def test_keys(web):
    """With an Idempotency-Key a repeated request is stored once."""
    lines = [{"index": {"_index": "a"}}, {"message": "x", "@timestamp": 5}]
    first = post(web, *lines, path="/_bulk").json()["items"][0]["index"]["_seq_no"]
    assert first == 0
    headers = {"content-type": "application/x-ndjson", "idempotency-key": "beat:1"}
    body = "".join(json.dumps(line) + "\n" for line in lines)
    places = [
        web.post("/_bulk", content=body, headers=headers).json()["items"][0]["index"]["_seq_no"] for _ in range(3)
    ]
    assert places == [1, 1, 1]
    assert web.post("/_bulk", content=body.replace("5", "6"), headers=headers).status_code == 409
    late = body.replace('"@timestamp": 5', '"n": 5')
    assert web.post("/_bulk", content=late, headers=headers | {"idempotency-key": "beat:2"}).status_code == 400


def test_records_that_do_not_fit_a_column(web, server):
    """Values that the topic's column does not hold are kept as text, beside those that it does, in one append."""
    server.catalog.create_topic("typed", pa.schema([("data", pa.binary()), ("status", pa.int64())]))
    lines = []
    for number in range(500):
        lines += [{"index": {"_index": "a"}}, {"message": "x", "status": "odd" if number % 2 else number}]
    items = post(web, *lines, path="/_bulk?topic=typed").json()["items"]
    assert [item["index"]["status"] for item in items] == [201] * 500
    found = [(e.columns["status"], e.columns["fields"]) for e in server.catalog.topic("typed").read("0", 0)]
    assert found == [(None, [("status", "odd")]) if number % 2 else (number, None) for number in range(500)]


def test_deep_documents():
    """Objects nest within reason; deep ones are one field."""
    for depth, good in ((15, True), (25, True), (5_000, False)):
        document = b'{"a":' * depth + b"1" + b"}" * depth
        (action,) = read_actions(b'{"index":{"_index":"a"}}\n' + document + b"\n", None)
        assert isinstance(record_of(action), Wrong) is not good


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(
    st.sampled_from([b'{"index":{"_index":"a"}}', b'{"create":{}}', b'{"delete":{"_id":1}}', b'{"message":"x"}']),
    st.binary(max_size=20), st.text(max_size=10).map(lambda text: json.dumps({text: text}).encode()),
), max_size=8))  # fmt: skip
def test_hostile_bodies(lines):
    """Any lines are actions with an answer for each, or refused."""
    try:
        actions = list(read_actions(b"\n".join(lines), "index"))
    except InvalidEventError:
        return
    outcomes = [made if isinstance(made := record_of(action), Wrong) else Place("0", 5) for action in actions]
    assert len(json.loads(bulk_answer(actions, outcomes, 1))["items"]) == len(actions)
    assert json.loads(bulk_answer(actions, [Refusal("no")] * len(actions), 1))["errors"] is bool(actions)
