"""Loki's push: what Loki's own code and its clients write is stored; errors are plain text."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from served import served

from aggregator.server import Settings
from aggregator.server.bodies.loki import read_json_push, read_push, unpack_snappy
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.config.settings import Http
from aggregator.server.control.tokens import create
from esformat import InvalidEventError

PROTOBUF, JSON = "application/x-protobuf", "application/json"
NANOS = 1772352000_123456789

# From a program with github.com/grafana/loki/pkg/push and github.com/golang/snappy, which Alloy and promtail use.
FROM_GO = base64.b64decode(
    "wgHwQwqqAQpEe2FwcD0id2ViIiwgcGF0aD0iQzpcXGxvZ3MiLCBxdW90ZT0ic2F5IFwiaFx1MDBlNFwiIiwgam9iPSJ2YXJsASjwPH0SMwoLCIDkj80G"
    "EJWa7zoSB25vIGRpc2saDgoIdHJhY2VfaWQSAjE3GgsKA21zZxIEbWluZRIWCgsI8McZNSRlYXJsaWVyEhMKMk0AbARjYWbpGBEKEwoCe30SDQoLCP//"
    "/////////wE="
)
TAGS = {"app": "web", "path": "C:\\logs", "quote": 'say "h\u00e4"', "job": "varlogs"}
EXPECTED = [
    (TAGS, {"msg": b"no disk", "ts": NANOS // 1000, "ts_ns": NANOS, "trace_id": "17", "metadata.msg": "mine"}),
    (TAGS, {"msg": b"earlier", "ts": NANOS // 1000 - 3_600_000_000, "ts_ns": NANOS - 3_600_000_000_000}),
    (TAGS, {"msg": b"caf\xe9", "ts": NANOS // 1000, "ts_ns": NANOS}),
    ({}, {"msg": b"", "ts": -1_000_000}),
]
AS_JSON = {"streams": [{"stream": TAGS, "values": [
    [str(NANOS), "no disk", {"trace_id": "17", "msg": "mine"}], [NANOS - 3_600_000_000_000, "earlier"],
]}]}  # fmt: skip


def test_bytes_of_lokis_own_code():
    """Escaped labels, metadata, a line that is not UTF-8, and times before 1970 or out of order are read."""
    assert read_push(unpack_snappy(FROM_GO, 10_000)) == EXPECTED


def test_json():
    """Times may be text or, as some clients send them, numbers."""
    assert read_json_push(json.dumps(AS_JSON).encode()) == [
        (tags, {**record, "msg": record["msg"].decode()}) for tags, record in EXPECTED[:2]
    ]


def push(web, body, media=PROTOBUF, path="/loki/api/v1/push", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.post(path, content=body, headers={"content-type": media, **named})


SNAPPY = pa.Codec("snappy")
PLAIN = unpack_snappy(FROM_GO, 10_000)
WAYS = [
    (FROM_GO, PROTOBUF, {}), (FROM_GO, PROTOBUF, {"content_encoding": "snappy"}),
    (gzip.compress(FROM_GO, mtime=0), PROTOBUF, {"content_encoding": "gzip"}), (FROM_GO, "", {}),
    (json.dumps(AS_JSON).encode(), JSON, {}), (json.dumps(AS_JSON).encode(), f"{JSON}; charset=utf-8", {}),
    (gzip.compress(json.dumps(AS_JSON).encode(), mtime=0), JSON, {"content_encoding": "gzip"}),
]  # fmt: skip


@pytest.mark.parametrize(("body", "media", "headers"), WAYS)
def test_stored(web, server, body, media, headers):
    """Every form of push is answered 204; labels name the stream, and entries are stored by time."""
    answer = push(web, body, media, **headers)
    assert (answer.status_code, answer.content) == (204, b"")
    assert TAGS in [dict(stream) for stream in server.catalog.streams()]
    rows = [
        json.loads(line) for line in web.post("/v1/query", json={"query": "SELECT FROM app = web"}).text.splitlines()
    ]
    assert [row["data"] for row in rows][:2] == ["earlier", "no disk"]
    assert rows[1]["fields"] == {"trace_id": "17", "metadata.msg": "mine", "ts_ns": str(NANOS)}


# As written by python-logging-loki 0.3.1 and Fluent Bit's `loki` plugin.
CLIENTS = [
    (b'{"streams": [{"stream": {"app": "shop", "severity": "warning", "logger": "orders", "count": 5}, "values": '
     b'[["1772352000123456768", "order 17 failed"]]}]}',
     {"app": "shop", "severity": "warning", "logger": "orders", "count": "5"}, b"order 17 failed"),
    (b'{"streams":[{"stream":{"job":"fluent-bit"},"values":[["1772352000123456789","{\\"log\\":\\"caf\xe9\\"}"]]}]}',
     {"job": "fluent-bit"}, b'{"log":"caf\\xe9"}'),
]  # fmt: skip


@pytest.mark.parametrize(("body", "tags", "line"), CLIENTS)
def test_clients(web, server, body, tags, line):
    """JSON from real clients is stored, whether all of it is UTF-8 or not."""
    assert push(web, body, JSON).status_code == 204
    (event,) = server.catalog.topic("logs").scan()
    assert (event.data, [dict(stream) for stream in server.catalog.streams()]) == (line, [tags])


def test_tenants(tmp_path, web_of):
    """A tenant is a topic unless the address names one; tokens decide who may push for whom."""
    file = tmp_path / "tokens.json"
    token = f"Bearer {create(file, 'w', ['write'], ['team-a'])}"
    with served(tmp_path / "data", Settings(tokens=file)) as server:
        web = web_of(server)
        assert push(web, FROM_GO).status_code == 401
        assert push(web, FROM_GO, authorization=token).status_code == 403
        assert push(web, FROM_GO, authorization=token, x_scope_orgid="team-b").status_code == 403
        assert push(web, FROM_GO, authorization=token, x_scope_orgid="team-a").status_code == 204
        named = "/loki/api/v1/push?topic=team-a"
        assert push(web, FROM_GO, path=named, authorization=token, x_scope_orgid="b").status_code == 204
        assert server.catalog.topics() == ("team-a",)
        assert server.catalog.topic("team-a").scan().count() == 2 * len(EXPECTED)


def test_ready(shared_web):
    """Vector's readiness request is answered."""
    assert (shared_web.get("/ready").status_code, shared_web.get("/ready").text) == (200, "ready\n")


