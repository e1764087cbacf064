"""OTLP logs: what OpenTelemetry's exporter sends is stored; errors are reported as the protocol prescribes."""

from __future__ import annotations

import base64
import contextlib
import copy
import gzip
import json
import logging
import re

import orjson
import pytest
from effort import examples
from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from served import served

from aggregator.server import Settings
from aggregator.server.bodies.otlp.message import read_records
from aggregator.server.bodies.otlp.status import failure
from aggregator.server.bodies.shared.media import JSON, PROTOBUF
from aggregator.server.config.settings import Otlp
from aggregator.server.config.sources import settings_of
from esformat import InvalidEventError

NANOS = 1772352000_000000_123


def any_value(value) -> AnyValue:
    if isinstance(value, dict):
        values = [KeyValue(key=name, value=any_value(each)) for name, each in value.items()]
        return AnyValue(kvlist_value=KeyValueList(values=values))
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=map(any_value, value)))
    kinds = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value", bytes: "bytes_value"}
    return AnyValue() if value is None else AnyValue(**{kinds[type(value)]: value})


def request(*records: dict, tags: dict | None = None) -> ExportLogsServiceRequest:
    """An export request; `attributes` and `body` of records are plain values."""
    made = ExportLogsServiceRequest()
    resource = made.resource_logs.add()
    resource.resource.attributes.extend(
        any_value({"service.name": "shop"} if tags is None else tags).kvlist_value.values
    )
    scope = resource.scope_logs.add()
    scope.scope.name = "lib"
    for record in records:
        added = scope.log_records.add()
        for name, value in record.items():
            if name == "attributes":
                added.attributes.extend(any_value(value).kvlist_value.values)
            elif name == "body":
                added.body.CopyFrom(any_value(value))
            else:
                setattr(added, name, value)
    return made


FULL = {
    "time_unix_nano": NANOS, "severity_number": 17, "body": "no disk", "trace_id": b"\1" * 16, "span_id": b"\2" * 8,
    "flags": 257,
    "attributes": {"n": 5, "ok": True, "f": 1.5, "l": [1, "a", None], "d": {"x": b"\xff"}, "msg": "mine", "z": None},
}  # fmt: skip
EXPECTED = {
    "ts": NANOS // 1000, "ts_ns": NANOS, "msg": "no disk", "severity": "ERROR", "severity_number": 17, "scope": "lib",
    "trace_id": "01" * 16, "span_id": "02" * 8, "trace_flags": 257,
    "n": 5, "ok": True, "f": 1.5, "l": [1, "a", None], "d": {"x": "/w=="},
    "attributes.msg": "mine", "z": None,
}  # fmt: skip
AS_JSON = {"resourceLogs": [{
    "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
    "scopeLogs": [{"scope": {"name": "lib"}, "logRecords": [{
        "timeUnixNano": str(NANOS), "severityNumber": 17, "body": {"stringValue": "no disk"},
        "traceId": "01" * 16, "spanId": "02" * 8, "flags": 257, "unknownField": 1,
        "attributes": [
            {"key": "n", "value": {"intValue": "5"}}, {"key": "ok", "value": {"boolValue": True}},
            {"key": "f", "value": {"doubleValue": 1.5}},
            {"key": "l", "value": {"arrayValue": {"values": [{"intValue": 1}, {"stringValue": "a"}, {}]}}},
            {"key": "d", "value": {"kvlistValue": {"values": [{"key": "x", "value": {"bytesValue": "/w=="}}]}}},
            {"key": "msg", "value": {"stringValue": "mine"}}, {"key": "z", "value": {}},
        ],
    }]}],
}]}  # fmt: skip


