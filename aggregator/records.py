"""Records of a stream as events: `ts`, `msg` and fields become timestamp, data, typed columns and a map of the rest."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.errors import InvalidRequestError
from aggregator.lql import TagSet
from aggregator.model import RESERVED_COLUMNS
from esformat.parts import first_cut, to_arrow, to_microseconds

FIELDS = "fields"
"""The column with the fields that have no column of their own."""
FIELD_MAP = pa.map_(pa.string(), pa.string())
STREAM_SCHEMA = pa.schema([pa.field("data", pa.binary()), pa.field(FIELDS, FIELD_MAP)])
"""Payload columns of a topic that is made by a stream's first write."""
_OWN = ("space", "grouping", "timestamp", "data", FIELDS, *RESERVED_COLUMNS)


def events_of(tags: TagSet, records: Any, columns: Mapping[str, pa.DataType], now_us: int) -> pa.Table:
    """Records as a table for a topic whose columns are `columns`: mappings, or anything Arrow. Raises
    InvalidRequestError, esformat.InvalidEventError.
    """
    if isinstance(records, Mapping | str | bytes):
        raise InvalidRequestError("records must be a list of mappings, or a table", hint="put one record into a list")
    arrow = hasattr(records, "__arrow_c_stream__") or hasattr(records, "__arrow_c_array__")
    if arrow or isinstance(records, pa.Table | pa.RecordBatch):
        made = _of_table(to_arrow(records), now_us)
    elif isinstance(records, Iterable):
        made = _of_mappings(list(records), columns, now_us)
    else:
        raise InvalidRequestError(f"records must be mappings or a table, not {type(records).__name__}")
    length = len(next(iter(made.values())))
    return pa.table({"space": pa.repeat(pa.scalar(str(tags)), length), **made})


# ------------------------------------------------------------ tables


def _of_table(table: pa.Table, now_us: int) -> dict[str, Any]:
    for name in table.column_names:
        if name in _OWN and name != FIELDS:
            raise InvalidRequestError(
                f"a field cannot be called {name!r}", hint="the time is called ts, the message msg"
            )
    if len(set(table.column_names)) != table.num_columns:
        raise InvalidRequestError("two columns have the same name")
    names = table.column_names
    made: dict[str, Any] = {"timestamp": _times(table, now_us), "data": _messages(table)}
    made |= {name: table.column(name) for name in names if name not in ("ts", "msg")}
    if FIELDS in made and made[FIELDS].type != FIELD_MAP:
        raise InvalidRequestError(f"the column {FIELDS!r} must be a map of text to text, not {made[FIELDS].type}")
    return made


def _times(table: pa.Table, now_us: int) -> Any:
    if "ts" not in table.column_names:
        return pa.repeat(pa.scalar(now_us, pa.int64()), len(table))
    column = table.column("ts")
    whole = pa.types.is_integer(column.type)
    if not whole and not (pa.types.is_timestamp(column.type) and column.type.tz is not None):
        raise InvalidRequestError(
            f"the column ts is {column.type}", hint="give whole microseconds, or timestamps with a time zone"
        )
    try:
        micros = (
            column.cast(pa.int64()) if whole else column.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
        )
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"the column ts cannot be stored: {error}") from None
    return pc.fill_null(micros, now_us)


def _messages(table: pa.Table) -> Any:
    if "msg" not in table.column_names:
        return pa.repeat(pa.scalar(b""), len(table))
    column = table.column("msg")
    try:
        return pc.fill_null(column.cast(pa.binary()), b"")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InvalidRequestError(f"the column msg is {column.type}", hint="a message is text or bytes") from None


# ------------------------------------------------------------ mappings


def _of_mappings(records: list[Any], columns: Mapping[str, pa.DataType], now_us: int) -> dict[str, Any]:
    for place, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise InvalidRequestError(f"record {place} is a {type(record).__name__}, not a mapping")
    made: dict[str, Any] = {
        "timestamp": pa.array([_time(record.get("ts"), now_us) for record in records], pa.int64()),
        "data": pa.array([_message(record.get("msg"), place) for place, record in enumerate(records)], pa.binary()),
    }
    given = {name for record in records for name in record} - {"ts", "msg"}
    typed = {name for name in given if name in columns and name not in _OWN}
    for name in sorted(typed, key=str):
        values, kind = [record.get(name) for record in records], columns[name]
        try:
            made[name] = pa.array(values, kind)
            whole = first_cut(values, kind)
            if whole is not None:
                raise ValueError(f"part of {whole!r} would be lost")
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise InvalidRequestError(f"field {name!r} cannot be stored as {kind}: {error}") from None
    if given - typed:
        made[FIELDS] = _map([_rest(record, typed, place) for place, record in enumerate(records)])
    return made


def _time(given: Any, now_us: int) -> int:
    return now_us if given is None else to_microseconds(given, "ts")


def _message(given: Any, place: int) -> bytes:
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise InvalidRequestError(f"msg of record {place} is not Unicode text") from None
    if given is None or isinstance(given, bytes):
        return given or b""
    raise InvalidRequestError(f"msg of record {place} is a {type(given).__name__}", hint="a message is text or bytes")


def _rest(record: Mapping[Any, Any], typed: set[str], place: int) -> list[tuple[str, str]]:
    return [
        (_name(name, place), _text(value, name, place))
        for name, value in record.items()
        if name not in ("ts", "msg") and name not in typed and value is not None
    ]


def _name(name: Any, place: int) -> str:
    if isinstance(name, str):
        return name
    raise InvalidRequestError(f"record {place} has a field whose name is a {type(name).__name__}, not text")


def _text(value: Any, name: str, place: int) -> str:
    """A field as text: as LQL compares it."""
    try:
        if isinstance(value, str):
            return value
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, dt.datetime):
            utc = value if value.tzinfo is None else value.astimezone(dt.UTC)
            return utc.isoformat().replace("+00:00", "Z")
        if isinstance(value, list | tuple | Mapping):
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if isinstance(value, int | float | np.number):
            return str(value)
    except (UnicodeError, TypeError, ValueError):
        pass
    raise InvalidRequestError(
        f"field {name!r} of record {place} is a {type(value).__name__} without a text form",
        hint="give text, numbers, truth values, times, lists or mappings",
    )


def _map(rows: list[list[tuple[str, str]]]) -> pa.Array:
    """Rows of names and values as a map column; null where a record has none."""
    try:
        return pa.array([row or None for row in rows], FIELD_MAP)
    except (pa.ArrowException, UnicodeError) as error:
        raise InvalidRequestError(f"fields cannot be stored: {error}") from None
