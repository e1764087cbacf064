"""Records, lines and CloudEvents over HTTP: stored as streams and events, once for each key, or refused as a whole."""

from __future__ import annotations

import base64
import contextlib
import json

import httpx
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from served import ANY_PORT

import aggregator
from aggregator.server import RunningServer, Settings
from aggregator.server.bodies.cloudevents import BATCH, read_cloud_events
from aggregator.server.bodies.formats import read_records
from aggregator.server.config.settings import Http
from esformat import InvalidEventError

NDJSON, TEXT, STREAM = "application/x-ndjson", "text/plain", "application/vnd.apache.arrow.stream"
JSON_TYPE = "application/json"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A catalog with the topic `logs` and a client of its server, shared by the tests of this file."""
    http = Http(bind=ANY_PORT)
    with (
        aggregator.open(tmp_path_factory.mktemp("streams")) as catalog,
        RunningServer(catalog, Settings(http=http)) as server,
        httpx.Client(base_url=server.url, timeout=120) as web,
    ):
        post(web, "/v1/streams", b'{"ts": 1, "msg": "first"}', tags="app=first")
        yield catalog, web


def post(web, path, body, media=NDJSON, status=200, headers=None, **parameters):
    answer = web.post(path, content=body, headers={"content-type": media, **(headers or {})}, params=parameters)
    assert answer.status_code == status, answer.text
    return answer.json()


def records(catalog, app) -> list[tuple]:
    events = catalog.topic("logs").scan(space=f"{{app={app}}}")
    return [(event.timestamp, event.data, dict(event.columns["fields"] or ())) for event in events]


def test_records_of_a_stream(shared):
    """JSON lines and Arrow are stored as records, with tags as a parameter or a header."""
    catalog, web = shared
    body = b'{"ts": 0.000005, "msg": "a", "n": 1.5}\n\n{"ts": "1970-01-01T00:00:00.000007Z", "msg": "b", "l": [1]}\n'
    receipt = post(web, "/v1/streams", body, tags="{app=one}")
    assert receipt["last"] - receipt["first"] == 1
    table = pa.table({"ts": pa.array([9]), "msg": ["c"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    post(web, "/v1/streams", sink.getvalue().to_pybytes(), STREAM, headers={"tags": "app=one"})
    assert records(catalog, "one") == [(5, b"a", {"n": "1.5"}), (7, b"b", {"l": "[1]"}), (9, b"c", {})]


def test_messages_that_are_not_text(shared):
    """An answer's message in base64 is read as its bytes, under any name; what a forwarder sends is accepted."""
    catalog, web = shared
    post(web, "/v1/streams", b'{"ts": 0.000005, "msg": {"base64": "/w=="}}', tags="app=bytes")
    post(
        web,
        "/v1/lines",
        b'[{"at": 0.000006, "text": {"base64": ""}}]',
        JSON_TYPE,
        tags="app=bytes",
        ts="at",
        msg="text",
    )
    assert records(catalog, "bytes") == [(5, b"\xff", {}), (6, b"", {})]


