"""Elasticsearch's bulk interface stores what its client and log shippers send, and refuses errors per item."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from served import served

from aggregator.server import Settings
from aggregator.server.bodies.bulk import Wrong, bulk_answer, read_actions, record_of
from aggregator.server.bodies.document_ids import DocumentIds, key_of
from aggregator.server.bodies.shared.records import Place, Refusal
from aggregator.server.config.settings import Http
from aggregator.server.control.tokens import create
from esformat import InvalidEventError


def post(web, *lines, path="/_bulk", **options):
    body = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return web.post(path, content=body, headers={"content-type": "application/x-ndjson"}, **options)


def rows(web, query="SELECT FROM {}"):
    answer = web.post("/v1/query", json={"query": query})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture
def elasticsearch():
    """Elasticsearch's client, whose import takes half a second: only processes that need it load it."""
    import elasticsearch.helpers

    return elasticsearch


def test_the_client_of_elasticsearch(elasticsearch, web, server):
    """Elasticsearch's Python client accepts this server as Elasticsearch, and its bulk helper stores documents."""
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
    ({"message": 5, "msg": "x", "ts": 1}, {"message": 5, "msg": "x", "_ts": 1}),
    ({"@timestamp": 1772352000000.5}, {"ts": 1772352000_000500}),
    ({"@timestamp": 1772352000}, {"ts": 1772352000_000}), ({"@timestamp": -86400000}, {"ts": -86400_000000}),
    ({"@timestamp": "2026"}, {"ts": 1767225600_000000}), ({"@timestamp": 2026}, {"ts": 1767225600_000000}),
    ({"@timestamp": "2026-03"}, {"ts": 1772323200_000000}), ({"@timestamp": "20260301"}, {"ts": 20260301_000}),
    ({"@timestamp": 1772352000_000000}, {"@timestamp": 1772352000_000000}),
    ({"@timestamp": "1772352000000"}, {"ts": 1772352000_000000}), ({}, {}),
    ({"level": 40, "time": "2026-03-01T08:00:00.500Z", "pid": 7, "hostname": "h", "msg": "hi"},  # pino-elasticsearch
     {"ts": 1772352000_500000, "msg": "hi", "level": 40, "pid": 7, "hostname": "h"}),
    ({"time": "2026-03-01T08:00:00Z", "@timestamp": 5}, {"ts": 5_000, "time": "2026-03-01T08:00:00Z"}),
    ({"time": 12, "message": "hi", "msg": "ho"}, {"time": 12, "msg": "hi", "_msg": "ho"}),
    ({"time": "12"}, {"time": "12"}), ({"time": "2026-13-01T08:00:00Z"}, {"time": "2026-13-01T08:00:00Z"}),
    ({"@timestamp": "gestern"}, {"@timestamp": "gestern"}), ({"@timestamp": True}, {"@timestamp": True}),
    ({"@timestamp": 1e30}, {"@timestamp": 1e30}), ({"_ts": 1, "ts": 2, "__ts": 3}, {"_ts": 1, "__ts": 2, "___ts": 3}),
    ({"a.b": 1, "a": {"b": 2}, "_a.b": 3}, {"a.b": 1, "_a.b": 2, "__a.b": 3}), ({"a": {}}, {"a": {}}),
    ([1], None), (5, None),
])  # fmt: skip
def test_documents(document, record):
    """A document becomes a record; one that cannot is refused alone."""
    (action,) = read_actions(b'{"index": {"_index": "a"}}\n' + json.dumps(document).encode(), None)
    found = record_of(action)
    assert isinstance(found, Wrong) if record is None else found == ({"index": "a"}, record)


@pytest.mark.parametrize(("given", "text"), [("a", "a"), (7, "7"), (1.5, "1.5"), (True, "true"), (None, None)])
def test_ids(given, text):
    """An id is text, or a value that is written as JSON writes it, as in Elasticsearch."""
    (action,) = read_actions(json.dumps({"delete": {"_index": "a", "_id": given}}).encode(), None)
    assert action.id == text


def test_items_stand_for_themselves(web):
    """Items are stored or refused one by one; the answer has one entry for each, in order."""
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
    assert next(row["fields"] for row in rows(web) if row["data"] == "two") == {"_id": "7"}
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
    [{"index": {"_index": 5}}, {}], [{"index": 5}, {}], [{"stir": {}}, {}], ["[1]", {}], ["{}", {}],
    [{"index": {"_index": "a", "_id": ["1"]}}, {}], [{"index": {"_index": "a", "_id": {}}}, {}],
    [{"attempts": 0, "index": {"_index": "a"}}, {}], [{"message": "x"}, {"message": "y"}],
])  # fmt: skip
def test_bodies_that_make_no_sense(shared_web, lines):
    """Nothing of an invalid body is stored, and the error looks like Elasticsearch's."""
    answer = post(shared_web, *lines)
    assert (answer.status_code, answer.json()["status"]) == (400, 400)
    assert answer.json()["error"]["reason"]
    assert shared_web.get("/v1/topics").json() == {"topics": []}


