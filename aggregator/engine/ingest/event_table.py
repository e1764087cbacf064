"""Appended rows as Arrow tables: tables are not changed, events and mappings become columns of the topic's types."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from aggregator.base.common_type import Known, common_type, in_common_type, magnitudes_of, takes
from aggregator.base.names import is_unicode
from esformat import Event, InvalidEventError
from esformat.parts import (
    EventSchema,
    are_misread,
    array_of,
    first_cut,
    is_binary,
    normalise_type,
    plain_array,
    to_arrow,
    to_microseconds,
)

Rows = list[dict[str, Any]]


_ALIKE = (
    pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_timestamp, pt.is_time, pt.is_duration, pt.is_nested, is_binary,
)  # fmt: skip
"""Kinds of types that Python values distinguish. The column decides about width, unit and zone."""
_UNFIT = (pa.ArrowException, UnicodeError, OverflowError, TypeError, ValueError)
_NULLS_OF_PANDAS = ("NaTType", "NAType")  # Arrow takes these for null only in pandas' own frames


def as_arrow_or_rows(given: Any) -> pa.Table | pa.RecordBatch | Rows:
    """Tables, batches and anything with the Arrow C stream as Arrow; events and mappings as rows, iterated once.

    Raises InvalidEventError.
    """
    if isinstance(given, pa.RecordBatch | pa.Table):
        return given
    if isinstance(given, Event):
        given = [given]
    if hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__"):
        return to_arrow(given)
    if isinstance(given, Mapping | str | bytes) or not isinstance(given, Iterable):
        raise InvalidEventError(
            f"cannot read events from {type(given).__name__}",
            hint="pass a list of events: [{…}], a pyarrow table, or anything with __arrow_c_stream__ (pandas …)",
        )
    return [_row(event, number) for number, event in enumerate(given)]


def to_table(
    events: pa.Table | pa.RecordBatch | Rows, binary_keys: bool, families: Sequence[EventSchema] = ()
) -> pa.Table | pa.RecordBatch:
    """Convert what `as_arrow_or_rows` returns. families: the newest schemas of a topic, for the types of rows.

    Raises InvalidEventError.
    """
    return _of_rows(events, binary_keys, families) if isinstance(events, list) else events


def _row(event: Any, number: int) -> dict[str, Any]:
    if isinstance(event, Event):
        row: dict[str, Any] = {"space": event.space, "grouping": event.grouping, "timestamp": event.timestamp}
        if event.data is not None:
            row["data"] = event.data
        return row | event.indexes | event.columns
    if not isinstance(event, Mapping):
        raise InvalidEventError(
            f"event {number} is of type {type(event).__name__}", hint="pass esformat.Event, mappings, or a table"
        )
    row = dict(event)
    wrong = next((name for name in row if not isinstance(name, str)), None)
    if wrong is not None:
        raise InvalidEventError(f"event {number} has a column named {wrong!r}", hint="column names must be text")
    for name in ("space", "timestamp"):
        if name not in row:
            raise InvalidEventError(f"event {number} has no {name!r}")
    row["timestamp"] = to_microseconds(row["timestamp"])
    return row


def _of_rows(rows: Rows, binary_keys: bool, families: Sequence[EventSchema]) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    unencodable = next((name for name in names if not is_unicode(name)), None)
    if unencodable is not None:
        raise InvalidEventError(f"column {unencodable!r} cannot be stored: its name is not Unicode text")
    kinds = {"timestamp": pa.int64()} | dict.fromkeys(("space", "grouping"), pa.binary() if binary_keys else None)
    empty: Any = {"grouping": b"" if binary_keys else ""}
    columns: dict[str, list[Any]] = {
        name: [row.get(name, empty.get(name)) for row in rows] for name in (names if rows else ["space", "timestamp"])
    }
    plain: dict[str, pa.Array] = {}
    wrong: dict[str, Exception] = {}
    for name, values in columns.items():
        kind = kinds.get(name) or (None if rows else pa.string())
        try:
            plain[name] = _inferred(values) if kind is None else pa.array(values, kind)
        except _UNFIT as error:
            columns[name] = [None if type(value).__name__ in _NULLS_OF_PANDAS else value for value in values]
            try:
                plain[name] = _inferred(columns[name]) if kind is None else pa.array(columns[name], kind)
            except _UNFIT:
                wrong[name] = error
    fitted = _fitted(columns, plain, families)
    if fitted is not None:
        return pa.table(fitted)
    for name, reason in wrong.items():
        types = [family.arrow.field(name).type for family in families if name in family.positions]
        array = next((found for kind in types if (found := _exactly(columns[name], kind, None)) is not None), None)
        if array is None:
            array = None if name in kinds else _of_all_kinds(columns[name])
        if array is None:
            raise _unfit(name, columns[name], reason)
        plain[name] = array
    return pa.table({name: plain[name] for name in columns})


def _inferred(values: list[Any]) -> pa.Array:
    """Values in the type that Arrow infers. Times get a zone if one has it, and nanoseconds if one needs them.

    Raises TypeError if Arrow misreads a value, and everything that Arrow raises.
    """
    types = set(map(type, values))
    if np.datetime64 in types and any(issubclass(each, np.generic) for each in types - {np.datetime64}):
        raise TypeError("its values have several types")  # for which `pa.array` may end the process
    array = pa.array(values)
    kind = array.type
    if pt.is_timestamp(kind) and any(isinstance(value, dt.datetime) and value.tzinfo is not None for value in values):
        kind = pa.timestamp(kind.unit, kind.tz or "UTC")
    if (pt.is_timestamp(kind) or pt.is_duration(kind)) and first_cut(values, kind) is not None:
        kind = pa.timestamp("ns", kind.tz) if pt.is_timestamp(kind) else pa.duration("ns")
    if kind != array.type:
        array = pa.array(values, kind)
    if are_misread(values, kind):
        raise TypeError("its values have several types")
    return array


def _of_all_kinds(values: list[Any]) -> pa.Array | None:
    """Values of several kinds, in the common type in which a topic would return them if they had arrived separately."""
    parts: dict[pa.DataType, list[int]] = {}
    written = []
    for row, value in enumerate(values):
        try:
            array = _inferred([value])
            array = plain_array(array, normalise_type(array.type))  # a UUID is its bytes
        except (pa.ArrowException, UnicodeError, OverflowError, TypeError, ValueError):
            array = _as_json(value) if isinstance(value, dict | list) else None  # whose parts are of several kinds
            if array is None:
                return None
        parts.setdefault(array.type, []).append(row)
        written.append(array)
    known: Known = (pa.null(), 0)
    for kind, rows in parts.items():
        mine = (kind, magnitudes_of(pa.table({"": pa.concat_arrays([written[row] for row in rows])})).get("", 0))
        common = common_type(known, mine)
        if common is None:
            return None
        known = common, max(known[1], mine[1])
    return pa.concat_arrays([in_common_type(array, known[0]) for array in written])


def _as_json(value: Any) -> pa.Array | None:
    """A value as JSON; None for values that do not survive JSON, such as pairs, which may be meant for a map."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return pa.array([text], pa.string()) if json.loads(text) == value else None
    except (TypeError, ValueError, RecursionError):
        return None