@pytest.mark.parametrize("path", ["/v1/streams", "/v1/lines"])
def test_json(shared, path):
    """Outputs of shippers are accepted: an array or one object, with their names for time and message."""
    catalog, web = shared
    app = f"json-{path[4:]}"
    sent = [{"@timestamp": "1970-01-01T00:00:00.000005Z", "message": "a", "ts": 1, "msg": "mine"}, {"message": "b"}]
    names = {"tags": f"app={app}", "ts": "@timestamp", "msg": "message"}
    post(web, path, json.dumps(sent, indent=2).encode(), JSON_TYPE, **names)
    post(web, path, b'{"ts": 7, "msg": "c"}', JSON_TYPE, tags=f"app={app}", time_unit="us")
    post(web, path, b'{"msg": 9, "text": "d"}\n{"msg": 11, "text": "e", "ts": "x"}', ts="msg", msg="text",
         tags=f"app={app}", time_unit="us")  # fmt: skip
    found = records(catalog, app)
    assert found[:4] == [
        (5, b"a", {"_ts": "1", "_msg": "mine"}), (7, b"c", {}), (9, b"d", {}), (11, b"e", {"_ts": "x"}),
    ]  # fmt: skip
    assert found[4][1:] == (b"b", {})
    table = pa.table({"at": pa.array([3]), "text": ["f"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    post(web, "/v1/streams", sink.getvalue().to_pybytes(), STREAM, ts="at", msg="text", tags=f"app={app}")
    assert records(catalog, app)[0] == (3, b"f", {})


NOON = 1_772_366_400  # 2026-03-01T12:00:00Z


@pytest.mark.parametrize(("written", "micros", "unit"), [
    (NOON, 0, "s"), (f"{NOON}.25", 250_000, "s"), (f'"{NOON}.25"', 250_000, "s"), (f"{NOON}000", 0, "ms"),
    (f"{NOON}250.5", 250_500, "ms"), (f"{NOON}250000", 250_000, "us"), (f"{NOON}250000999", 250_000, "ns"),
    (f'"{NOON}250000999"', 250_000, "ns"),
])  # fmt: skip
def test_times_that_are_numbers(shared, written, micros, unit):
    """Times may be seconds to nanoseconds, as numbers or text; magnitude selects the unit, which the answer reports."""
    catalog, web = shared
    for name, topic, line in (
        ("streams", "logs", f'{{"ts": {written}, "msg": "x"}}'),
        ("topics/logs/events", "logs", f'{{"space": "numbers", "timestamp": {written}}}'),
    ):
        how = {"tags": "app=numbers"} if name == "streams" else {}
        receipt = post(web, f"/v1/{name}", line.encode(), **how)
        assert receipt["assumed_time_units"] == [unit]
        (stored,) = catalog.topic(topic).read("0", receipt["first"])
        assert stored.timestamp == NOON * 1_000_000 + micros
    space = str(written).replace('"', "t")
    post(web, "/v1/topics/logs/events", f"space,timestamp\n{space},{written}\n".encode(), "text/csv")
    (stored,) = catalog.topic("logs").scan(space=space)
    assert stored.timestamp == NOON * 1_000_000 + micros


def test_the_unit_of_times(shared):
    """An explicit unit applies, also to Arrow integers, and none is assumed."""
    catalog, web = shared
    for unit, micros in (("s", 5_000_000), ("ms", 5000), ("us", 5), ("ns", 0)):
        receipt = post(web, "/v1/streams", b'{"ts": 5}', tags="app=units", time_unit=unit)
        assert "assumed_time_units" not in receipt
        assert next(iter(catalog.topic("logs").read("0", receipt["first"]))).timestamp == micros
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("ts", pa.int64())])) as writer:
        writer.write_table(pa.table({"ts": pa.array([NOON, None, 7])}))
    body = sink.getvalue().to_pybytes()
    receipt = post(web, "/v1/streams", body, STREAM, tags="app=arrow", time_unit="s")
    stored = [event.timestamp for event in catalog.topic("logs").read("0", receipt["first"])]
    assert (stored[0], stored[2]) == (NOON * 1_000_000, 7_000_000)
    assert "logs" in post(web, "/v1/streams", body, STREAM, tags="app=arrow")["topic"]  # µs, like Arrow integers
    found = web.get("/v1/topics/logs/events", params={"space": "{app=units}", "start": 5, "end": 6, "time_unit": "us"})
    assert found.text.count("\n") == 1
    noon = {"space": "{app=arrow}", "start": NOON, "end": f"{NOON}000001"}
    assert web.get("/v1/topics/logs/events", params=noon).text.count("\n") == 1


@pytest.mark.parametrize(("written", "parameters"), [
    ("20260301", {}), ("20260301120000", {}), ('"20260301"', {}), ("9e30", {}), ("-99999999999", {}), ("true", {}),
    (f"{NOON}000", {"time_unit": "s"}), ("5", {"time_unit": "h"}), ("[5]", {}),
])  # fmt: skip
def test_numbers_that_are_no_times(shared, written, parameters):
    """Dates that look like numbers and times beyond the calendar are refused with a hint."""
    _, web = shared
    line = f'{{"ts": {written}, "space": "a", "timestamp": {written}}}'.encode()
    for name, how in (("streams", {"tags": "app=none"}), ("topics/logs/events", {})):
        problem = post(web, f"/v1/{name}", line, status=400, **how, **parameters)
        assert "time_unit" in str(problem)