def test_paths_of_fluent_bit(web):
    """Fluent Bit's paths, which end in a slash when it uses a pipeline, work without a redirect."""
    for path in ("/_bulk/?pipeline=a", "/b/_bulk/"):
        told = post(web, {"create": {"_index": "a"}}, {"log": "x"}, path=path)
        assert (told.status_code, told.json()["errors"]) == (200, False)


def test_odd_actions(web):
    """An unknown action is refused alone, and winston's extra keys next to an action are ignored."""
    told = post(
        web, {"index": {"_index": "a", "_type": "_doc", "pipeline": None}, "attempts": 0}, {"message": "winston"},
        {"upsert": {"_index": "a", "_id": "5"}}, {"message": "lost"}, {"read": {"_index": "a"}},
        {"create": {"_index": "a"}}, {"message": "kept"}, {"update": {"_index": "a", "_id": "1"}}, {"doc": {}},
        {"stir": {"_index": "a"}},
    ).json()  # fmt: skip
    items = [(verb, item["status"]) for each in told["items"] for verb, item in each.items()]
    assert items == [("index", 201), ("upsert", 400), ("read", 400), ("create", 201), ("update", 400), ("stir", 400)]
    assert told["items"][1]["upsert"]["error"]["type"] == "illegal_argument_exception"
    assert sorted(row["data"] for row in rows(web)) == ["kept", "winston"]


def created(web, *ids, path="/_bulk", verb="create", **headers):
    lines = [part for n in ids for part in ({verb: {"_index": "a", "_id": n}}, {"message": n, "@timestamp": 5})]
    body = "".join(json.dumps(line) + "\n" for line in lines)
    answer = web.post(path, content=body, headers={"content-type": "application/x-ndjson", **headers})
    return [item[verb]["status"] for item in answer.json()["items"]]


def test_what_is_created_twice_is_stored_once(tmp_path, web_of):
    """A document with an id is stored once, also after a restart. An id belongs to an index, topic and partition."""
    with served(tmp_path / "data") as server:
        web = web_of(server)
        assert created(web, "1", "2", "2", "3") == [201, 201, 409, 201]
        assert created(web, "2", "4") == [409, 201]
        assert created(web, "2", path="/_bulk?topic=other") == [201]
        assert created(web, "2", path="/_bulk?partition=1") == [201]
        assert created(web, "5", verb="index") == [201]
        assert created(web, "5", verb="index") == [201]  # events never change: it is stored again
        assert created(web, "5") == [409]
        assert created(web, "6", "1", **{"idempotency-key": "beat:1"}) == [201, 201]  # the key covers the whole request
        assert created(web, "6") == [409]
    with served(tmp_path / "data") as server:
        web = web_of(server)
        assert created(web, "1", "2", "3", "4", "5", "6", "7") == [409] * 6 + [201]
        assert created(web, "2", path="/_bulk?topic=other") == [409]
        assert created(web, "2", path="/_bulk?topic=third") == [201]
        found = [row["data"] for row in rows(web, "SELECT FROM index = a WHERE fields:_id = 2")]
        assert found == ["2"] * 4


def test_ids_that_are_known():
    """The newest ids are known. If two requests create a document, one does; the other learns it after that ended."""
    ids = DocumentIds(known=3)
    assert [ids.claim(key) for key in (b"1", b"1", b"2")] == ["new", "claimed", "new"]
    ids.settle([b"1", b"2"], {b"1": 0})
    assert [ids.claim(key) for key in (b"1", b"2")] == ["known", "new"]
    ids.settle([b"2"], {b"2": 1, b"3": 2, b"4": 3})
    assert [ids.claim(key) for key in (b"1", b"2", b"3", b"4")] == ["new", "known", "known", "known"]
    keys = {key_of(*parts) for parts in [("a", "b", "c", "d"), ("a", "b", "cd", ""), ("", "ab", "c", "d"), ("a",) * 4]}
    assert len(keys) == 4


def test_ids_that_cannot_be_stored_yet(web, server):
    """A document that was refused with its request can be created later."""
    server.catalog.create_topic("binary", keys="binary")
    assert created(web, "1", path="/_bulk?topic=binary") == [400]
    key = key_of("logs", "0", "a", "9")
    assert server.context.document_ids.claim(key) == "new"
    assert created(web, "9") == [429]
    server.context.document_ids.settle([key], {})
    assert created(web, "9") == [201]


