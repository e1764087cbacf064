"""OTLP's JSON as records of streams, directly from the parsed objects: protobuf's JSON parser would first build
messages.

It accepts what protobuf's JSON parser accepts: both spellings of names, numbers as text, enums by name, null for absent
members. Ids are hexadecimal, as OTLP requires. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from opentelemetry.proto.logs.v1.logs_pb2 import SeverityNumber

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
from aggregator.server.bodies.shared.records import TAGS_AND_RECORD

_SEVERITY_NUMBERS: Mapping[str, int] = dict(SeverityNumber.items())
_UINT64, _UINT32, _INT32, _INT64 = (0, 2**64), (0, 2**32), (-(2**31), 2**31), (-(2**63), 2**63)


def records_in(found: Any, names: Container[str], at: list[int]) -> Iterator[TAGS_AND_RECORD]:
    """Yield each record of a parsed request with its stream's tags. Raises ValueError, TypeError.

    at: the indexes of the resource, scope and record that are being read, kept up to date.
    """
    for resource_index, resource in enumerate(_list(found, "resourceLogs", "resource_logs")):
        at[:] = [resource_index]
        whole = _object(resource, "resource")
        tags, rest = split(_pairs(_list(whole, "attributes", "attributes"), 0), names)
        for scope_index, scope in enumerate(_list(resource, "scopeLogs", "scope_logs")):
            at[1:] = [scope_index]
            lib = _object(scope, "scope")
            about: dict[str, Any] = {
                "scope": _text(lib, "name", "name"),
                "scope_version": _text(lib, "version", "version"),
                "scope_schema_url": _text(scope, "schemaUrl", "schema_url"),
                "scope_dropped_attributes_count": _dropped(lib),
                "resource_schema_url": _text(resource, "schemaUrl", "schema_url"),
                "resource_dropped_attributes_count": _dropped(whole),
            }
            common = {name: value for name, value in about.items() if value}
            shared = ("scope.", by_key(_pairs(_list(lib, "attributes", "attributes"), 0))), ("resource.", rest)
            for record_index, record in enumerate(_list(scope, "logRecords", "log_records")):
                at[2:] = [record_index]
                made = _record(record, common)
                add_shared(made, shared)
                yield tags, made


def _record(record: Any, common: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {**common, "msg": _message(_object(record, "body"))}
    seen = _number(record, "observedTimeUnixNano", "observed_time_unix_nano", _UINT64)
    add_times(made, _number(record, "timeUnixNano", "time_unix_nano", _UINT64), seen)
    add_severity(made, _text(record, "severityText", "severity_text"), _severity(record))
    for name, camel in (("trace_id", "traceId"), ("span_id", "spanId")):
        if given := _text(record, camel, name):
            made[name] = bytes.fromhex(given).hex()
    if flags := _number(record, "flags", "flags", _UINT32):
        made["trace_flags"] = flags
    if event := _text(record, "eventName", "event_name"):
        made["event_name"] = event
    if dropped := _dropped(record):
        made["dropped_attributes_count"] = dropped
    add_attributes(made, _pairs(_list(record, "attributes", "attributes"), 0))
    return made


def _message(body: Mapping[str, Any]) -> str | bytes:
    for name in ("bytesValue", "bytes_value"):
        if body.get(name) is not None and len(body) == 1:
            return _bytes(body[name])
    return as_text(_value(body, 0))


# ------------------------------------------------------------ values


def _pairs(attributes: list[Any], depth: int) -> Iterator[tuple[str, Any]]:
    for attribute in attributes:
        yield _text(attribute, "key", "key"), _value(_object(attribute, "value"), depth)


def _value(given: Mapping[str, Any], depth: int) -> Any:
    """Convert a JSON AnyValue."""
    check_depth(depth)
    found: list[tuple[Callable[[Any, int], Any], Any]] = [
        (_KINDS[kind], value) for kind, value in given.items() if value is not None and kind in _KINDS
    ]
    if len(found) > 1:
        raise ValueError("a value has two types")
    return found[0][0](found[0][1], depth) if found else None


def _string(value: Any, _: int) -> str:
    if type(value) is not str:
        raise TypeError("stringValue is not a string")
    return value


def _bool(value: Any, _: int) -> bool:
    if type(value) is not bool:
        raise TypeError("boolValue is neither true nor false")
    return value


def _double(value: Any, _: int) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError("doubleValue is not a number")
    try:
        return plain(float(value))
    except OverflowError:  # a long integer; as text it becomes infinity, as in protobuf
        raise ValueError("doubleValue is outside the range of a double") from None


def _array(value: Any, depth: int) -> list[Any]:
    check_depth(depth)
    return [_value(_checked(each), depth + 1) for each in _list(value, "values", "values")]


def _map(value: Any, depth: int) -> dict[str, Any]:
    return by_key(_pairs(_list(value, "values", "values"), depth + 1))


_KINDS: Mapping[str, Callable[[Any, int], Any]] = {
    "stringValue": _string,
    "boolValue": _bool,
    "doubleValue": _double,
    "arrayValue": _array,
    "kvlistValue": _map,
    "intValue": lambda value, _: _integer(value, _INT64),
    "bytesValue": lambda value, _: plain(_bytes(value)),
}
_KINDS = {**_KINDS, **{name.removesuffix("Value") + "_value": kind for name, kind in _KINDS.items()}}


# ------------------------------------------------------------ members of objects


def _checked(given: Any) -> Mapping[str, Any]:
    if type(given) is not dict:
        raise TypeError("expected an object")
    return given


def _member(parent: Any, camel: str, snake: str) -> Any:
    if type(parent) is not dict:
        raise TypeError("expected an object")
    found = parent.get(camel)
    return parent.get(snake) if found is None else found


def _object(parent: Any, name: str) -> Mapping[str, Any]:
    found = _member(parent, name, name)
    return {} if found is None else _checked(found)


def _list(parent: Any, camel: str, snake: str) -> list[Any]:
    found = _member(parent, camel, snake)
    if found is None:
        return []
    if type(found) is not list:
        raise TypeError(f"{camel} is not a list")
    return found


def _text(parent: Any, camel: str, snake: str) -> str:
    found = _member(parent, camel, snake)
    if found is None:
        return ""
    if type(found) is not str:
        raise TypeError(f"{camel} is not a string")
    return found


def _number(parent: Any, camel: str, snake: str, span: tuple[int, int]) -> int:
    found = _member(parent, camel, snake)
    return 0 if found is None else _integer(found, span)


def _dropped(parent: Any) -> int:
    return _number(parent, "droppedAttributesCount", "dropped_attributes_count", _UINT32)


def _severity(record: Any) -> int:
    found = _member(record, "severityNumber", "severity_number")
    if found is None:
        return 0
    known = _SEVERITY_NUMBERS.get(found) if type(found) is str else None
    return _integer(found, _INT32) if known is None else known


def _integer(given: Any, span: tuple[int, int]) -> int:
    """Return a whole number, which may be text. Raises ValueError, TypeError."""
    whole = type(given) is int or (isinstance(given, float) and given.is_integer())
    if not whole and (type(given) is not str or len(given) > 40):
        raise TypeError("expected a whole number")
    number = int(given)
    if not span[0] <= number < span[1]:
        raise ValueError(f"{number} is not in the range {span[0]} to {span[1] - 1}")
    return number


def _bytes(given: Any) -> bytes:
    if type(given) is not str:
        raise TypeError("bytesValue is not a string")
    text = given.replace("\r", "").replace("\n", "")  # Go's readers skip line ends
    try:
        return base64.b64decode(
            text + "=" * (-len(text) % 4), altchars=b"-_" if "-" in text or "_" in text else None, validate=True
        )
    except ValueError:
        raise ValueError(f"bytesValue {given[:40]!r} is not base64") from None
