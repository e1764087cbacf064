"""Requests to the server: parameters, headers and bodies of every kind are parsed or refused."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import parse_qsl

import pyarrow as pa
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from starlette.requests import Request

from aggregator.errors import AggregatorError
from aggregator.server.bodies import bulk, cloudevents, loki
from aggregator.server.bodies.formats import Names, read_events, read_lines, read_records
from aggregator.server.bodies.otlp import message as otlp
from aggregator.server.bodies.shared import media
from aggregator.server.bodies.shared.media import ARROW_FILE, ARROW_STREAM, CSV, INPUTS, JSON, LINES, choose, media_of
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.syslog import read_message
from aggregator.server.bodies.syslog_framing import Framer
from aggregator.server.http.body import decompress
from aggregator.server.http.params import Params, idempotency_key
from aggregator.server.plateau import parameters
from esformat import EsdbError

MAX_BYTES = 1 << 20
_NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
_REFUSALS = (EsdbError, AggregatorError, ProblemError)
_KNOWN = ("space", "start", "limit", "reverse", "wait", "columns", "space_base64")
_PARTITIONS = ["0", "a", "ä/b"]


def _request(query: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = ()) -> Request:
    return Request({"type": "http", "query_string": query, "headers": headers})


def _asked(data: bytes) -> None:
    asked = Params(_request(data), _KNOWN)
    asked.text("space")
    questions: tuple[Callable[[], object], ...] = (
        lambda: asked.flag("reverse"), lambda: asked.number("limit", low=-5), lambda: asked.seconds("wait", high=60),
        lambda: asked.time("start"), lambda: asked.names("columns"), lambda: asked.key("space", binary=True),
    )  # fmt: skip
    for question in questions:
        with suppress(*_REFUSALS):
            question()


def _plateau(data: bytes) -> None:
    pairs = parse_qsl(data.decode("latin-1"), keep_blank_values=True)
    given = parameters.parameters(pairs, parameters.TOPIC_PARAMETERS)
    assert set(parameters.matching(_PARTITIONS, given.get("partition_filter"))) <= set(_PARTITIONS)
    assert parameters.wanted(given, 100, 1 << 20).page_size <= 100


def _headers(data: bytes) -> None:
    text = data.decode("latin-1")
    choose(text, INPUTS)
    media_of(text)
    idempotency_key(_request(headers=((b"idempotency-key", data),)))


def _binary_event(data: bytes) -> None:
    parts = (line.partition(b":") for line in data.split(b"\n"))
    cloudevents.read_binary_event([(name, value) for name, _, value in parts], data, 1).validate(full=True)


def _events(media: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        table = read_events(pa.py_buffer(data), media, types={}, binary_keys=False, max_bytes=MAX_BYTES)
        table.validate(full=True)

    return read


def _records(data: bytes) -> None:
    read_lines(pa.py_buffer(data)).validate(full=True)
    for kind, names in ((LINES, Names()), (JSON, Names("@timestamp", "message"))):
        with suppress(*_REFUSALS):
            read_records(pa.py_buffer(data), kind, max_bytes=MAX_BYTES, names=names)


def _bulk(data: bytes) -> None:
    for action in bulk.read_actions(data, "logs"):
        bulk.record_of(action)


def _otlp(kind: str) -> Callable[[bytes], None]:
    return lambda data: [*map(repr, otlp.read_records(data, kind))].clear()


def _loki(data: bytes) -> None:
    for read in (loki.read_json_push, lambda body: loki.read_push(loki.unpack_snappy(body, MAX_BYTES))):
        with suppress(*_REFUSALS):
            [*map(repr, read(data))].clear()


def _syslog(data: bytes) -> None:
    framer, found = Framer(64), []
    for begin in range(0, len(data), 50):
        found += framer.feed(data[begin : begin + 50])
    found += framer.finish()
    assert sum(len(message) for message, _ in found) <= len(data)
    for message in (data, *(message for message, _ in found)):
        _, record = read_message(message, "peer", _NOW)
        assert isinstance(record["ts"], dt.datetime)


def _compressed(data: bytes) -> None:
    for encoding in ("gzip", "zstd"):
        with suppress(*_REFUSALS):
            assert len(decompress(data, encoding, MAX_BYTES)) <= MAX_BYTES


KINDS: tuple[Callable[[bytes], None], ...] = (
    _asked, _plateau, _headers, _events(LINES), _events(CSV), _events(ARROW_STREAM), _events(ARROW_FILE), _records,
    _bulk, _otlp(media.JSON), _otlp(media.PROTOBUF), _syslog, _compressed,
    lambda data: cloudevents.read_cloud_events(data, cloudevents.BATCH, 1).validate(full=True),
    lambda data: [*parameters.positions(data)].clear(), _loki, _events(JSON), _binary_event,
)  # fmt: skip


def seeds() -> list[bytes]:
    """A valid input of each kind, after the byte for the kind."""
    lines = (
        b'{"space": "a", "timestamp": 1, "n": [null, 1.5], "o": {"k": "v"}}\n{"space": "b", "timestamp": "2026-03-01"}'
    )
    table = pa.table(
        {"space": ["a", "b"], "timestamp": [1, 2], "n": [[1], None], "d": pa.array(["x"] * 2).dictionary_encode()}
    )
    stream, file = pa.BufferOutputStream(), pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as out, pa.ipc.new_file(file, table.schema) as more:
        out.write_table(table)
        more.write_table(table)
    body = {"kvlistValue": {"values": [{"key": "k", "value": {"arrayValue": {"values": [{"intValue": "1"}]}}}]}}
    record = {"timeUnixNano": "1", "severityNumber": 9, "traceId": "0a" * 16, "body": body}
    resource = {"attributes": [{"key": "a", "value": {"stringValue": "b"}}]}
    logs = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [record]}]}]}
    request = ParseDict(logs, ExportLogsServiceRequest())
    events = [
        {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time": "2026-03-01T00:00:00Z", "data": {"a": 1}}
    ]
    push = b'\x0a\x1c\x0a\x07{a="b"}\x12\x11\x0a\x02\x08\x05\x12\x01x\x1a\x08\x0a\x01k\x12\x03v\xff1'
    good = (
        b"space=a%20b&start=2026-03-01T08:00:00Z&limit=7&reverse=true&wait=0.5&columns=a,b",
        b"order=desc&time.start=2026-03-01T08:00:00.5Z&page_size=5&dataset[]=a.b&partition_filter=regex:^a|0$",
        b"text/csv;q=0.5, application/x-ndjson:17",
        lines, b"space,timestamp,n\na,1,2\n\"b\",2026-03-01T08:00:00Z,\n", stream.getvalue().to_pybytes(),
        file.getvalue().to_pybytes(), b'{"ts": 1, "msg": "x", "n": 1}\n{"msg": "plain text"}',
        b'{"index": {"_index": "web", "_id": 1}}\n{"@timestamp": "2026-03-01T00:00Z", "a": {"b": [1]}}\n{"delete": {}}',
        json.dumps(logs).encode(), request.SerializeToString(),
        b'<34>1 2026-03-01T08:00:00Z host app 7 ID [a@1 k="v\\""] text\n<13>Mar  1 08:00:00 h app[3]: t\n9 <1>a b c',
        gzip.compress(lines), json.dumps(events).encode(), b'{"0": 5, "a": 0}',
        pa.compress(push, "snappy", asbytes=True),
        b'[{"space": "a", "timestamp": 1, "n": [null, 1.5]}, {"space": "b", "timestamp": "2026-03-01", "data": "x"}]',
        b'ce-specversion:1.0\nce-id:1\nce-source:/%C3%A9\nce-type:"t \\" %25"\nce-subject:s\ncontent-type:a/b',
    )  # fmt: skip
    assert len(good) == len(KINDS)
    return [bytes([number]) + data for number, data in enumerate(good)]


def one_input(data: bytes) -> None:
    """The first byte selects the kind of the others."""
    if data:
        with suppress(*_REFUSALS):
            KINDS[data[0] % len(KINDS)](data[1:])