def test_documents_alone(elasticsearch, web, server):
    """Elasticsearch's client can use `_doc` and `_create` for single documents."""
    with elasticsearch.Elasticsearch(server.url) as client:
        made = client.index(index="nginx", document={"message": "one", "@timestamp": 5})
        assert (made["result"], made["_index"], made["_id"]) == ("created", "nginx", "0-0")
        assert client.index(index="nginx", id="a/b", document={"message": "two"})["_id"] == "a/b"
        assert client.create(index="nginx", id="c", document={"message": "three"})["result"] == "created"
        for again in (
            lambda: client.create(index="nginx", id="c", document={"message": "three"}),
            lambda: client.index(index="nginx", id="a/b", op_type="create", document={"message": "three"}),
        ):
            with pytest.raises(elasticsearch.ConflictError) as caught:
                again()
            assert caught.value.body["error"]["type"] == "version_conflict_engine_exception"
        with pytest.raises(elasticsearch.BadRequestError, match="document_parsing_exception"):
            client.index(index="nginx", document=[1])
    assert [row["data"] for row in rows(web, "SELECT FROM index = nginx")] == ["one", "two", "three"]


def test_helpers(elasticsearch, server, web):
    """With ids, a full retry by the bulk helpers of Elasticsearch's client stores nothing twice."""
    documents = [{"_op_type": "create", "_index": "shop", "_id": n, "message": f"m {n}"} for n in range(50)]
    with elasticsearch.Elasticsearch(server.url) as client:
        assert elasticsearch.helpers.bulk(client, documents) == (50, [])
        again = list(elasticsearch.helpers.streaming_bulk(client, documents, chunk_size=20, raise_on_error=False))
        assert [(good, item["create"]["status"]) for good, item in again] == [(False, 409)] * 50
    assert len(rows(web)) == 50


def test_passwords_and_keys(elasticsearch, server, web):
    """A token works as password or API key of Elasticsearch's client; errors have Elasticsearch's shape."""
    path = server.catalog.path / "tokens.json"
    token, other = create(path, "shop", ["write"], ["logs"]), create(path, "other", ["read"])
    server.context.authority._looked = 0.0
    _, token_id, secret = token.split("_", 2)
    right = [{"basic_auth": ("elastic", token)}, {"api_key": (token_id, secret)}, {"api_key": token},
             {"api_key": ("x", token)}, {"bearer_auth": token}]  # fmt: skip
    for options in right:
        with elasticsearch.Elasticsearch(server.url, **options) as client:
            assert client.index(index="a", document={"message": "x"})["result"] == "created"
    unknown, forbidden = elasticsearch.AuthenticationException, elasticsearch.AuthorizationException
    for options, error in ({"basic_auth": ("elastic", "x")}, unknown), ({}, unknown), ({"api_key": other}, forbidden):
        with elasticsearch.Elasticsearch(server.url, **options) as client:
            with pytest.raises(error, match="security_exception") as caught:
                client.index(index="a", document={"message": "x"})
            assert ("www-authenticate" in caught.value.meta.headers) is (error is unknown)
    refused = web.post("/a/_doc?topic=secret", json={}, auth=("elastic", token))
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "security_exception")
    assert len(list(server.catalog.topic("logs").read())) == len(right)


def test_errors_are_of_its_kind(web, web_of, tmp_path):
    """Every refusal on Elasticsearch's paths has its shape and header, also refusals made before routing."""
    small = Settings(http=Http(max_append_bytes=1000))
    with served(tmp_path / "small", small) as server:
        asked = [
            (web.get("/a/_search"), 404), (web.put("/_index_template/a", content=b"{}"), 405),
            (web.delete("/a/_doc/1"), 405), (web.post("/_bulk?odd=1"), 400), (web.post("/_bulk", content=b""), 400),
            (web_of(server).post("/_bulk", content=b"x" * 2000), 413),
            (web.post("/_bulk", content=b"x", headers={"content-encoding": "br"}), 415),
        ]  # fmt: skip
    for answer, status in asked:
        assert (answer.status_code, answer.headers["x-elastic-product"]) == (status, "Elasticsearch")
        told = answer.json()
        assert told["status"] == status
        assert told["error"]["reason"]
        assert told["error"]["root_cause"] == [{"type": told["error"]["type"], "reason": told["error"]["reason"]}]
    assert "x-elastic-product" not in web.get("/v1/none").headers