def one(*values, labels=None):
    return json.dumps({"streams": [{"stream": {"app": "a"} if labels is None else labels, "values": values}]}).encode()


@pytest.mark.parametrize(("body", "media", "message"), [
    (b"{", JSON, "the body is not JSON"), (b"[]", JSON, "not a push request"),
    (b'{"streams": 5}', JSON, "not a push request"),
    (b'{"streams": [{"labels": "{a=1}", "entries": [{"ts": "2026-03-01T08:00:00Z", "line": "of old"}]}]}', JSON,
     'stream 0: expected an object with "stream" and a list "values"'),
    (b'{"streams": [5]}', JSON, "stream 0"), (one(["1"]), JSON, "stream 0, value 0"), (one([1, 2]), JSON, "value 0"),
    (one(["1", "a"], ["x", "a"]), JSON, "value 1: the time 'x' is not a whole number"),
    (one([1.5, "a"]), JSON, "the time"), (one([True, "a"]), JSON, "the time"), (one(["9" * 99, "a"]), JSON, "the time"),
    (one(["1", "a", 5]), JSON, "must be an object"), (one(["1", "a"], labels=[]), JSON, "stream 0"),
    (b"", PROTOBUF, ""), (b"\xff" * 9, PROTOBUF, "the body is not snappy"), (FROM_GO[:-1], PROTOBUF, "is not snappy"),
    (b"\x05" + FROM_GO[2:], PROTOBUF, "is not snappy"), (PLAIN, PROTOBUF, ""),
    (SNAPPY.compress(b"junk", asbytes=True), PROTOBUF, "not a push request"),
    (SNAPPY.compress(b"\x0a\x06\x0a\x04{a=1", asbytes=True), PROTOBUF, "stream 0: the labels cannot be read"),
    (SNAPPY.compress(b"\x0a\x05\x0a\x03a=1", asbytes=True), PROTOBUF, "stream 0: the labels must be"),
])  # fmt: skip
def test_wrong_bodies(shared_web, body, media, message):
    """A wrong body is refused as a whole with a sentence that says where the mistake is."""
    answer = push(shared_web, body, media)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "text/plain; charset=utf-8")
    assert message in answer.text