@pytest.mark.parametrize(("body", "media"), [
    (request(FULL).SerializeToString(), PROTOBUF), (orjson.dumps(AS_JSON), JSON),
])  # fmt: skip
def test_records(body, media):
    """Protobuf and JSON give the same records, and every part is kept."""
    assert read_records(body, media) == [({"service.name": "shop"}, EXPECTED)]


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
def test_keys_that_come_again(media):
    """Every value of a key is kept, though OTLP requires unique keys; the first one keeps the key."""

    def twice(key, *values):
        return [KeyValue(key=key, value=any_value(value)) for value in values]

    made = request({"body": "x"}, tags={})
    resource = made.resource_logs[0]
    resource.resource.attributes.extend([*twice("service.name", "shop", "shop", "other"), *twice("host", 1, True)])
    resource.scope_logs[0].scope.attributes.extend(twice("s", 1, 2))
    record = resource.scope_logs[0].log_records[0]
    record.attributes.extend(twice("a", 1, 2, 3))
    record.attributes.add(key="d", value=AnyValue(kvlist_value=KeyValueList(values=twice("k", 1, 1, [2], None))))
    body = orjson.dumps(json.loads(MessageToJson(made))) if media == JSON else made.SerializeToString()
    ((tags, fields),) = read_records(body, media)
    assert tags == {"service.name": "shop"}
    assert fields == {
        "msg": "x", "scope": "lib", "a": 1, "attributes.a": 2, "attributes.attributes.a": 3, "s": 1, "s.2": 2,
        "d": {"k": 1, "k.2": 1, "k.3": [2], "k.4": None}, "service.name.2": "other", "host": 1, "host.2": True,
    }  # fmt: skip


@pytest.mark.parametrize(("record", "expected"), [
    ({}, {"msg": ""}), ({"body": b"\xff", "observed_time_unix_nano": 5_000}, {"msg": b"\xff", "ts": 5}),
    ({"body": {"a": [1]}, "severity_text": "odd"}, {"msg": '{"a":[1]}', "severity": "odd"}),
    ({"attributes": {"f": float("nan")}}, {"msg": "", "f": "nan"}),
    ({"severity_number": 24}, {"msg": "", "severity": "FATAL", "severity_number": 24}),
])  # fmt: skip
def test_odd_records(record, expected):
    """Bodies that are not text, missing times, and numbers that JSON lacks are read."""
    made = request(record)
    made.resource_logs[0].scope_logs[0].scope.name = ""
    assert [record for _, record in read_records(made.SerializeToString(), PROTOBUF)] == [expected]


@pytest.mark.filterwarnings("ignore:.*LoggingHandler.*:DeprecationWarning")
def test_the_exporter_of_opentelemetry(web, server):
    """Records of a program that logs through OpenTelemetry's SDK are found by its resource's tags."""
    exporter = OTLPLogExporter(f"{server.url}/v1/logs", compression=Compression.Gzip)
    provider = LoggerProvider(Resource({"service.name": "checkout", "host.name": "web-1"}))
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = logging.getLogger("test_otlp")
    handler = LoggingHandler(logger_provider=provider)
    logger.addHandler(handler)
    try:
        for number in range(100):
            logger.warning("order %d failed", number, extra={"order": number})
    finally:
        logger.removeHandler(handler)
        provider.shutdown()
    rows = rows_of(
        web, 'SELECT FROM service.name = checkout WHERE fields:host.name = "web-1" AND fields:severity = WARN'
    )
    assert [row["data"] for row in rows] == [f"order {number} failed" for number in range(100)]
    assert rows[7]["fields"]["order"] == "7"


def post(web, body, media=PROTOBUF, **headers):
    return web.post("/v1/logs", content=body, headers={"content-type": media, **headers})


def rows_of(web, query):
    return [json.loads(line) for line in web.post("/v1/query", json={"query": query}).text.splitlines()]


def process(number: int) -> dict[str, str]:
    """The resource of one process of a service, as OpenTelemetry's SDKs and agents describe it."""
    return {
        "service.name": "shop", "service.namespace": "web", "deployment.environment": "prod",
        "k8s.namespace.name": "shops", "service.instance.id": f"{number:032x}", "host.name": f"shop-7f9c-{number}",
        "k8s.pod.name": f"shop-7f9c-{number}", "process.pid": 4711 + number, "telemetry.sdk.language": "java",
        "process.command_line": f"java -cp {'/lib/a.jar:' * 1000} Main {number}",
    }  # fmt: skip


