"""OTLP logs: export requests, protobuf or JSON, as records of streams; answers as the protocol wants them. Pure.

Attributes of the resource name the stream. Of a record, the body is the message; attributes, severity, trace and span
are fields.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from aggregator.server.shipped import TAGS_AND_RECORD
from esformat import InvalidEventError

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_SEVERITIES = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")  # four numbers each, from 1
_DEEPEST = 64  # of nested values
_RESERVED = ("ts", "msg")


def read_request(body: bytes, media: str) -> ExportLogsServiceRequest:
    """An export request. Raises InvalidEventError."""
    try:
        if media == PROTOBUF:
            return _parsed(body)
        found = orjson.loads(body)
        _ids_to_base64(found)
        request = ExportLogsServiceRequest()
        ParseDict(found, request, ignore_unknown_fields=True)
        return request
    except (DecodeError, orjson.JSONDecodeError, ParseError, ValueError, TypeError, AttributeError,
            RecursionError) as error:  # fmt: skip
        why = " ".join(str(error).split())[:200]
        raise InvalidEventError(f"the body is no export request: {why}") from None


def _parsed(body: bytes) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    request.ParseFromString(body)
    return request


def records_of(request: ExportLogsServiceRequest) -> Iterator[TAGS_AND_RECORD]:
    """Each record with the tags of its stream. Raises InvalidEventError for values that nest too deeply."""
    for resource in request.resource_logs:
        tags = {name: _text(value) for name, value in _pairs(resource.resource.attributes)}
        for scope in resource.scope_logs:
            about = {"scope": scope.scope.name, "scope_version": scope.scope.version}
            common = {name: value for name, value in about.items() if value}
            for record in scope.log_records:
                yield tags, _record(record, common)


def _record(record: LogRecord, common: Mapping[str, str]) -> dict[str, Any]:
    nanos = record.time_unix_nano or record.observed_time_unix_nano
    made: dict[str, Any] = {**common, "msg": _message(record.body)}
    if nanos:
        made["ts"] = nanos // 1000
        if nanos % 1000:
            made["ts_ns"] = nanos
    number = record.severity_number
    if record.severity_text or number:
        made["severity"] = record.severity_text or _SEVERITIES[min(max(number - 1, 0) // 4, 5)]
    if number:
        made["severity_number"] = int(number)
    if record.trace_id:
        made["trace_id"] = record.trace_id.hex()
    if record.span_id:
        made["span_id"] = record.span_id.hex()
    if record.event_name:
        made["event_name"] = record.event_name
    if record.dropped_attributes_count:
        made["dropped_attributes_count"] = record.dropped_attributes_count
    for name, value in _pairs(record.attributes):
        made[name if name not in made and name not in _RESERVED else f"attributes.{name}"] = value
    return made


def _message(body: AnyValue) -> str | bytes:
    kind = body.WhichOneof("value")
    if kind == "string_value":
        return body.string_value
    if kind == "bytes_value":
        return body.bytes_value
    return "" if kind is None else _text(_value(body))


def _pairs(attributes: Iterable[KeyValue], depth: int = 0) -> Iterator[tuple[str, Any]]:
    for attribute in attributes:
        yield attribute.key, _value(attribute.value, depth)


def _value(value: AnyValue, depth: int = 0) -> Any:
    """As JSON has it; bytes become base64."""
    if depth > _DEEPEST:
        raise InvalidEventError(f"a value nests deeper than {_DEEPEST} levels")
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(each, depth + 1) for each in value.array_value.values]
    if kind == "kvlist_value":
        return dict(_pairs(value.kvlist_value.values, depth + 1))
    found = getattr(value, kind)
    if isinstance(found, bytes):
        return base64.b64encode(found).decode()
    return str(found) if isinstance(found, float) and not math.isfinite(found) else found


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATETIME).decode()


def _ids_to_base64(request: Any) -> None:
    """Trace and span ids of OTLP's JSON are hexadecimal; the JSON of protobuf, which reads the rest, wants base64."""
    for resource in _members(request, "resourceLogs", "resource_logs"):
        for scope in _members(resource, "scopeLogs", "scope_logs"):
            for record in _members(scope, "logRecords", "log_records"):
                for name in ("traceId", "spanId", "trace_id", "span_id"):
                    given = record.get(name)
                    if given:
                        record[name] = base64.b64encode(bytes.fromhex(given)).decode()


def _members(parent: Any, *names: str) -> list[Any]:
    return next((parent[name] for name in names if parent.get(name) is not None), [])


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
