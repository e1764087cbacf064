"""OTLP logs: export requests, protobuf or JSON, as records of streams; answers as the protocol wants them. Pure.

Attributes of the resource name the stream. Of a record, the body is the message; attributes, severity, trace and span
are fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import orjson
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from aggregator.server.odd_text import escaped_message, read_json
from aggregator.server.otlp_json import records_in
from aggregator.server.otlp_record import add_attributes, add_severity, add_times, as_text, check_depth, plain
from aggregator.server.refusals import Tell, untold
from aggregator.server.shipped import TAGS_AND_RECORD
from esformat import InvalidEventError

MAX_RECORDS = 500_000
"""Of a request: each takes some 600 bytes of memory, however few it takes in the body."""
PROTOBUF = "application/x-protobuf"
JSON = "application/json"


def read_records(body: bytes, media: str, tell: Tell = untold) -> list[TAGS_AND_RECORD]:
    """The records of an export request, each with the tags of its stream. Text that is not UTF-8 is escaped, as some
    exporters do not look. Raises InvalidEventError.
    """
    try:
        found, escaped = read_json(body) if media == JSON else _parsed(body)
        if escaped:
            tell("text_escaped")
        records = list(islice(records_in(found) if media == JSON else _records(found), MAX_RECORDS + 1))
    except InvalidEventError:
        raise
    except (DecodeError, ValueError, TypeError, RecursionError) as error:
        why = " ".join(str(error).split())[:200]
        raise InvalidEventError(f"the body is no export request: {why}") from None
    if len(records) > MAX_RECORDS:
        raise InvalidEventError(f"the request has more than {MAX_RECORDS:,} records", hint="send them in smaller ones")
    return records


def _parsed(body: bytes) -> tuple[ExportLogsServiceRequest, bool]:
    try:
        return ExportLogsServiceRequest.FromString(body), False
    except DecodeError:
        escaped = escaped_message(memoryview(body), ExportLogsServiceRequest.DESCRIPTOR)
        if escaped == body:
            raise
        return ExportLogsServiceRequest.FromString(escaped), True


def _records(request: ExportLogsServiceRequest) -> Iterator[TAGS_AND_RECORD]:
    for resource in request.resource_logs:
        tags = {name: as_text(value) for name, value in _pairs(resource.resource.attributes)}
        for scope in resource.scope_logs:
            about = {"scope": scope.scope.name, "scope_version": scope.scope.version}
            common = {name: value for name, value in about.items() if value}
            for record in scope.log_records:
                yield tags, _record(record, common)


def _record(record: LogRecord, common: Mapping[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {**common, "msg": _message(record.body)}
    add_times(made, record.time_unix_nano or record.observed_time_unix_nano)
    add_severity(made, record.severity_text, int(record.severity_number))
    if record.trace_id:
        made["trace_id"] = record.trace_id.hex()
    if record.span_id:
        made["span_id"] = record.span_id.hex()
    if record.event_name:
        made["event_name"] = record.event_name
    if record.dropped_attributes_count:
        made["dropped_attributes_count"] = record.dropped_attributes_count
    add_attributes(made, _pairs(record.attributes))
    return made


def _message(body: AnyValue) -> str | bytes:
    return body.bytes_value if body.WhichOneof("value") == "bytes_value" else as_text(_value(body))


def _pairs(attributes: Iterable[KeyValue], depth: int = 0) -> Iterator[tuple[str, Any]]:
    for attribute in attributes:
        yield attribute.key, _value(attribute.value, depth)


def _value(value: AnyValue, depth: int = 0) -> Any:
    """As JSON has it; bytes become base64."""
    check_depth(depth)
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(each, depth + 1) for each in value.array_value.values]
    if kind == "kvlist_value":
        return dict(_pairs(value.kvlist_value.values, depth + 1))
    found = getattr(value, kind)
    return plain(found) if isinstance(found, bytes | float) else found


# ------------------------------------------------------------ answers


def success(refused: int, why: str, media: str) -> bytes:
    """The answer where all was stored, or all but some records that never can be."""
    message = ExportLogsServiceResponse()
    if refused:
        message.partial_success.CopyFrom(ExportLogsPartialSuccess(rejected_log_records=refused, error_message=why))
    text: str = MessageToJson(message, indent=None)
    return message.SerializeToString() if media == PROTOBUF else text.encode()


def failure(message: str, media: str) -> bytes:
    """The answer to what went wrong: a google.rpc.Status with its message."""
    if media != PROTOBUF:
        return orjson.dumps({"message": message})
    text = message.encode()[:2000]
    length = len(text)
    size = bytes([length]) if length < 0x80 else bytes([length & 0x7F | 0x80, length >> 7])
    return b"\x12" + size + text  # field 2, length-delimited