def test_arrow_times_beyond_the_calendar(shared):
    """Nanoseconds in Arrow integers, which count µs, are refused instead of stored in the year 58134."""
    _, web = shared
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("ts", pa.int64())])) as writer:
        writer.write_table(pa.table({"ts": pa.array([NOON * 10**9])}))
    problem = post(web, "/v1/streams", sink.getvalue().to_pybytes(), STREAM, 400, tags="app=arrow")
    assert "outside the years 1 to 9999" in problem["detail"]


def test_lines_of_text(shared):
    """Each line is a record with the current time; bytes that are not text are kept."""
    catalog, web = shared
    post(web, "/v1/lines", "one\r\n\n  two\nthrü".encode() + b"\n\xff", TEXT, tags="app=lines")
    found = records(catalog, "lines")
    assert [data for _, data, _ in found] == [b"one", b"  two", "thrü".encode(), b"\xff"]
    assert found[0][0] > 1_700_000_000_000_000
    post(web, "/v1/lines", b'{"ts": 1, "msg": "json"}', tags="app=lines", time_unit="ms")
    assert records(catalog, "lines")[0] == (1000, b"json", {})


@pytest.mark.parametrize(("path", "body", "media", "status", "parameters"), [
    ("streams", b"{}", NDJSON, 400, {}), ("streams", b"{}", NDJSON, 400, {"tags": "{app"}),
    ("streams", b"{}", TEXT, 415, {"tags": "app=wrong"}), ("streams", b"{", NDJSON, 400, {"tags": "app=wrong"}),
    ("streams", b'{"ts": "x"}', NDJSON, 400, {"tags": "app=wrong"}), ("lines", b"x", "", 415, {"tags": "app=wrong"}),
    ("streams", b'{"ts": true}', NDJSON, 400, {"tags": "app=wrong"}), ("streams", b"x", STREAM, 400, {"tags": "app=x"}),
    ("streams", b'{"msg": 5}', NDJSON, 400, {"tags": "app=wrong"}), ("streams", b"[]", NDJSON, 400, {"tags": "a=b"}),
    ("streams", b"{}", NDJSON, 400, {"tags": "app=wrong", "odd": "1"}),
    ("lines", b"\n" * 1_000_001, TEXT, 400, {"tags": "a=b"}),
    ("streams", b'{"ts": 99999999999999999999}', NDJSON, 400, {"tags": "app=wrong"}),
    ("streams", b'{"a": 1}\n{"a": 2}', JSON_TYPE, 400, {"tags": "app=wrong"}),
    ("lines", b"5", JSON_TYPE, 400, {"tags": "a=b"}),
    ("streams", b'[{"msg": "x"}, 1]', JSON_TYPE, 400, {"tags": "app=wrong"}),
    ("streams", b'[{"at": "x"}]', JSON_TYPE, 400, {"tags": "app=wrong", "ts": "at"}),
    ("streams", b'{"msg": {"base64": "!!"}}', NDJSON, 400, {"tags": "app=wrong"}),
    ("streams", b'{"msg": {"base64": "eA==", "a": 1}}', NDJSON, 400, {"tags": "app=wrong"}),
])  # fmt: skip
def test_wrong_records(shared, path, body, media, status, parameters):
    """A body that cannot be stored is refused, and nothing of it is kept."""
    catalog, web = shared
    post(web, f"/v1/{path}", body, media, status, **parameters)
    assert records(catalog, "wrong") == [] if "logs" in catalog.topics() else True


def test_json_over_several_lines(shared):
    """JSON sent with the type for JSON lines is refused with a hint on how to send it."""
    for body in (b'{\n  "msg": "x"\n}', b'[{"msg": "x"}]'):
        hint = post(shared[1], "/v1/streams", body, NDJSON, 400, tags="app=wrong")["hint"]
        assert hint == "write one object per line, or send an object, or an array of objects, as application/json"


def test_keys(shared):
    """With a key, records must have times; a retry is then stored once."""
    catalog, web = shared
    key = {"idempotency-key": "shipper:1"}
    post(web, "/v1/streams", b'{"msg": "late"}', status=400, headers=key, tags="app=keys")
    post(web, "/v1/lines", b"late", TEXT, status=400, headers=key, tags="app=keys")
    body = b'{"ts": 5, "msg": "once"}'
    first = post(web, "/v1/streams", body, headers=key, tags="app=keys")
    assert post(web, "/v1/streams", body, headers=key, tags="app=keys") == {**first, "repeated": True}
    post(web, "/v1/streams", body, status=409, headers=key, tags="app=other")
    assert records(catalog, "keys") == [(5_000_000, b"once", {})]