def test_one_stream_for_all_processes_of_a_service(web, server):
    """Resource attributes that are long or name a process become fields; they neither split streams nor fail."""
    made = ExportLogsServiceRequest()
    for number in range(3):
        made.resource_logs.extend(request({"body": f"from {number}"}, tags=process(number)).resource_logs)
    answer = post(web, made.SerializeToString())
    assert (answer.status_code, answer.content) == (200, b"")
    tags = {"service.name": "shop", "service.namespace": "web", "deployment.environment": "prod",
            "k8s.namespace.name": "shops"}  # fmt: skip
    assert [dict(stream) for stream in server.catalog.streams()] == [tags]
    rows = rows_of(web, 'SELECT FROM service.name = shop WHERE fields:host.name = "shop-7f9c-1"')
    assert [row["data"] for row in rows] == ["from 1"]
    rest = {name: str(value) for name, value in process(1).items() if name not in tags}
    assert rows[0]["fields"] == rest | {"scope": "lib"}


def test_chosen_attributes_are_tags(tmp_path, web_of):
    """The operator chooses which resource attributes are tags."""
    chosen = settings_of({"otlp.tags": "host.name, k8s.pod.name"})
    assert chosen.otlp.tags == settings_of({"otlp.tags": ["host.name", "k8s.pod.name"]}).otlp.tags
    with served(tmp_path / "data", chosen) as server:
        web = web_of(server)
        for body, media in ((request({"body": "a"}, tags={"host.name": "h", "a": 1}).SerializeToString(), PROTOBUF),
                            (orjson.dumps(AS_JSON), JSON)):  # fmt: skip
            assert post(web, body, media).status_code == 200
        assert sorted(map(dict, server.catalog.streams()), key=len) == [{}, {"host.name": "h"}]
        (row,) = rows_of(web, "SELECT WHERE fields:service.name = shop")
        assert row["data"] == "no disk"


def test_names_that_several_have(web):
    """If names collide, the record's attribute keeps its name, then the scope's, then the resource's; all are kept."""
    made = request({"body": "x", "attributes": {"a": 1, "resource.b": 2}}, tags={"a": "r", "b": "r", "msg": 5, "ts": 6})
    made.resource_logs[0].scope_logs[0].scope.attributes.extend(any_value({"a": "s", "b": "s"}).kvlist_value.values)
    expected = {"a": 1, "scope.a": "s", "resource.a": "r", "b": "s", "resource.b": 2, "resource.resource.b": "r",
                "resource.msg": 5, "resource.ts": 6, "msg": "x", "scope": "lib"}  # fmt: skip
    assert read_records(made.SerializeToString(), PROTOBUF) == [({}, expected)]
    assert read_records(MessageToJson(made).encode(), JSON) == [({}, expected)]


def test_long_tags(tmp_path, web_of):
    """Chosen attributes that are too long for tags are cut, and kept whole as fields."""
    tags = {"service.name": "shop", "line": "y" * 5000} | {f"n{n}": f"{n}" + "z" * 3000 for n in range(20)}
    with served(tmp_path / "data", Settings(otlp=Otlp(tags=tuple(tags)))) as server:
        web = web_of(server)
        assert post(web, request({"body": "a"}, {"body": "b"}, tags=tags).SerializeToString()).content == b""
        found = rows_of(web, "SELECT FROM service.name = shop WHERE fields:line CONTAINS yyy")
        assert [row["data"] for row in found] == ["a", "b"]
        (stream,) = server.catalog.streams()
        for row in found:
            assert {**stream, **row["fields"]} == {**tags, "scope": "lib"}


@pytest.mark.parametrize("media", [PROTOBUF, JSON])
def test_text_that_is_not_utf8(web, media):
    """Text that is not UTF-8 is escaped and counted; nothing is lost."""
    whole = request({"body": "caf?", "attributes": {"a": "b"}}, {"body": "x"}).SerializeToString()
    half = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "caf\ud800"}}]}]}]}
    body = whole.replace(b"caf?", b"caf\xe9") if media == PROTOBUF else json.dumps(half).encode()
    answer = post(web, body, media)
    assert answer.status_code == 200
    rows = [json.loads(row)["data"] for row in web.get("/v1/topics/logs/events").text.splitlines()]
    assert rows == (["caf\\xe9", "x"] if media == PROTOBUF else ["caf\\ud800"])
    assert 'changed_records_total{reason="text_escaped",source="otlp"} 1.0' in web.get("/metrics").text


