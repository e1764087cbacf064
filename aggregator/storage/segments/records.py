"""Convert records of a stream to events: `ts`, `msg` and fields become columns, and a map of the other fields.

No field is refused for its type. A field of a mapping is stored in the topic's column of that name if the column can
hold its value exactly, and otherwise as text in the map `fields`. So senders of log records need not know the types
that somebody else gave the topic, and do not change them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from aggregator import lql
from aggregator.base.written_float import WrittenFloat, json_of
from aggregator.errors import InvalidRequestError
from aggregator.model import RESERVED_COLUMNS
from esformat.parts import are_misread, array_of, first_cut, is_number_of, to_arrow, to_microseconds

FIELDS = "fields"
"""The column for fields without a column of their own."""
MOST_BITS = 10_000
"""Limit for integers that are written in decimal: Python refuses to write more than 4,300 digits."""
FIELD_MAP = pa.map_(pa.string(), pa.string())
STREAM_SCHEMA = pa.schema([pa.field("data", pa.binary()), pa.field(FIELDS, FIELD_MAP)])
"""Payload columns of a topic that is created by a stream's first write."""
OWN_COLUMNS = ("space", "grouping", "timestamp", "data", FIELDS, *RESERVED_COLUMNS)
"""The columns that every record has, or may have, whatever its fields."""

NO_COLUMNS = pa.schema([])
_EXACT_BELOW = 2**53  # up to here floats represent every whole number


def record_columns(schemas: Iterable[pa.Schema], union: pa.Schema) -> pa.Schema:
    """The columns for fields of records, in a topic with these schemas, which are read as `union`.

    Excludes a column that any of the schemas requires to be non-null, because most records lack it; records that have
    such a field keep it as text in `fields`. `fields` itself is included, with its nullability.
    """
    required = {field.name for schema in schemas for field in schema if not field.nullable}
    fields = [field for field in union if field.name not in required and field.name not in OWN_COLUMNS]
    if FIELDS in union.names:
        fields.append(union.field(FIELDS).with_nullable(FIELDS not in required))
    return pa.schema(fields)


def events_of(tags: lql.TagSet, records: Any, columns: pa.Schema, now_us: int) -> pa.Table:
    """Convert records, which are mappings or any Arrow data, to a table for a topic with these `record_columns`. Raises
    InvalidRequestError, esformat.InvalidEventError.
    """
    if isinstance(records, Mapping | str | bytes):
        raise InvalidRequestError(
            "records must be a list of mappings, or a table", hint="pass a single record in a list"
        )
    arrow = hasattr(records, "__arrow_c_stream__") or hasattr(records, "__arrow_c_array__")
    if arrow or isinstance(records, pa.Table | pa.RecordBatch):
        made = _of_table(to_arrow(records), now_us)
    elif isinstance(records, Iterable):
        made = _of_mappings(list(records), columns, now_us)
    else:
        raise InvalidRequestError(f"records must be mappings or a table, not {type(records).__name__}")
    length = len(next(iter(made.values())))
    if FIELDS in columns.names and not columns.field(FIELDS).nullable:
        made[FIELDS] = _without_nulls(made.get(FIELDS), length)
    return pa.table({"space": pa.repeat(pa.scalar(str(tags)), length), **made})


def joined(tables: list[pa.Table]) -> pa.Table:
    """The events of several streams as one table. Raises InvalidRequestError."""
    if len(tables) == 1:
        return tables[0]
    try:
        return pa.concat_tables(tables, promote_options="default").combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidRequestError(f"the streams do not fit together: {error}") from None


# ------------------------------------------------------------ tables


def _of_table(table: pa.Table, now_us: int) -> dict[str, Any]:
    for name in table.column_names:
        if name in OWN_COLUMNS and name != FIELDS:
            raise InvalidRequestError(f"a field cannot be named {name!r}", hint="the time is named ts, the message msg")
    if len(set(table.column_names)) != table.num_columns:
        raise InvalidRequestError("duplicate column name")
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
            f"the column ts is {column.type}", hint="use whole microseconds, or timestamps with a time zone"
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
        raise InvalidRequestError(f"the column msg is {column.type}", hint="a message must be text or bytes") from None


# ------------------------------------------------------------ mappings


def _of_mappings(records: list[Any], columns: pa.Schema, now_us: int) -> dict[str, Any]:
    for place, record in enumerate(records):
        if type(record) is not dict and not isinstance(record, Mapping):  # isinstance is slow
            raise InvalidRequestError(f"record {place} is of type {type(record).__name__}, not a mapping")
    made: dict[str, Any] = {
        "timestamp": pa.array([_time(record.get("ts"), now_us) for record in records], pa.int64()),
        "data": pa.array([_message(record.get("msg"), place) for place, record in enumerate(records)], pa.binary()),
    }
    given = set().union(*records) - {"ts", "msg"}
    typed = given & ({*columns.names} - {FIELDS})
    rest: set[str] = given - typed
    unfit: dict[str, frozenset[int]] = {}
    for name in sorted(typed, key=str):
        column = _column([record.get(name) for record in records], columns.field(name).type, name)
        if column is None:
            rest.add(name)
        else:
            made[name], unfit[name] = column
    if rest or any(unfit.values()):
        made[FIELDS] = _map([_rest(record, unfit, place) for place, record in enumerate(records)])
    return made