# ------------------------------------------------------------ CloudEvents

EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "paid", "time": "2026-03-01T08:00:00.5+01:00"}


def test_cloud_events(shared):
    """A batch and single events are stored with keys, times, payloads of each kind, and extensions as columns."""
    catalog, web = shared
    batch = [
        {**EVENT, "subject": "ada", "data": {"total": 12}, "tries": 2, "partition": "x"},
        {**EVENT, "id": "2", "data": "text", "datacontenttype": "text/plain", "cold": True},
        {**EVENT, "id": "3", "data": "text"}, {**EVENT, "id": "4", "data_base64": base64.b64encode(b"\xff").decode()},
    ]  # fmt: skip
    receipt = post(web, "/v1/cloudevents", json.dumps(batch), BATCH)
    assert (receipt["topic"], receipt["last"]) == ("cloudevents", 3)
    post(web, "/v1/cloudevents", json.dumps({**EVENT, "id": "5"}), "application/cloudevents+json; charset=utf-8")
    topic = catalog.topic("cloudevents")
    found = list(topic.scan(columns=None))
    assert [event.data for event in found] == [b'{"total": 12}', b"text", b'"text"', b"\xff", b""]
    assert [event.space for event in found] == ["ada"] + ["/shop"] * 4
    assert {(event.grouping, event.timestamp) for event in found} == {("paid", 1772348400_500000)}
    row = topic.scan_index("id", "1").to_table().to_pylist()[0]
    assert (row["tries"], row["partition_"], row["source"], row["type"], row["cold"]) == (2, "x", "/shop", "paid", None)
    without = {name: value for name, value in EVENT.items() if name != "time"}
    post(web, "/v1/cloudevents", json.dumps(without), "application/cloudevents+json", 400,
         headers={"idempotency-key": "a:1"})  # fmt: skip


BINARY = {
    "ce-specversion": "1.0", "ce-id": "b-1", "ce-source": "/shop", "ce-type": "binary",
    "ce-time": "1970-01-01T00:00:01Z",
}  # fmt: skip


@pytest.mark.parametrize(("headers", "body", "wanted"), [
    ({"content-type": JSON_TYPE}, b'{"a":  1}', {"data": b'{"a":  1}', "datacontenttype": JSON_TYPE}),
    ({"content-type": "image/png"}, b"\xff\x00", {"data": b"\xff\x00", "space": "/shop"}), ({}, b"", {"data": b""}),
    ({"ce-subject": "Euro%20%E2%82%AC%20%F0%9F%98%80"}, b"", {"space": "Euro € 😀"}),
    ({"CE-Subject": '"a \\"b\\" %25"'}, b"", {"subject": 'a "b" %'}), ({"ce-subject": '"'}, b"", {"space": '"'}),
    ({"ce-subject": "100%"}, b"", {"space": "100%"}), ({"ce-subject": "%2525"}, b"", {"space": "%25"}),
    ({"ce-subject": "é".encode()}, b"", {"space": "é"}), ({"ce-region": "eu%2Dwest"}, b"", {"region": "eu-west"}),
    ({"ce-sequence": "5"}, b"", {"sequence": "5"}), ({"ce-type": "a%00b"}, b"", {"grouping": "a\x00b"}),
])  # fmt: skip
def test_cloud_events_in_binary_mode(shared, headers, body, wanted):
    """Attributes are headers, unquoted and percent-decoded once; the body is stored unchanged."""
    catalog, web = shared
    answer = web.post("/v1/cloudevents?topic=binary", content=body, headers=BINARY | headers)
    assert answer.status_code == 200, answer.text
    (event,) = catalog.topic("binary").read("0", answer.json()["first"])
    columns = dict(event.columns) | dict(event.indexes) | {"space": event.space, "grouping": event.grouping,
                                                           "data": event.data}  # fmt: skip
    assert {name: columns[name] for name in wanted} == wanted
    assert (event.timestamp, columns["id"]) == (1_000_000, "b-1")