def test_overload_is_of_its_kind(web, server, monkeypatch):
    """Overload is refused in Elasticsearch's shape with Retry-After, before routing or in the route."""
    lines = [{"index": {"_index": "a"}}, {"message": "x"}]
    assert post(web, *lines).status_code == 200  # the path is known from now on
    monkeypatch.setattr(server.context.appends._counts, "busy", server.context.appends.capacity)
    monkeypatch.setattr(server.context.waiting_room, "_patience_s", 0.1)
    for path in ("/_bulk", "/b/_bulk"):
        answer = post(web, *lines, path=path)
        assert (answer.status_code, answer.headers["x-elastic-product"]) == (429, "Elasticsearch")
        assert answer.json()["error"]["type"] == "es_rejected_execution_exception"
        assert int(answer.headers["retry-after"]) >= 1


def test_what_shippers_look_at(elasticsearch, shared_web):
    """Health, licence, version and template requests of shippers are answered with the header that clients require."""
    paths = ["/", "/_cluster/health", "/_cluster/health?timeout=5s", "/_license?human=false", "/_xpack",
             "/_ilm/policy/filebeat", "/_index_template/filebeat-8.17.0", "/_template/logstash",
             "/_component_template/a", "/_data_stream/logs-a-b"]  # fmt: skip
    for path in paths:
        for answer in (shared_web.get(path), shared_web.head(path)):
            assert (answer.status_code, answer.headers["x-elastic-product"]) == (200, "Elasticsearch"), path
    assert shared_web.get("/_license").json()["license"]["status"] == "active"
    with elasticsearch.Elasticsearch(str(shared_web.base_url)) as client:
        assert client.cluster.health(wait_for_status="yellow", timeout="5s")["status"] == "green"
        assert client.indices.exists_index_template(name="logs")
        assert client.indices.get_index_template(name="logs")["index_templates"][0]["name"] == "logs"
        assert client.indices.get_data_stream(name="a")["data_streams"][0]["name"] == "a"
        assert client.ilm.get_lifecycle(name="p")["p"]["policy"] == {"phases": {}}
        assert client.xpack.info()["features"]["ilm"]["enabled"] is False
        assert client.ping()
        with pytest.raises(elasticsearch.ApiError):
            client.indices.put_index_template(name="logs", index_patterns=["a*"])


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
    """In one append, values that fit the topic's column are stored in it, and others as text next to it."""
    server.catalog.create_topic("typed", pa.schema([("data", pa.binary()), ("status", pa.int64())]))
    lines = []
    for number in range(500):
        lines += [{"index": {"_index": "a"}}, {"message": "x", "status": "odd" if number % 2 else number}]
    items = post(web, *lines, path="/_bulk?topic=typed").json()["items"]
    assert [item["index"]["status"] for item in items] == [201] * 500
    found = [(e.columns["status"], e.columns["fields"]) for e in server.catalog.topic("typed").read("0", 0)]
    assert found == [(None, [("status", "odd")]) if number % 2 else (number, None) for number in range(500)]


def test_deep_documents():
    """Documents may be nested 25 deep; one nested 5,000 deep is refused."""
    for depth, good in ((15, True), (25, True), (5_000, False)):
        document = b'{"a":' * depth + b"1" + b"}" * depth
        (action,) = read_actions(b'{"index":{"_index":"a"}}\n' + document + b"\n", None)
        assert isinstance(record_of(action), Wrong) is not good


def test_actions_over_several_lines():
    """Actions over several lines are refused with an explanation of the format."""
    body = json.dumps({"index": {"_index": "a"}}, indent=2).encode() + b'\n{"message": "x"}\n'
    with pytest.raises(InvalidEventError, match=r"^line 1: no action: .*; put each action and each document on its"):
        list(read_actions(body, None))


@examples(200)
@given(st.lists(st.one_of(
    st.sampled_from([b'{"index":{"_index":"a"}}', b'{"create":{}}', b'{"delete":{"_id":1}}', b'{"message":"x"}']),
    st.binary(max_size=20), st.text(max_size=10).map(lambda text: json.dumps({text: text}).encode()),
), max_size=8))  # fmt: skip
def test_hostile_bodies(lines):
    """Any lines are either actions with an answer each or refused."""
    try:
        actions = list(read_actions(b"\n".join(lines), "index"))
    except InvalidEventError:
        return
    outcomes = [made if isinstance(made := record_of(action), Wrong) else Place("0", 5) for action in actions]
    assert len(json.loads(bulk_answer(actions, outcomes, 1))["items"]) == len(actions)
    assert json.loads(bulk_answer(actions, [Refusal("no")] * len(actions), 1))["errors"] is bool(actions)