def _column(values: list[Any], kind: pa.DataType, name: str) -> tuple[pa.Array, frozenset[int]] | None:
    """The values as an array, null where `kind` cannot hold them, and the rows of those; None if it can hold none."""
    if pt.is_string(kind):
        values = [None if value is None else _text(value, name, place) for place, value in enumerate(values)]
    array = _exactly(values, kind)
    if array is not None:
        return array, frozenset()
    fits: dict[Any, bool] = {}  # most fields have few different values
    unfit = []
    for place, value in enumerate(values):
        try:
            known = fits.get((type(value), value))
        except TypeError:  # not hashable
            known = None
        if known is None:
            known = value is None or _exactly([value], kind) is not None
            if isinstance(value, str | int):
                fits[type(value), value] = known
        if not known:
            unfit.append(place)
    if len(unfit) == len(values):
        return None
    left = frozenset(unfit)
    return pa.array([None if place in left else value for place, value in enumerate(values)], kind), left


def _exactly(values: list[Any], kind: pa.DataType) -> pa.Array | None:
    """The values as an array, if the type holds all of them unchanged; otherwise None."""
    try:
        array = array_of(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None
    kept = first_cut(values, kind) is None and not are_misread(values, kind) and not _are_rounded(values, kind)
    return array if kept else None


def _are_rounded(values: Iterable[Any], kind: pa.DataType) -> bool:
    """Whether Arrow changes one of the values: for example, 0.1 to the nearest 32-bit float, or 1e400 to inf."""
    if pt.is_struct(kind):
        rows = [dict(value) for value in values if value is not None]
        return any(_are_rounded([row.get(field.name) for row in rows], field.type) for field in kind)
    if pt.is_map(kind):
        pairs = [pair for value in values if value is not None for pair in dict(value).items()]
        return any(
            _are_rounded(part, side)
            for part, side in zip(zip(*pairs, strict=True), (kind.key_type, kind.item_type), strict=False)
        )
    if pt.is_nested(kind):
        return _are_rounded([item for value in values if value is not None for item in value], kind.value_type)
    if not pt.is_floating(kind):
        return False
    if any(type(value) is WrittenFloat and _is_another(value) for value in values):
        return True
    narrow: Callable[[Any], Any] | None = {16: np.float16, 32: np.float32}.get(kind.bit_width)
    return narrow is not None and any(_rounded(value, narrow) for value in values)


def _is_another(value: WrittenFloat) -> bool:
    """Whether the float differs from the written number, and is so large that floats skip whole numbers there."""
    return abs(value) >= _EXACT_BELOW and not is_number_of(value, value.text)


def _rounded(value: Any, narrow: Callable[[Any], Any]) -> bool:
    return value is not None and value == value and float(narrow(value)) != value


def _time(given: Any, now_us: int) -> int:
    if type(given) is int and -(2**63) <= given < 2**63:
        return given
    return now_us if given is None else to_microseconds(given, "ts")


def _message(given: Any, place: int) -> bytes:
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise InvalidRequestError(f"msg of record {place} is not Unicode text") from None
    if given is None or isinstance(given, bytes):
        return given or b""
    raise InvalidRequestError(
        f"msg of record {place} is of type {type(given).__name__}", hint="a message must be text or bytes"
    )


def _rest(record: Mapping[Any, Any], unfit: Mapping[str, frozenset[int]], place: int) -> list[tuple[str, str]]:
    """The fields of a record that are not in columns. unfit: by column, the rows whose values it cannot hold."""
    return [
        (name if type(name) is str else _name(name, place), value if type(value) is str else _text(value, name, place))
        for name, value in record.items()
        if name not in ("ts", "msg") and value is not None and (name not in unfit or place in unfit[name])
    ]


def _name(name: Any, place: int) -> str:
    if isinstance(name, str):
        return name
    raise InvalidRequestError(f"record {place} has a field whose name is of type {type(name).__name__}, not text")


def _text(value: Any, name: str, place: int) -> str:
    """A field as text, in the form that LQL compares."""
    if type(value) is int and -(2**63) <= value < 2**63:  # the most common first
        return str(value)
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
        if isinstance(value, dt.date | dt.time):
            return value.isoformat()
        if isinstance(value, list | tuple | Mapping):
            return json_of(value)
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            return hex(value)
        if isinstance(value, int | float | Decimal | dt.timedelta | np.number):
            return str(value)
    except (UnicodeError, TypeError, ValueError, RecursionError):
        pass
    raise InvalidRequestError(
        f"field {name!r} of record {place} is of type {type(value).__name__}, which has no text form",
        hint="use text, numbers, booleans, times, lists or mappings",
    )


def _map(rows: list[list[tuple[str, str]]]) -> pa.Array:
    """Rows of names and values as a map column; null if a record has none."""
    try:
        return pa.array([row or None for row in rows], FIELD_MAP)
    except (pa.ArrowException, UnicodeError) as error:
        raise InvalidRequestError(f"fields cannot be stored: {error}") from None


def _without_nulls(maps: Any, length: int) -> Any:
    """A column of maps with nulls, or a missing column, replaced by empty maps."""
    rows = [None] * length if maps is None else maps.to_pylist()
    return pa.array([row or [] for row in rows], FIELD_MAP)