@pytest.mark.parametrize(("headers", "status"), [
    ({"ce-id": ""}, 400), ({"ce-specversion": "0.3"}, 400), ({"ce-time": "noon"}, 400), ({"ce-odd-name": "x"}, 400),
    ({"ce-subject": "%ff"}, 400), ({"ce-data": "x"}, 400), ({"ce-datacontenttype": "text/plain"}, 400),
    ({"content-type": "application/cloudevents+json"}, 400), ({"content-type": "application/cloudevents+avro"}, 415),
    ({"content-encoding": "gzip"}, 400),
])  # fmt: skip
def test_wrong_events_in_binary_mode(shared, headers, status):
    """An invalid event is refused, and nothing of it is stored."""
    _, web = shared
    answer = web.post("/v1/cloudevents?topic=none", content=b"x", headers=BINARY | headers)
    assert answer.status_code == status, answer.text
    twice = [*BINARY.items(), ("ce-id", "2")]
    assert web.post("/v1/cloudevents?topic=none", content=b"x", headers=twice).status_code == 400
    assert web.get("/v1/topics/none").status_code == 404


def test_cloud_events_with_long_names(web, server):
    """Keys that are too long are cut; columns have the full values."""
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t" * 70_000, "subject": "ä" * 40_000}
    assert (
        web.post("/v1/cloudevents", json=event, headers={"content-type": "application/cloudevents+json"}).status_code
        == 200
    )
    (row,) = server.catalog.topic("cloudevents").scan().to_table().to_pylist()
    assert (row["space"], row["grouping"]) == ("ä" * 32_767, "t" * 65_535)
    assert 'changed_records_total{reason="key_cut",source="cloudevents"} 2.0' in web.get("/metrics").text
    assert (row["subject"], row["type"]) == (event["subject"], event["type"])


def test_names_are_utf_8(shared):
    """Names in headers and parameters are UTF-8; others are refused rather than taken for another name."""
    catalog, web = shared
    cafe = "{app=caf\u00e9}"
    post(web, "/v1/lines", b"one", TEXT, tags=cafe)
    post(web, "/v1/lines", b"two", TEXT, headers={"tags": cafe.encode()})
    assert [event.data for event in catalog.query(f"SELECT FROM {cafe}")] == [b"one", b"two"]
    post(web, "/v1/lines", b"x", TEXT, 400, headers={"tags": cafe.encode("latin-1")})
    post(web, "/v1/lines", b"x", TEXT, 400, headers={"idempotency-key": b"caf\xe9:1"}, tags=cafe)
    assert web.post("/v1/lines?tags=app%3D%E9", content=b"x", headers={"content-type": TEXT}).status_code == 400


@pytest.mark.parametrize("event", [
    5, {}, {**EVENT, "id": ""}, {**EVENT, "specversion": "2.0"}, {**EVENT, "time": "today"}, {**EVENT, "time": 5},
    {**EVENT, "Big": "x"}, {**EVENT, "ext": {}}, {**EVENT, "ext": 1.5}, {**EVENT, "subject": 5},
    {**EVENT, "data_base64": "!"}, {**EVENT, "data_base64": "eA==", "data": 1}, {**EVENT, "source": None},
    {**EVENT, "huge": 2**63}, {**EVENT, "datacontenttype": True}, {**EVENT, "data": json.loads("[" * 300 + "]" * 300)},
])  # fmt: skip
def test_wrong_cloud_events(shared, event):
    """An event that breaks a rule has its whole batch refused."""
    _, web = shared
    post(web, "/v1/cloudevents", json.dumps([EVENT, event]), BATCH, 400, topic="wrong")
    assert web.get("/v1/topics/wrong").status_code == 404


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
                    max_leaves=5)  # fmt: skip


@examples(150)
@given(st.lists(st.dictionaries(st.sampled_from([*EVENT, "subject", "data", "data_base64", "ext", "space"]), JSON,
                                max_size=9), max_size=3), st.binary(max_size=10))  # fmt: skip
def test_hostile_bodies(changes, junk):
    """Any events and records are either read or refused."""
    for body in (json.dumps([EVENT | change for change in changes]).encode(), junk):
        with contextlib.suppress(InvalidEventError):
            assert read_cloud_events(body, BATCH, 0).validate(full=True) is None
        with contextlib.suppress(InvalidEventError):
            read_records(pa.py_buffer(body.replace(b"}, {", b"}\n{").strip(b"[]")), NDJSON, max_bytes=1000)