def test_partial_success(web, monkeypatch):
    """Records that can never be stored are reported, and the others are stored."""
    mixed = request({"body": "good"})
    long = {"body": "x" * 2_000}
    mixed.resource_logs.extend(request(long, long).resource_logs)
    monkeypatch.setattr("aggregator.engine.ingest.quota.MAX_BODY_BYTES", 4096 + 1_500)
    mixed.resource_logs.extend(request({"body": "fine"}, tags={}).resource_logs)
    answer = post(web, gzip.compress(mixed.SerializeToString()), **{"content-encoding": "gzip"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, PROTOBUF)
    told = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert told.rejected_log_records == 2
    assert "more than the 1,500 that fit" in told.error_message
    rows = web.get("/v1/topics/logs/events").text.splitlines()
    assert sorted(json.loads(row)["data"] for row in rows) == ["fine", "good"]
    assert 'aggregator_refused_records_total{reason="invalid",source="otlp"} 2.0' in web.get("/metrics").text
    nothing = post(web, b"{}", JSON)
    assert (nothing.status_code, nothing.json()) == (200, {})


@pytest.mark.parametrize(("body", "media", "status"), [
    (b"junk", PROTOBUF, 400), (b"{", JSON, 400), (b"[]", JSON, 400), (b'{"resourceLogs": 5}', JSON, 400),
    (b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": "xy"}]}]}]}', JSON, 400),
    (b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "x"}]}]}]}', JSON, 400),
    (b"[" * 50_000, JSON, 400), (b"{}", "text/plain", 415),
])  # fmt: skip
def test_wrong_bodies(shared_web, body, media, status):
    """Other bodies are refused with a Status."""
    answer = post(shared_web, body, media)
    assert answer.status_code == status
    assert answer.json()["message"] if media == JSON else answer.content.startswith(b"\x12")


@pytest.mark.parametrize("signal", ["traces", "metrics"])
def test_signals_that_are_not_stored(shared_web, signal):
    """Traces and metrics are permanently refused, in the request's encoding."""
    told = f"{signal} are not supported: this server stores only logs"
    answer = shared_web.post(f"/v1/{signal}", json={})
    assert (answer.status_code, answer.json()) == (404, {"message": told})
    answer = shared_web.post(f"/v1/{signal}", content=b"", headers={"content-type": PROTOBUF})
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROTOBUF)
    assert answer.content.endswith(told.encode())


def test_failure_is_a_status():
    """The handwritten Status message has the correct length."""
    for text in ("", "short", "x" * 127, "x" * 128, "ä" * 3000):
        written = failure(text, PROTOBUF)
        field = ExportLogsServiceResponse.FromString(b"")
        field.partial_success.ParseFromString(written)  # its field 2 is text, too
        assert text.encode().startswith(field.partial_success.error_message.encode())


def field(number: int, inner: bytes) -> bytes:
    """A length-delimited field of a message."""
    length, size = bytearray(), len(inner)
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2]) + bytes(length) + bytes([size]) + inner


def nested(depth: int) -> bytes:
    """A request whose body is an array nested this deep."""
    value = field(1, b"x")
    for _ in range(depth):
        value = field(5, field(1, value))
    return field(1, field(2, field(2, field(5, value))))


@pytest.mark.parametrize("depth", [30, 70, 40_000])
def test_nesting(shared_web, depth):
    """Values may be nested to a limit."""
    array: dict = {"stringValue": "x"}
    for _ in range(min(depth, 200)):
        array = {"arrayValue": {"values": [array]}}
    as_json = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": array}]}]}]}
    for body, media in ((nested(depth), PROTOBUF), (json.dumps(as_json).encode(), JSON)):
        assert post(shared_web, body, media).status_code == (200 if depth == 30 else 400)


GOOD = request(FULL, {"body": {"a": 1}}).SerializeToString()


