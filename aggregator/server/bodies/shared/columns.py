"""A topic's columns in JSON: {"name": "type"}, with Arrow's names of types. Pure."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from aggregator import InvalidRequestError
from esformat.parts import KEY_COLUMNS

_MOST = 1000
_LONGEST_TYPE = 100
_NAMES = {
    "text": pa.string(),
    "bytes": pa.binary(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}
_LIST = re.compile(r"list<(?:\w+: )?(.+)>")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([\w/+:-]+)\]")
_DECIMAL = re.compile(r"decimal128\((\d{1,2}), ?(\d{1,2})\)")
_HINT = (
    "use string, binary, bool, int64 (int8 … uint64), float64, date32, timestamp, timestamp[ms], decimal128(10, 2), "
    "list<string>; for any other type, append a first batch in Arrow"
)


def read_columns(given: Any) -> pa.Schema | None:
    """Return the columns of a definition, in order; None if it has none. Raises InvalidRequestError."""
    if given is None or given == {}:
        return None
    if not isinstance(given, dict) or len(given) > _MOST:
        raise InvalidRequestError(
            f"schema must be an object of up to {_MOST:,} names and types", hint='such as {"url": "string"}'
        )
    for name in KEY_COLUMNS:
        if name in given:
            raise InvalidRequestError(f"schema must not name {name!r}, a column of every topic", hint="leave it out")
    return pa.schema([pa.field(name, _type(name, kind)) for name, kind in given.items()])


def describe_columns(schema: pa.Schema) -> dict[str, str]:
    """Return the columns of a topic other than its keys, as names and types."""
    return {field.name: str(field.type) for field in schema if field.name not in KEY_COLUMNS}


def _type(column: str, given: Any) -> pa.DataType:
    if isinstance(given, str) and len(given) <= _LONGEST_TYPE:
        try:
            return _named(given.strip())
        except (ValueError, pa.ArrowException):
            pass
    raise InvalidRequestError(f"schema: invalid type {str(given)[:40]!r} for {column[:40]!r}", hint=_HINT)


def _named(name: str) -> pa.DataType:
    """Return the type with a name. Raises ValueError."""
    if name in _NAMES:
        return _NAMES[name]
    if found := _LIST.fullmatch(name):
        return pa.list_(_named(found[1]))
    if found := _ZONED.fullmatch(name):
        return pa.timestamp(found[1], found[2])
    if found := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(found[1]), int(found[2]))
    kind = pa.type_for_alias(name)
    if pa.types.is_null(kind):
        raise ValueError(name)
    return kind