def _unfit(name: str, values: list[Any], reason: Exception) -> InvalidEventError:
    """The error for a column that cannot be stored. For numbers that are too large, Arrow only speaks of C's types."""
    large = next(
        (row for row, value in enumerate(values) if type(value) is int and not -(2**63) <= value < 2**63), None
    )
    if not isinstance(reason, OverflowError) or large is None:
        return InvalidEventError(f"column {name!r} cannot be stored: {reason}")
    bits = values[large].bit_length()
    return InvalidEventError(
        f"column {name!r} cannot be stored: the whole number of event {large} has {bits} bits, more than 63 and a sign",
        hint="use decimal.Decimal or text, or a table with a uint64 column",
    )


def _fitted(
    columns: Mapping[str, list[Any]], plain: dict[str, pa.Array], families: Sequence[EventSchema]
) -> dict[str, pa.Array] | None:
    """The columns in types that a family accepts, unchanged if a family accepts them so; None if no family does."""
    others = [(family, _of_other_types(family, columns, plain)) for family in families]
    if any(names == [] for _, names in others):
        return plain
    for family, names in others:
        if names is None:
            continue
        arrays = {name: _exactly(columns[name], family.arrow.field(name).type, plain.get(name)) for name in names}
        if all(array is not None for array in arrays.values()):
            return {name: arrays.get(name, plain.get(name)) for name in columns}
    return None


def _of_other_types(
    family: EventSchema, columns: Mapping[str, list[Any]], plain: dict[str, pa.Array]
) -> list[str] | None:
    """Columns whose types the family does not accept; None if a column has no type and the family lacks it."""
    found = []
    for name in columns:
        if name in family.positions:
            if name not in plain or not takes(family.arrow.field(name).type, (plain[name].type, 0)):
                found.append(name)
        elif name not in plain:
            return None
    return found


def _exactly(values: list[Any], kind: pa.DataType, plain: pa.Array | None) -> pa.Array | None:
    """The values in the type `kind`, if it is of the same kind as their own and that loses nothing; else None."""
    if plain is not None and not any(alike(kind) and alike(plain.type) for alike in _ALIKE):
        return None
    try:
        array = array_of(values, kind)
        return array if first_cut(values, kind) is None and not are_misread(values, kind) else None
    except (pa.ArrowException, UnicodeError, OverflowError, TypeError, ValueError):
        return None