def test_what_can_be_kept_is_kept(web, server, monkeypatch):
    """If some entries cannot be stored, the others are; long labels are cut; both are reported."""
    monkeypatch.setattr("aggregator.engine.ingest.quota.MAX_BODY_BYTES", 4096 + 1_500)
    answer = push(web, one(["1000", "good"], ["2000", "x" * 2_000], ["3000", "fine"]), JSON)
    assert answer.status_code == 400
    assert answer.text.startswith("1 of 3 entries cannot be stored: ")
    monkeypatch.undo()
    assert push(web, one(["1", "long"], labels={"app": "b", "long": "y" * 5_000}), JSON).status_code == 204
    rows = [json.loads(line) for line in web.get("/v1/topics/logs/events").text.splitlines()]
    assert {row["data"] for row in rows} == {"good", "fine", "long"}
    (row,) = (row for row in rows if row["data"] == "long")
    assert row["fields"]["long"] == "y" * 5_000
    figures = web.get("/metrics").text
    assert 'aggregator_refused_records_total{reason="invalid",source="loki"} 1.0' in figures
    assert 'aggregator_changed_records_total{reason="tags_cut",source="loki"} 1.0' in figures


def test_too_much(tmp_path, web_of):
    """A block whose declared size exceeds the body limit is refused before memory is allocated."""
    with served(tmp_path, Settings(http=Http(max_append_bytes=10_000))) as server:
        web = web_of(server)
        for body in (SNAPPY.compress(b"\0" * 20_000, asbytes=True), b"\xff\xff\xff\xff\x0f" + b"\0" * 20):
            assert push(web, body).status_code == 413
    with pytest.raises(ProblemError, match="the uncompressed size is missing"):
        unpack_snappy(b"\xff" * 10, 10_000)


def field(number: int, inner: bytes) -> bytes:
    """A length-delimited field of a message, shorter than 16 KiB."""
    return bytes([number << 3 | 2, len(inner) & 0x7F | 0x80, len(inner) >> 7]) + inner


@pytest.mark.parametrize("part", [b"\x12\x00", field(2, b"\x1a\x00" * 50)], ids=["entries", "metadata"])
def test_tiny_parts(monkeypatch, part):
    """Parts that are tiny in a body but large in memory are counted while reading."""
    monkeypatch.setattr("aggregator.server.bodies.loki.MAX_PARTS", 1_000)
    labels = field(1, b"{}")
    few = 1_000 if len(part) == 2 else 1_000 // 51
    assert len(read_push(field(1, labels + part * few))) == few
    with pytest.raises(InvalidEventError, match="more than 1,000 entries and metadata fields"):
        read_push(field(1, labels + part * few) + field(1, labels + part))
    with pytest.raises(InvalidEventError, match="more than 1,000 entries"):
        read_json_push(one(*[["1", ""]] * 1_001))


def test_metadata_names():
    """Metadata with a name of the record gets a prefix; of repeated names the last value is kept."""
    names = (b"metadata.msg", b"msg", b"ts", b"ts_ns")
    pairs = field(1, b"\x08\x01\x10\x01") + b"".join(field(3, field(1, name) + field(2, name)) for name in names)
    ((_, record),) = read_push(field(1, field(1, b"{}") + field(2, pairs)))
    assert record == {
        "msg": b"", "ts": 1_000_000, "ts_ns": 1_000_000_001, "metadata.msg": "metadata.msg",
        "metadata.metadata.msg": "msg", "metadata.ts": "ts", "metadata.ts_ns": "ts_ns",
    }  # fmt: skip
    pairs = b"".join(field(3, field(1, b"msg") + field(2, b"%04d" % number)) for number in range(1000))
    body = field(1, field(1, b"{}") + field(2, pairs))
    assert read_push(body) == [({}, {"msg": b"", "metadata.msg": "0999"})]


@examples(200)
@given(st.integers(0, len(PLAIN) - 1), st.binary(min_size=1, max_size=6), st.booleans())
def test_hostile_protobuf(at, junk, cut):
    """Damaged messages are either read or refused."""
    body = PLAIN[:at] if cut else PLAIN[:at] + junk + PLAIN[at + len(junk) :]
    with contextlib.suppress(InvalidEventError):
        for tags, record in read_push(body):
            assert all(isinstance(text, str) for pair in tags.items() for text in pair)
            assert isinstance(record["msg"], bytes)
    with contextlib.suppress(ProblemError):
        assert isinstance(unpack_snappy(body, 1 << 20), bytes)
