"""Query `.esdb` files with Polars: a lazy frame that reads only the columns and events that a query needs."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from functools import cache, reduce
from operator import and_, eq, ge, gt, le, lt, or_
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from polars.io.plugins import register_io_source

from esformat.format.arrays import TextForm
from esformat.format.json_values import texts_around
from esformat.format.retyped import inner_types, retyped
from esformat.format.schema import KEY_COLUMNS, ROW_COUNT_COLUMNS
from esformat.io.location import Options
from esformat.read.ask.arrow_filter import take_apart
from esformat.read.ask.bounds import UNBOUNDED, Bounded, bounded_by
from esformat.read.collection.collection import Collection, open_many
from esformat.read.dataset import Events, SegmentEvents
from esformat.read.segment import Segment

__all__ = ["scan_esdb"]

_COMPARED: dict[str, Callable[[Any, Any], Any]] = {"Eq": eq, "Lt": lt, "LtEq": le, "Gt": gt, "GtEq": ge}
_UNITS = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}
_BETWEEN = {"Both": (ge, le), "Left": (ge, lt), "Right": (gt, le), "None": (gt, lt)}


def scan_esdb(source: Any, *, storage_options: Options = None) -> pl.LazyFrame:
    """The events of files as a lazy frame.

    source: whatever `esformat.open_many` takes; or an open segment or collection, which must then stay open while the
    frame is used. storage_options: as for `esformat.open_many`.
    The columns selected, `head`, and conditions on space, grouping, timestamp and indexed columns limit what is read.
    Texts that conditions on payloads and other columns require are first looked up in their coded form, so payloads
    that are no UTF-8, for which a cast to text would fail, may be left out.
    Columns of types that Polars lacks are converted to other types, such as calendar intervals to text.
    The frame can be pickled, as segments and collections can.
    Raises what `esformat.open_many` raises.
    """
    opened = source if isinstance(source, Segment | Collection) else open_many(source, storage_options=storage_options)
    frames = _Frames(opened)
    return register_io_source(frames, schema=frames.schema, is_pure=True)


class _Frames:
    """The events of open files as Polars asks for them. A pickle names the files, which are opened again."""

    def __init__(self, opened: Segment | Collection) -> None:
        self._opened = opened
        events = (
            SegmentEvents(opened._reader, TextForm.VIEWS) if isinstance(opened, Segment) else opened.dataset().events
        )
        self._known = {*KEY_COLUMNS, *opened.indexes}
        self._events = retyped(events, _polars_type)
        self.schema = pl.DataFrame(self._events.arrow.empty_table()).schema

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._opened,)

    def __call__(
        self, columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        """Yield frames of some columns, with the first `rows` events, of which those that satisfy the predicate."""
        names = list(self.schema) if columns is None else columns
        # Polars passes both a row count and a predicate if the rows are counted before filtering: `head(5).filter(…)`
        bounded = _bounds_of(predicate if rows is None else None, self._known, self._events)
        left = None if bounded.exact and rows is None else predicate
        texts = {} if left is None or rows is not None else required_texts_of(left, self._known)
        candidates = self._events.requiring(texts) if texts else self._events
        needed = names if left is None else list(dict.fromkeys([*names, *left.meta.root_names()]))
        for batch in candidates.batches(bounded.bounds, needed or ROW_COUNT_COLUMNS, lazily=rows is not None):
            frame = pl.DataFrame(batch)
            if rows is not None:
                frame = frame.head(rows)
                rows -= frame.height
            frame = frame if left is None else frame.filter(left)
            yield frame if frame.columns == names else frame.select(names)
            if rows == 0:
                return


def _polars_type(kind: pa.DataType) -> pa.DataType:
    """The type in which Polars can read values of a type."""
    return pa.string() if _has_interval(kind) else inner_types(kind, _leaf_type)


def _has_interval(kind: pa.DataType) -> bool:
    within = (kind.field(place).type for place in range(kind.num_fields))
    return pt.is_interval(kind) or any(map(_has_interval, within))


def _leaf_type(kind: pa.DataType) -> pa.DataType:
    if pt.is_fixed_size_binary(kind):  # Polars rejects those of 0 bytes
        return pa.binary()
    if pt.is_duration(kind) and kind.unit == "s":  # Polars has milliseconds, and does not check for overflow
        return pa.duration("ms")
    if pt.is_timestamp(kind):
        return pa.timestamp("ms" if kind.unit == "s" else kind.unit, kind.tz and _zone(kind.tz))
    return kind


@cache
def _zone(name: str) -> str:
    """The time zone of this name if Polars knows it, else UTC."""
    try:
        pl.Series([], dtype=pl.Datetime).dt.replace_time_zone(name)
    except pl.exceptions.ComputeError:  # such as +05:30
        return "UTC"
    return name


def _bounds_of(predicate: pl.Expr | None, known: set[str], events: Events) -> Bounded:
    """The bounds that a predicate sets on the columns that events are found by, and whether they are exact."""
    if predicate is None:
        return Bounded(UNBOUNDED, exact=True)
    understood = filter_of(predicate, known)
    steps = None if understood.filter is None else take_apart(understood.filter)
    if steps is None:
        return Bounded(UNBOUNDED, exact=False)
    bounded = bounded_by(steps, events.schema)
    return Bounded(bounded.bounds, understood.whole and bounded.exact and events.gives_exactly(bounded.bounds))


class Understood(NamedTuple):
    """The part of a predicate that was understood."""

    filter: pc.Expression | None
    """True of every event that satisfies the predicate; None if nothing was understood."""
    whole: bool
    """Whether the predicate is true of every event that satisfies the filter."""


def filter_of(predicate: pl.Expr, known: set[str]) -> Understood:
    """The conditions of a predicate on known columns, as a pyarrow filter.

    known: no floating-point columns, because pyarrow compares floats differently.
    """
    try:
        return _understood(json.loads(predicate.meta.serialize(format="json")), known)
    except (pl.exceptions.PolarsError, ValueError):
        return Understood(None, False)  # e.g. a Python function, which has no JSON form


def _understood(node: Any, known: set[str]) -> Understood:
    match node:
        case {"BinaryExpr": {"op": "And" | "Or" as op, "left": left, "right": right}}:
            sides = [_understood(side, known) for side in (left, right)]
            found = [side.filter for side in sides if side.filter is not None]
            if not found or (op == "Or" and len(found) < len(sides)):
                return Understood(None, False)
            return Understood(reduce(and_ if op == "And" else or_, found), all(side.whole for side in sides))
        case {"BinaryExpr": facts}:
            found_by = _compared(facts, known)
        case {"Function": facts}:
            found_by = _function(facts, known)
        case _:
            found_by = None
    return Understood(found_by, found_by is not None)


def _compared(facts: Any, known: set[str]) -> pc.Expression | None:
    op, left, right = facts["op"], facts["left"], facts["right"]
    column, value = _column(left, known), _value(right)
    if op not in _COMPARED or column is None or value is None:
        return None
    found_by: pc.Expression = _COMPARED[op](column, value)
    return found_by


def _function(facts: Any, known: set[str]) -> pc.Expression | None:
    column, values = _column(facts["input"][0], known), facts["input"][1:]
    if column is None:
        return None
    match facts["function"]:
        case {"StringExpr": "StartsWith"}:
            prefix = _value(values[0])
            return None if prefix is None else pc.starts_with(column, prefix.as_py())
        case {"Boolean": {"IsBetween": {"closed": closed}}}:
            low, high = map(_value, values)
            above, below = _BETWEEN[closed]
            return None if low is None or high is None else above(column, low) & below(column, high)
        case {"Boolean": {"IsIn": _}}:
            listed = _listed(values[0])
            return None if listed is None else column.isin(listed)
    return None


def required_texts_of(predicate: pl.Expr, known: set[str]) -> dict[str, list[tuple[bytes, ...]]]:
    """By column, lists of texts: wherever the predicate is true, the value contains at least one text of each list.

    known: columns to leave out, because events are found by their values.
    """
    try:
        found = _required_texts(json.loads(predicate.meta.serialize(format="json")))
    except (pl.exceptions.PolarsError, ValueError):
        return {}  # as in `filter_of`
    return {name: lists for name, lists in found.items() if name not in known}


def _required_texts(node: Any) -> dict[str, list[tuple[bytes, ...]]]:
    match node:
        case {"BinaryExpr": {"op": "And", "left": left, "right": right}}:
            found = _required_texts(left)
            for name, lists in _required_texts(right).items():
                found.setdefault(name, []).extend(lists)
            return found
        case {
            "BinaryExpr": {"op": "Eq", "left": {"Function": {"input": [subject, _], "function": called}}, "right": to}
        }:
            text = _literal_text(to) if called == {"StringExpr": "JsonPathMatch"} else None
            texts = texts_around(text.decode()) if text else ()
        case {"BinaryExpr": {"op": "Eq", "left": subject, "right": to}}:
            texts = (text,) if (text := _literal_text(to)) else ()
        case {"Function": {"input": [subject, within], "function": {"StringExpr": kind} | {"BinaryExpr": kind}}}:
            text = _literal_text(within)
            texts = (text,) if text and _finds(kind, text) else ()
        case _:
            return {}
    match subject:
        case {"Column": str(name)} | {"Cast": {"expr": {"Column": str(name)}, "dtype": {"Literal": "String"}}} if texts:
            return {name: [texts]}
    return {}


def _literal_text(node: Any) -> bytes | None:
    """A constant that is text or bytes; None for others."""
    match node:
        case {"Literal": {"Scalar": {"String": str(text)}}}:
            return text.encode()
        case {"Literal": {"Scalar": {"Binary": list(stored)}}}:
            return bytes(stored)
    return None


def _finds(kind: Any, text: bytes) -> bool:
    """Whether a function of this kind is true only of values that contain the text."""
    match kind:
        case "StartsWith" | "EndsWith" | "Contains" | {"Contains": {"literal": True}}:
            return True
        case {"Contains": {"literal": False}}:
            return re.escape(text) == text  # a regular expression that stands for itself
    return False


def _column(node: Any, known: set[str]) -> pc.Expression | None:
    match node:
        case {"Column": str(name)} if name in known:
            return pc.field(name)
    return None


def _value(node: Any) -> pa.Scalar | None:
    """A constant that is text, an integer, a boolean or a time with a zone; None for others."""
    match node:
        case {"Literal": {"Scalar": {"String": str(text)}}}:
            return pa.scalar(text)
        case {"Literal": {"Scalar": {"Datetime": [int(time), str(unit), {"inner": str(zone)}]}}}:
            return pa.scalar(time, pa.timestamp(_UNITS[unit], zone))
        case {"Literal": {"Scalar": {"Boolean": bool(truth)}}}:
            return pa.scalar(truth)
        case {"Literal": {"Scalar": dict(held)}} if len(held) == 1 and next(iter(held)).startswith(("Int", "UInt")):
            number = int(next(iter(held.values())))
            return pa.scalar(number) if -(2**63) <= number < 2**63 else None
        case {"Literal": {"Dyn": {"Int": int(number)}}} if -(2**63) <= number < 2**63:
            return pa.scalar(number)
    return None


def _listed(node: Any) -> pa.Array | None:
    """A list of constants, which Polars stores as an Arrow stream."""
    match node:
        case {"Literal": {"Scalar": {"List": list(stored)}}}:
            table = pa.ipc.open_stream(io.BytesIO(bytes(stored))).read_all()
            values = table.column(0).combine_chunks()
            if len(values) == 1 and pa.types.is_list(values.type) | pa.types.is_large_list(values.type):
                values = values.flatten()
            plain = pa.types.is_string_view(values.type) or pa.types.is_large_string(values.type)
            return values.cast(pa.string()) if plain else values
    return None
