"""Events over HTTP: appended in any format, returned in any, once and complete."""

from __future__ import annotations

import gzip
import io
import json
import re
import threading

import httpx
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import zstandard
from served import ANY_PORT

import aggregator
import esformat
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http
from aggregator.server.services import segment_file

ROWS = [
    {"space": "ada", "timestamp": "2026-03-01T08:00:00Z", "data": "{\"n\": 1}", "type": "page", "n": 1},
    {"space": "bob", "timestamp": 1772352005_000000, "data": "ä\n", "type": "page", "n": 2},
    {"space": "ada", "timestamp": "2026-03-01T09:01:00+01:00", "data": "", "type": "purchase", "n": None},
]  # fmt: skip
TIMES = [1772352000_000000, 1772352005_000000, 1772352060_000000]
TABLE = pa.table({
    "space": ["ada", "bob", "ada"], "timestamp": pa.array(TIMES), "data": [row["data"].encode() for row in ROWS],
    "type": ["page", "page", "purchase"], "n": pa.array([1, 2, None], pa.int64()),
})  # fmt: skip
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
CSV = (
    'timestamp,space,data,type,n\n2026-03-01T08:00:00Z,ada,"{""n"": 1}",page,1\n'
    '1772352005000000,bob,"ä\n",page,2\n2026-03-01T09:01:00+01:00,ada,"",purchase,\n'
).encode()
STREAM, FILE = "application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.file"
PARQUET, ESDB = "application/vnd.apache.parquet", "application/vnd.esdb"