@examples(150)
@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=6), st.booleans())
def test_hostile_protobuf(at, junk, cut):
    """Damaged messages are either read or refused."""
    body = GOOD[:at] if cut else GOOD[:at] + junk + GOOD[at + len(junk) :]
    with contextlib.suppress(InvalidEventError):
        for tags, record in read_records(body, PROTOBUF):
            assert all(isinstance(text, str) for pair in tags.items() for text in pair)
            assert isinstance(record["msg"], str | bytes)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["resourceLogs", "scopeLogs", "logRecords", "attributes", "body", "traceId", "timeUnixNano",
                         "resource", "key", "value", "stringValue", "intValue"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@examples(150)
@given(VALUES)
def test_hostile_json(value):
    """Any JSON is read as a request or refused."""
    with contextlib.suppress(InvalidEventError):
        for tags, record in read_records(json.dumps(value).encode(), JSON):
            assert all(isinstance(text, str) for pair in tags.items() for text in pair)
            assert isinstance(record["msg"], str | bytes)


# ------------------------------------------------------------ JSON is read as protobuf's own reader reads it


def by_protobuf(found) -> list | None:
    """The records that protobuf reads from a parsed request, with hexadecimal ids; None if it refuses the request."""
    found = copy.deepcopy(found)
    try:
        for resource in found.get("resourceLogs") or ():
            for scope in resource.get("scopeLogs") or ():
                for record in scope.get("logRecords") or ():
                    for name in ("traceId", "spanId"):
                        if record.get(name):
                            record[name] = base64.b64encode(bytes.fromhex(record[name])).decode()
        message = ParseDict(found, ExportLogsServiceRequest(), ignore_unknown_fields=True)
        return read_records(message.SerializeToString(), PROTOBUF)
    except (ParseError, InvalidEventError, AttributeError, TypeError, ValueError):
        return None


INTEGERS = st.integers(-(2**63), 2**63 - 1)
NANO_TIMES = st.integers(0, 2**64 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def requests(odd):
    """Export requests as JSON. odd: values that replace regular ones."""
    any_value = st.deferred(
        lambda: (
            st.just({})
            | st.builds(
                lambda kind, value: {kind: value}, st.sampled_from(["stringValue", "string_value"]), st.text("aä")
            )
            | st.builds(lambda value: {"intValue": value}, INTEGERS | INTEGERS.map(str) | odd)
            | st.builds(
                lambda value: {"doubleValue": value}, FINITE | FINITE.map(str) | st.sampled_from(["NaN", "Infinity"])
            )
            | st.builds(lambda value: {"boolValue": value}, st.booleans() | odd)
            | st.builds(lambda value: {"bytesValue": base64.b64encode(value).decode()}, st.binary(max_size=5))
            | st.builds(lambda values: {"arrayValue": {"values": values}}, st.lists(any_value, max_size=2))
            | st.builds(lambda values: {"kvlistValue": {"values": values}}, pairs)
            | st.builds(lambda value: {"stringValue": "a", "intValue": value}, st.none() | odd)
        )
    )
    pairs = st.lists(
        st.fixed_dictionaries(
            {"key": st.sampled_from(["a", "b", "msg", "ts", "severity", "service.name"])}, optional={"value": any_value}
        ),
        max_size=3,
    )
    record = st.fixed_dictionaries({}, optional={
        "timeUnixNano": NANO_TIMES | NANO_TIMES.map(str) | odd, "observedTimeUnixNano": st.just("1700000000000000001"),
        "severityNumber": st.integers(0, 24) | st.sampled_from(["SEVERITY_NUMBER_WARN", "9", None, 99, -1]) | odd,
        "severityText": st.text("aä") | odd, "body": any_value | odd, "attributes": pairs | odd,
        "traceId": st.binary(max_size=4).map(bytes.hex), "spanId": st.just("AbCd"),
        "droppedAttributesCount": st.just(3) | odd, "eventName": st.text("a"), "flags": st.just(1) | odd,
    })  # fmt: skip
    return st.builds(
        lambda tags, name, more, records: {"resourceLogs": [{"resource": {"attributes": tags}, "scopeLogs": [
            {"scope": {"name": name, "version": "1", "attributes": more}, "logRecords": records}]}]},
        pairs, st.text("a"), pairs, st.lists(record, max_size=3),
    )  # fmt: skip


@examples(100)
@given(requests(st.none()))
def test_json_means_what_it_means_to_protobuf(found):
    """JSON requests give the same records as protobuf's own JSON reader."""
    assert read_records(json.dumps(found).encode(), JSON) == by_protobuf(found)


ODD = st.sampled_from(["x", True, 2**63, 2**64, -1, 1.5, 3.0, "", "5", "1.5", [], {}, [5], {"values": [{}]}])


@examples(100)
@given(requests(ODD))
def test_odd_json_is_refused_or_means_the_same(found):
    """Odd JSON is either refused or read as protobuf reads it; nothing that protobuf refuses is accepted."""
    with contextlib.suppress(InvalidEventError):
        assert read_records(json.dumps(found).encode(), JSON) == by_protobuf(found)


WRONG_VALUES = [
    {"boolValue": "x"}, {"stringValue": 5}, {"intValue": 1.5}, {"intValue": True}, {"intValue": "9" * 50},
    {"intValue": 2**63}, {"doubleValue": []}, {"doubleValue": "one"}, {"doubleValue": 10**400}, {"bytesValue": 5},
    {"bytesValue": "a"}, {"bytesValue": "!!"}, {"bytesValue": "aGVs!bG8="}, {"bytesValue": "aGVsbG8=é"},
    {"arrayValue": []}, {"arrayValue": {"values": [5]}}, {"kvlistValue": {"values": {}}},
    {"stringValue": "a", "intValue": 1}, 5,
]  # fmt: skip


@pytest.mark.parametrize("value", WRONG_VALUES, ids=str)
def test_json_values_of_the_wrong_kind(value):
    """Values of the wrong type are refused, as body and as attribute."""
    for record in ({"body": value}, {"attributes": [{"key": "a", "value": value}]}):
        found = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
        with pytest.raises(InvalidEventError, match="not an export request"):
            read_records(json.dumps(found).encode(), JSON)


PLACES = {
    r"resourceLogs is not a list": {"resourceLogs": 5},
    r"resourceLogs\[1\]: expected an object": {"resourceLogs": [{}, 5]},
    r"resourceLogs\[1\]\.scopeLogs\[1\]: logRecords is": {
        "resourceLogs": [
            {"scopeLogs": [{"logRecords": [{}]}]}, {"scopeLogs": [{"logRecords": [{}, {}]}, {"logRecords": 5}]}
        ],
    },
    r"resourceLogs\[0\]\.scopeLogs\[1\]\.logRecords\[2\]: stringValue is": {
        "resourceLogs": [{"scopeLogs": [{}, {"logRecords": [{}, {}, {"body": {"stringValue": 5}}]}]}],
    },
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_an_error_says_where_it_is(place):
    """The error names the resource, scope and record, so that it can be found among many."""
    with pytest.raises(InvalidEventError, match=f"not an export request: {place}"):
        read_records(json.dumps(PLACES[place]).encode(), JSON)


@pytest.mark.parametrize(("place", "body"), [
    ("resourceLogs[0]", field(1, field(1, b"\x07"))),
    ("resourceLogs[1]", field(1, b"") + field(1, b"\x07")),
    ("resourceLogs[1].scopeLogs[1]", field(1, b"") + field(1, field(2, b"") + field(2, field(1, b"\x07")))),
    ("resourceLogs[0].scopeLogs[0].logRecords[2]",
     field(1, field(2, field(2, b"") + field(2, b"") + field(2, field(5, field(1, b"x") + b"\x07"))))),
])  # fmt: skip
def test_an_error_in_protobuf_says_where_it_is(place, body):
    """The error names the place as for JSON."""
    with pytest.raises(InvalidEventError, match=re.escape(f"not an export request: {place}: invalid wire type 7")):
        read_records(body, PROTOBUF)


@pytest.mark.parametrize("value", ["/+8A", "_-8A", "/+8", "_-8=", "/+\r\n8A\n"])
def test_bytes_in_json(value):
    """Base64 in either alphabet, with padding or not, and with line ends."""
    found = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"bytesValue": value}}]}]}]}
    ((_, record),) = read_records(json.dumps(found).encode(), JSON)
    assert record["msg"] == b"\xff\xef\0"[: 3 if "A" in value else 2]
