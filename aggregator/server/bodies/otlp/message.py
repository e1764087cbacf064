"""OTLP logs: export requests, protobuf or JSON, as records of streams, and the protocol's responses. Pure.

Chosen attributes of the resource name the stream. A record's body becomes the message; all other attributes, severity,
trace and span become fields.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from aggregator.server.bodies.otlp.json_body import records_in
from aggregator.server.bodies.otlp.record import (
    add_attributes,
    add_severity,
    add_shared,
    add_times,
    as_text,
    by_key,
    check_depth,
    plain,
    split,
)
from aggregator.server.bodies.otlp.size import MAX_RECORDS, check_records, check_size
from aggregator.server.bodies.shared.media import JSON, PROTOBUF
from aggregator.server.bodies.shared.records import TAGS_AND_RECORD
from aggregator.server.bodies.shared.refusals import Count, ignore
from aggregator.server.bodies.shared.text_repair import MalformedError, escaped_message, read_json
from aggregator.server.config.settings import OTLP_TAGS
from esformat import InvalidEventError

_LISTS = ("resourceLogs", "scopeLogs", "logRecords")


def read_records(
    body: bytes, media: str, names: Container[str] = OTLP_TAGS, count: Count = ignore
) -> list[TAGS_AND_RECORD]:
    """Return the records of an export request, each with the tags of its stream.

    names: attributes of the resource that become tags. Text that is not UTF-8 is escaped, because some exporters do not
    check. Raises InvalidEventError.
    """
    at: list[int] = []
    try:
        found, escaped = read_json(body) if media == JSON else _parsed(body, at)
        if escaped:
            count("text_escaped")
        found_records = records_in(found, names, at) if media == JSON else _records(found, names)
        records = list(islice(found_records, MAX_RECORDS + 1))
    except InvalidEventError:
        raise
    except (DecodeError, ValueError, TypeError, RecursionError) as error:
        why = " ".join(str(error).split())[:200]
        where = ".".join(f"{name}[{index}]" for name, index in zip(_LISTS, at, strict=False)) + ": " if at else ""
        raise InvalidEventError(f"the body is not an export request: {where}{why}") from None
    check_records(len(records))
    return records


def _parsed(body: bytes, at: list[int]) -> tuple[ExportLogsServiceRequest, bool]:
    """Return the request, and whether text in it was escaped. at: receives the place of a malformed message."""
    check_size(body)
    try:
        return ExportLogsServiceRequest.FromString(body), False
    except DecodeError:
        try:
            escaped = escaped_message(memoryview(body), ExportLogsServiceRequest.DESCRIPTOR)
        except MalformedError as error:
            at[:] = [index for (name, index), known in zip(error.place, _LISTS, strict=False) if name == known]
            raise
        if escaped == body:
            raise
        return ExportLogsServiceRequest.FromString(escaped), True


def _records(request: ExportLogsServiceRequest, names: Container[str]) -> Iterator[TAGS_AND_RECORD]:
    for resource in request.resource_logs:
        tags, rest = split(_pairs(resource.resource.attributes), names)
        for scope in resource.scope_logs:
            about: dict[str, Any] = {
                "scope": scope.scope.name,
                "scope_version": scope.scope.version,
                "scope_schema_url": scope.schema_url,
                "scope_dropped_attributes_count": scope.scope.dropped_attributes_count,
                "resource_schema_url": resource.schema_url,
                "resource_dropped_attributes_count": resource.resource.dropped_attributes_count,
            }
            common = {name: value for name, value in about.items() if value}
            shared = ("scope.", by_key(_pairs(scope.scope.attributes))), ("resource.", rest)
            for record in scope.log_records:
                made = _record(record, common)
                add_shared(made, shared)
                yield tags, made


def _record(record: LogRecord, common: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {**common, "msg": _message(record.body)}
    add_times(made, record.time_unix_nano, record.observed_time_unix_nano)
    add_severity(made, record.severity_text, int(record.severity_number))
    if record.trace_id:
        made["trace_id"] = record.trace_id.hex()
    if record.span_id:
        made["span_id"] = record.span_id.hex()
    if record.flags:
        made["trace_flags"] = record.flags
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
    """Convert an AnyValue to its JSON form; bytes become base64."""
    check_depth(depth)
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(each, depth + 1) for each in value.array_value.values]
    if kind == "kvlist_value":
        return by_key(_pairs(value.kvlist_value.values, depth + 1))
    found = getattr(value, kind)
    return plain(found) if isinstance(found, bytes | float) else found


# ------------------------------------------------------------ answers


def success(refused: int, why: str, media: str) -> bytes:
    """Return the response if all records were stored, or all but `refused` ones that never can be."""
    message = ExportLogsServiceResponse()
    if refused:
        message.partial_success.CopyFrom(ExportLogsPartialSuccess(rejected_log_records=refused, error_message=why))
    text: str = MessageToJson(message, indent=None)
    return message.SerializeToString() if media == PROTOBUF else text.encode()