def arrow(table: pa.Table, media: str = STREAM) -> bytes:
    sink = pa.BufferOutputStream()
    with (pa.ipc.new_stream if media == STREAM else pa.ipc.new_file)(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


JSON = "application/json"
BODIES = {
    JSON: json.dumps(ROWS, indent=1).encode(),
    "application/x-ndjson": LINES,
    "text/csv; charset=utf-8": CSV,
    STREAM: arrow(TABLE),
    FILE: arrow(TABLE, FILE),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    settings = Settings(http=Http(bind=ANY_PORT))
    with aggregator.open(tmp_path_factory.mktemp("events")) as catalog, RunningServer(catalog, settings) as server:
        yield catalog, server.url


@pytest.fixture
def topic(shared, request):
    """A client whose base is a separate topic with an index."""
    catalog, url = shared
    name = re.sub(r"\W+", "-", request.node.name)[-200:]
    catalog.create_topic(name, indexes=["type"])
    with httpx.Client(base_url=f"{url}/v1/topics/{name}", timeout=120) as client:
        yield client


def append(topic, body=LINES, media="application/x-ndjson", status=200, **headers):
    answer = topic.post("/events", content=body, headers={"content-type": media, **headers})
    assert answer.status_code == status, answer.text
    return answer


def lines(answer) -> list[dict]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.parametrize("media", BODIES)
def test_any_format_in(topic, media):
    """The same events in any format are stored identically."""
    receipt = append(topic, BODIES[media], media).json()
    assert (receipt["first"], receipt["last"], receipt["partition"]) == (0, 2, "0")
    found = lines(topic.get("/events"))
    assert [(row["space"], row["data"], row["type"], row["n"]) for row in found] == [
        (row["space"], row["data"], row["type"], row["n"]) for row in ROWS
    ]
    assert found[2]["timestamp"] == "2026-03-01T08:01:00.000000Z"


def test_one_object(topic):
    """JSON is one object or an array of any length; its values are stored unchanged."""
    assert append(topic, json.dumps(ROWS[0]).encode(), JSON).json()["last"] == 0
    assert append(topic, b"[]", JSON).json()["last"] < append(topic, b" ", JSON).json()["first"]
    payload = {"space": "a", "timestamp": 5, "data": {"base64": "/wA="}, "n": 2**53 + 1}
    append(topic, json.dumps([payload]).encode(), JSON)
    (found,) = lines(topic.get("/events?space=a"))
    assert (found["data"], found["n"]) == ({"base64": "/wA="}, 2**53 + 1)


THEIRS = [{"space": "a", "@timestamp": "2026-03-01T08:00:00Z", "message": "hi", "timestamp": "mine"},
          {"space": "a", "@timestamp": 1772352000_000001, "message": "ho", "timestamp": None}]  # fmt: skip


@pytest.mark.parametrize("media", [JSON, "application/x-ndjson", "text/csv", STREAM])
def test_other_names(topic, media):
    """`ts` and `msg` name the body's time and payload; its own `timestamp` is then a column."""
    body: bytes
    if media == JSON:
        body = json.dumps(THEIRS).encode()
    elif media == STREAM:
        table = pa.table({"space": ["a", "a"], "@timestamp": [TIMES[0], TIMES[0] + 1], "message": ["hi", "ho"]})
        body = arrow(table)
    elif media == "text/csv":
        body = b"space,@timestamp,message\na,2026-03-01T08:00:00Z,hi\na,2026-03-01T08:00:00.000001Z,ho\n"
    else:
        body = "\n".join(map(json.dumps, THEIRS)).encode()
    answer = topic.post("/events?ts=@timestamp&msg=message", content=body, headers={"content-type": media})
    assert answer.status_code == 200, answer.text
    found = [(row["timestamp"][-8:], row["data"]) for row in lines(topic.get("/events"))]
    assert found == [(".000000Z", "hi"), (".000001Z", "ho")]


@pytest.mark.parametrize(("query", "body"), [
    ("ts=a&msg=a", [{"space": "a", "a": 1}]), ("ts=space", [{"space": "a"}]), ("msg=grouping", [{"space": "a"}]),
    ("msg=m", [{"space": "a", "timestamp": 1, "m": "x", "data": "y"}]), ("ts=at", [{"space": "a", "timestamp": 1}]),
    ("ts=a&ts=b", []), ("", [1]), ("", [{"space": "a"}, [1]]), ("", "x"), ("", [{"space": "a", "timestamp": "no"}]),
])  # fmt: skip
def test_other_names_that_do_not_fit(topic, query, body):
    """Nothing is stored of ambiguous bodies or JSON that is not objects."""
    answer = topic.post(f"/events?{query}", json=body)
    assert answer.status_code == 400, answer.text
    assert lines(topic.get("/events")) == []


def test_any_format_out(topic):
    """Arrow, CSV and JSON lines contain the same events."""
    append(topic)
    table = pa.ipc.open_stream(topic.get("/events", headers={"accept": STREAM}).content).read_all()
    assert table.select(TABLE.column_names).cast(TABLE.schema).equals(TABLE)
    csv = topic.get("/events", headers={"accept": "text/csv"})
    assert csv.headers["content-type"].startswith("text/csv")
    assert pa.csv.read_csv(io.BytesIO(csv.content), parse_options=pa.csv.ParseOptions(newlines_in_values=True))[
        "n"
    ].to_pylist() == [1, 2, None]
    parquet = pyarrow.parquet.read_table(io.BytesIO(topic.get("/events", headers={"accept": PARQUET}).content))
    assert parquet.select(TABLE.column_names).cast(TABLE.schema).equals(TABLE)
    assert topic.get("/events", headers={"accept": "text/html"}).status_code == 406
    several = [("accept", "text/html"), ("accept", "text/csv;q=0.9")]  # one list, as Go's `Header.Add` writes it
    assert topic.get("/events", headers=several).content == csv.content


def test_a_file_of_ours_out(topic, tmp_path):
    """Events, or some of them, are returned as a segment with the topic's indexes; rows without keys are refused."""
    append(topic)
    path = tmp_path / "events.esdb"
    for query, spaces in (("/events", ["ada", "ada", "bob"]), ("/index/type?value=page&space=bob", ["bob"])):
        answer = topic.get(query, headers={"accept": ESDB})
        assert answer.headers["content-type"] == ESDB
        path.write_bytes(answer.content)
        with esformat.open(path) as segment:
            assert [event.space for event in segment.scan()] == spaces
            assert list(segment.indexes) == ["type"]
            assert segment.scan_index("type", "page").count() == len(set(spaces))
        assert esformat.verify(path).ok
    refused = topic.get("/events?columns=type", headers={"accept": ESDB})
    assert (refused.status_code, refused.json()["detail"]) == (
        406, "these rows are not events: they have no space and no timestamp",
    )  # fmt: skip


def test_few_files_of_ours_at_once(topic, monkeypatch):
    """Segments are stored on disk while they are sent, so further ones are refused with Retry-After."""
    append(topic)
    monkeypatch.setattr(segment_file, "_places", threading.BoundedSemaphore(1))
    with segment_file._place():
        answer = topic.get("/events", headers={"accept": ESDB})
    assert (answer.status_code, "retry-after" in answer.headers) == (429, True)
    assert topic.get("/events", headers={"accept": ESDB}).status_code == 200


@pytest.mark.parametrize("accept", ["application/x-ndjson", STREAM])
def test_answers_can_be_sent_back(topic, shared, accept):
    """A scan's answer can be appended unchanged, including bytes that are not text."""
    catalog, url = shared
    odd = pa.table({"space": ["a", "b"], "timestamp": pa.array([5, 6]), "data": [b"\xff\x00", b'{"base64": "x"}']})
    append(topic, arrow(odd), STREAM)
    answer = topic.get("/events", headers={"accept": accept})
    again = catalog.create_topic(f"again {accept[-6:]}")
    topic.post(f"{url}/v1/topics/{again.name}/events", content=answer.content, headers={"content-type": accept})
    assert [event.data for event in again.scan()] == odd["data"].to_pylist()


def test_questions(topic):
    """Scans take a space, a time span, order, limit, columns, an index and record indexes."""
    append(topic)
    ada = topic.get("/events", params={"space": "ada", "reverse": "true", "limit": 1, "columns": "timestamp,type"})
    assert lines(ada) == [{"timestamp": "2026-03-01T08:01:00.000000Z", "type": "purchase"}]
    span = {"start": TIMES[1], "end": "2026-03-01T08:01:00Z"}
    assert [row["space"] for row in lines(topic.get("/events", params=span))] == ["bob"]
    assert [row["n"] for row in lines(topic.get("/index/type", params={"value": "page"}))] == [1, 2]
    by_index = lines(topic.get("/partitions/0/records", params={"from": 1, "columns": "record_index,space"}))
    assert by_index == [{"record_index": 1, "space": "bob"}, {"record_index": 2, "space": "ada"}]
    for path in ("/partitions/none/records", "/events?partition=none", "/index/type?value=page&partition=none"):
        unknown = topic.get(path)
        assert (unknown.status_code, unknown.json()["type"]) == (404, "/problems/no-such-partition")
        assert unknown.json()["hint"] == "its partitions are '0'"
    assert lines(topic.get("/events", params={"space": "nobody"})) == []


@pytest.mark.parametrize(("path", "status"), [
    ("/events?limit=x", 400), ("/events?limt=1", 400), ("/events?start=gestern", 400), ("/events?reverse=2", 400),
    ("/events?reverse=", 400), ("/partitions/0/records?reverse", 400),
    ("/events?columns=none", 400), ("/events?limit=1&limit=2", 400), ("/index/nothing?value=1", 404),
    ("/index/type?value=1&type=number", 400), ("/index/type?value=x&type=integer", 400),
    ("/index/type", 400), ("/events?space_base64=eA==", 409), ("/../nothing/events", 404),
])  # fmt: skip
def test_wrong_questions(topic, path, status):
    """Invalid requests are refused as in RFC 9457."""
    append(topic)
    answer = topic.get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status


@pytest.mark.parametrize(("encoding", "squeeze"), [
    ("gzip", gzip.compress), ("zstd", lambda data: zstandard.ZstdCompressor().compress(data)),
])  # fmt: skip
def test_compressed_bodies(topic, encoding, squeeze):
    """Compressed bodies are accepted unless they are invalid or too large once decompressed."""
    answer = topic.post("/events", content=squeeze(LINES),
                        headers={"content-type": "application/x-ndjson", "content-encoding": encoding})  # fmt: skip
    assert answer.json()["last"] == 2
    for body, status in ((b"junk", 400), (squeeze(b" " * 50_000_000), 413)):
        answer = topic.post("/events", content=body,
                            headers={"content-type": "application/x-ndjson", "content-encoding": encoding})  # fmt: skip
        assert answer.status_code == status


@pytest.mark.parametrize(("named", "status"), [
    ("identity, gzip", 200), ("gzip,identity", 200), ("GZIP,", 200), ("gzip, gzip", 415), ("identity, br", 415),
])  # fmt: skip
def test_identity_is_no_encoding(topic, named, status):
    """`identity` in a list of encodings changes nothing; several encodings are refused."""
    answer = topic.post("/events", content=gzip.compress(LINES),
                        headers={"content-type": "application/x-ndjson", "content-encoding": named})  # fmt: skip
    assert answer.status_code == status, answer.text


def test_keys(topic):
    """With a key a retry has no effect; other content with that key is refused."""
    first = append(topic, **{"idempotency-key": "web-1:17"}).json()
    again = append(topic, **{"idempotency-key": "web-1:17"}).json()
    assert again == {**first, "repeated": True}
    assert append(topic, LINES[: LINES.index(b"\n")], status=409, **{"idempotency-key": "web-1:17"})
    for wrong in ("web-1", ":1", "a:x", "a:", "a:" + "9" * 30):
        append(topic, status=400, **{"idempotency-key": wrong})
    assert len(lines(topic.get("/events"))) == 3


def test_keys_of_bytes(topic):
    """Bytes in a topic of text keys are refused with a hint about the topic, not only about a file."""
    body = arrow(pa.table({"space": [b"\xff"], "timestamp": [1]}))
    answer = topic.post("/events", content=body, headers={"content-type": STREAM})
    assert answer.status_code == 400
    assert answer.json()["hint"] == 'give text, or create the file or topic with keys="binary"'


@pytest.mark.parametrize(("media", "body", "status"), [
    ("application/xml", LINES, 415), ("application/json", LINES, 400),
    ("application/x-ndjson", b"{", 400), ("text/csv", b"a,b\n1,2\n", 400),
    ("application/x-ndjson", b'{"space": "a"}', 400), (STREAM, b"junk", 400), (STREAM, b"", 400),
    (STREAM, arrow(pa.table({"space": ["a"]})), 400), ("application/x-ndjson", gzip.compress(LINES, mtime=0), 400),
    ("application/x-ndjson", b'{"space": "a", "timestamp": 1e30}', 400), ("application/x-ndjson", b"\xff" * 20, 400),
    ("application/x-ndjson", b" " * 20_971_521, 413),
    ("application/x-ndjson; charset=latin1", LINES, 415), ('text/csv; Charset="utf-16"', LINES, 415),
    ("application/x-ndjson; charset=what", LINES, 415),
])  # fmt: skip
def test_wrong_bodies(topic, media, body, status):
    """A body that cannot be stored is refused as a whole."""
    append(topic, body, media, status)
    assert lines(topic.get("/events")) == []


def test_chunked_body_over_the_limit(topic):
    """A body without a declared length is counted as it arrives."""
    answer = topic.post("/events", content=(b" " * 2_000_000 for _ in range(11)),
                        headers={"content-type": "application/x-ndjson"})  # fmt: skip
    assert answer.status_code == 413
