"""Invalid requests: each is answered with the mistake, none with a server error."""

from __future__ import annotations

import json
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from served import served

from tests.aggregator.server.bodies.test_loki import AS_JSON, FROM_GO
from tests.aggregator.server.bodies.test_otlp import FULL
from tests.aggregator.server.bodies.test_otlp import request as otlp_request

STREAM, LINES = "application/vnd.apache.arrow.stream", "application/x-ndjson"
OTLP = b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": "0a"}]}]}]}'
TOPIC = b'{"indexes": ["a"], "roll": {"age": "60s"}, "retention": {"bytes": "1 GiB"}}'
PARAMETERS = ["space", "start", "end", "limit", "columns", "partition", "value", "reverse", "from", "tags", "topic"]


def arrow(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


EVENTS = pa.table({
    "space": ["a", "b"], "timestamp": pa.array([1, 2]), "data": [b"x", b"y"], "n": [[1], None],
    "d": pa.array(["u", "u"]).dictionary_encode(), "s": [{"f": 1.5}, {"f": None}],
})  # fmt: skip
CLOUD = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time": "2026-03-01T08:00:00Z", "data": {"a": 1}}
BODIES = [
    ("POST", "/v1/topics/t/events", STREAM, arrow(EVENTS)),
    ("POST", "/v1/topics/t/events", STREAM, arrow(EVENTS, "zstd")),
    ("POST", "/v1/topics/t/events", LINES, b'{"space": "a", "timestamp": 1, "data": {"base64": "eA=="}}\n'),
    ("POST", "/v1/topics/t/events", "text/csv", b'space,timestamp,grouping,data\na,1,g,"x ""y"""\n'),
    ("POST", "/v1/streams?tags=a%3Db", LINES, b'{"ts": "2026-03-01T08:00:00Z", "msg": "m", "n": [1]}\n'),
    ("POST", "/v1/streams?tags=a%3Db", STREAM, arrow(pa.table({"ts": [1], "msg": ["m"], "level": ["x"]}))),
    ("POST", "/v1/lines?tags=a%3Db", "text/plain", b"one\ntwo\n"),
    ("POST", "/v1/logs", "application/x-protobuf", otlp_request(FULL).SerializeToString()),
    ("POST", "/v1/logs", "application/json", OTLP),
    ("POST", "/loki/api/v1/push", "application/x-protobuf", FROM_GO),
    ("POST", "/loki/api/v1/push", "application/json", json.dumps(AS_JSON).encode()),
    ("POST", "/_bulk", LINES, b'{"index": {"_index": "a"}}\n{"@timestamp": 5, "message": "x"}\n'),
    ("POST", "/v1/cloudevents", "application/cloudevents-batch+json", json.dumps([CLOUD]).encode()),
    ("POST", "/v1/query", "application/json", b'{"query": "SELECT FROM {} LIMIT 3", "position": "head", "limit": 5}'),
    ("POST", "/v1/query", "text/plain", b"SELECT COUNT FROM {} WHERE msg CONTAINS \"x\" GROUP BY a"),
    ("PUT", "/v1/topics/u", "application/json", TOPIC),
    ("POST", "/v1/topics/t/erase", "application/json", b'{"spaces": ["nobody"]}'),
]  # fmt: skip


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with (
        served(tmp_path_factory.mktemp("hostile")) as server,
        httpx.Client(base_url=server.url, timeout=120) as client,
    ):
        server.catalog.create_topic("t")
        yield client


@pytest.mark.parametrize(("method", "path", "media", "body"), BODIES)
def test_bodies_before_they_are_damaged(web, method, path, media, body):
    """The bodies that the next test damages are valid."""
    answer = web.request(method, path, content=body, headers={"content-type": media})
    assert answer.status_code in (200, 201, 204), answer.text


@examples(250, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(BODIES), st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=8)), max_size=3),
       st.sampled_from(["", "gzip", "zstd"]), st.booleans())  # fmt: skip
def test_damaged_bodies(web, asked, changes, encoding, cut):
    """A damaged body is stored or refused, and the server still works for the next request."""
    method, path, media, body = asked
    for at, junk in changes:
        at %= len(body) or 1
        body = body[:at] + junk + (b"" if cut else body[at + len(junk) :])
    headers = {"content-type": media} | ({"content-encoding": encoding} if encoding else {})
    answer = web.request(method, path, content=body, headers=headers)
    assert answer.status_code < 500, answer.text
    assert web.get("/healthz").status_code == 200


NAMES = st.text(max_size=12) | st.sampled_from(["..", ".", "a/b", "%2e%2e", "\0", "x" * 300, "CON", "é", "é"])


@examples(80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES, NAMES, st.dictionaries(st.sampled_from(PARAMETERS), NAMES, max_size=3))
def test_odd_names(web, name, other, parameters):
    """Names and parameters may be any text, in any place."""
    topic, column = (quote(text, safe="").replace(".", "%2E") for text in (name, other))
    for path in (f"/v1/topics/{topic}", f"/v1/topics/{topic}/events", f"/v1/topics/t/index/{column}",
                 f"/v1/topics/t/partitions/{column}/records", "/v1/topics/t/events"):  # fmt: skip
        assert web.get(path, params=parameters).status_code < 500
    for path in (
        f"/v1/topics/t/events?partition={column}",
        f"/{column}/_bulk",
        f"/v1/lines?tags={column}&topic={topic}",
    ):
        answer = web.post(path, content=b"{}", headers={"content-type": "text/plain", "idempotency-key": column})
        assert answer.status_code < 500


@pytest.mark.parametrize(("path", "media", "body"), [
    ("/v1/streams?tags=a=b", "application/json", b'[{"msg": "x"}]'),
    ("/v1/lines?tags=a=b", "text/plain", b"x\n"),
    ("/v1/cloudevents", "application/cloudevents+json", b'{"specversion":"1.0","id":"1","source":"s","type":"t"}'),
    ("/v1/logs", "application/json", b'{"resourceLogs": []}'),
    ("/loki/api/v1/push", "application/json", b'{"streams": [{"stream": {"a": "b"}, "values": [["1", "x"]]}]}'),
    ("/_bulk", "application/x-ndjson", b'{"index": {}}\n{"message": "x"}\n'),
    ("/v1/topics/clicks/events", "application/json", b'{"space": "a", "timestamp": "2026-03-01"}'),
])  # fmt: skip
def test_an_empty_name_of_a_partition(web, path, media, body):
    """An empty ?partition= is refused everywhere: it is probably a variable of the sender that is not set."""
    web.put("/v1/topics/clicks").raise_for_status()
    separator = "&" if "?" in path else "?"
    answer = web.post(f"{path}{separator}partition=", content=body, headers={"content-type": media})
    assert answer.status_code == 400
    assert "a partition's name must not be empty" in answer.text


@pytest.mark.parametrize(("method", "path"), [
    ("PUT", "/v1/topics/"), ("GET", "/v1/topics/"), ("DELETE", "/v1/topics/"), ("POST", "/v1/query/"),
])  # fmt: skip
def test_a_slash_at_the_end(web, method, path):
    """A path that ends in an empty name is unknown; it is not redirected, which would lose the body of the answer."""
    answer = web.request(method, path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]
