"""Export requests whose parts need far more memory than bytes are refused before they are read."""

from __future__ import annotations

from random import Random

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from aggregator.server.bodies.otlp import size as otlp_size
from aggregator.server.bodies.otlp.message import read_records
from aggregator.server.bodies.shared.media import PROTOBUF
from esformat import InvalidEventError

RECORDS, SCOPES, RESOURCES, VALUES = 0x12, 0x12, 0x0A, 0x0A


def field(key: int, content: bytes) -> bytes:
    """A field of bytes, with a length of three bytes."""
    size = len(content)
    return bytes([key, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + content


def record(content: bytes) -> bytes:
    return field(RESOURCES, field(SCOPES, field(RECORDS, content)))


COUNT = 20_000
MANY = {
    "records": field(RESOURCES, field(SCOPES, b"\x12\x00" * COUNT)),
    "records whose keys are written in two bytes": field(RESOURCES, field(SCOPES, b"\x92\x00\x00" * COUNT)),
    "scopes": field(RESOURCES, b"\x12\x00" * COUNT),
    "resources": b"\x0a\x00" * COUNT,
    "attributes": record(b"\x32\x00" * COUNT),
    "members of an array": record(field(0x2A, field(0x2A, b"\x0a\x00" * COUNT))),
    "members of an object": record(field(0x2A, field(0x32, b"\x0a\x00" * COUNT))),
    "attributes of a resource": field(RESOURCES, field(0x0A, b"\x0a\x00" * COUNT)),
}


@pytest.mark.parametrize("what", MANY)
def test_many_empty_parts(monkeypatch, what):
    """Empty parts take two bytes in the body and 70 to 140 in memory: too many are refused before any is built."""
    monkeypatch.setattr(otlp_size, "MAX_RECORDS", COUNT // 2)
    monkeypatch.setattr(otlp_size, "MAX_MESSAGES", COUNT // 2)
    body = MANY[what]
    ExportLogsServiceRequest.FromString(body)  # it is a valid request
    for read in (otlp_size.check_size, lambda body: read_records(body, PROTOBUF)):
        with pytest.raises(InvalidEventError, match=f"the request has more than {COUNT // 2:,}"):
            read(body)


def test_a_message_of_control_characters(monkeypatch):
    """Text may contain any byte that a part could begin with."""
    monkeypatch.setattr(otlp_size, "MAX_RECORDS", 3)
    monkeypatch.setattr(otlp_size, "MAX_MESSAGES", 5)
    text = "2*\n\x12\x1a" * 1000
    made = ResourceLogs(scope_logs=[ScopeLogs(log_records=[LogRecord(body=AnyValue(string_value=text))])])
    [(_, found)] = read_records(ExportLogsServiceRequest(resource_logs=[made]).SerializeToString(), PROTOBUF)
    assert found["msg"] == text


def any_value(random: Random, depth: int = 0) -> AnyValue:
    leaves = [AnyValue(), AnyValue(string_value="é"), AnyValue(int_value=1), AnyValue(bytes_value=b"*2")]
    shape = random.randrange(6) if depth < 3 else 0
    if shape == 1:
        return AnyValue(array_value=ArrayValue(values=[any_value(random, depth + 1) for _ in range(shape)]))
    return AnyValue(kvlist_value=KeyValueList(values=pairs(random, depth + 1))) if shape == 2 else random.choice(leaves)


def pairs(random: Random, depth: int = 0) -> list[KeyValue]:
    return [KeyValue(key="k", value=any_value(random, depth)) for _ in range(random.randrange(4))]


def log_record(random: Random) -> LogRecord:
    return LogRecord(time_unix_nano=9, body=any_value(random), attributes=pairs(random), trace_id=b"*2", flags=1)


def scope_logs(random: Random) -> ScopeLogs:
    records = [log_record(random) for _ in range(random.randrange(4))]
    return ScopeLogs(scope=InstrumentationScope(attributes=pairs(random)), log_records=records)


def export_request(random: Random) -> ExportLogsServiceRequest:
    made = [
        ResourceLogs(
            resource=Resource(attributes=pairs(random)),
            scope_logs=[scope_logs(random) for _ in range(random.randrange(3))],
        )
        for _ in range(random.randrange(3))
    ]
    return ExportLogsServiceRequest(resource_logs=made)


def kinds(message: Message) -> list[str]:
    """The kinds of all messages within a message."""
    found = []
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in [value] if isinstance(value, Message) else value:
                found += [field.message_type.name, *kinds(each)]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_every_message_is_counted(seed):
    """Counting without reading finds the same messages as reading."""
    made = export_request(Random(seed))
    counted = [kind.name for kind in otlp_size._messages(made.SerializeToString())]
    assert sorted(counted) == sorted(kinds(made))


@given(
    st.lists(st.sampled_from([b"\x0a", b"\x12", b"\x02", b"\x32\x00", b"\x92\x00", b"\xff", b"\x0b", b"\x0d"])).map(
        b"".join
    )
)
def test_bytes_that_are_no_request(body):
    """Counting ends for any bytes; a readable request has at most the counted messages."""
    counted = list(otlp_size._messages(body))
    try:
        request = ExportLogsServiceRequest.FromString(body)
    except DecodeError:
        return
    assert len(kinds(request)) <= len(counted)
