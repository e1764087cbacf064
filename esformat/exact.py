"""Values as a column of another type holds them: what Arrow would round, cut short or leave out is told or refused."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_WHOLE = (int, str, bytes)  # are taken as they are, or not at all
_ALL_WHOLE = {*_WHOLE, bool, type(None)}
_STEP_US = {"s": 1_000_000, "ms": 1_000}


def cast_exactly(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> Any:
    """A column in another type. Raises pa.ArrowException where a value is lost, or part of one. What becomes a float is
    the nearest one.
    """
    found = column.cast(kind)
    if pt.is_floating(kind) and pt.is_floating(column.type):
        if kind.bit_width < column.type.bit_width and not pc.is_inf(found.cast(column.type)).equals(pc.is_inf(column)):
            raise pa.ArrowInvalid("a number is too large")
    elif _may_lose(column.type, kind) and not found.cast(column.type).equals(column):
        raise pa.ArrowInvalid("digits of numbers, or members of structs, would be lost")
    return found


def _may_lose(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether Arrow's cast may leave something out silently: digits of floats in decimals, members of structs."""
    if pt.is_floating(given) and pt.is_decimal(kind):
        return True
    if pt.is_struct(given) and pt.is_struct(kind) and not {f.name for f in given} <= {f.name for f in kind}:
        return True
    return any(_may_lose(*pair) for pair in _children(given, kind))


def _children(given: pa.DataType, kind: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]]:
    """The types within two types that are cast to each other."""
    if pt.is_struct(given) and pt.is_struct(kind):
        places = {field.name: field.type for field in given}
        return [(places[field.name], field.type) for field in kind if field.name in places]
    if not (pt.is_nested(given) and pt.is_nested(kind)):
        return []
    pairs = zip(range(given.num_fields), range(kind.num_fields), strict=False)
    return [(given.field(one).type, kind.field(other).type) for one, other in pairs]


def first_cut(values: Sequence[Any], kind: pa.DataType) -> Any:
    """The first of some values that `loses` something in a type; None where none does."""
    if not pt.is_nested(kind) and _ALL_WHOLE.issuperset(map(type, values)):
        return None
    return next((value for value in values if loses(value, kind)), None)


def loses(value: Any, kind: pa.DataType) -> bool:
    """Whether Arrow takes a Python value as one of a type, but leaves part of it out: half of 1.5 among whole numbers.

    value: one that `pa.scalar` makes a scalar of that type of. Floats may be rounded to narrower ones.
    """
    if value is None or isinstance(value, pa.Scalar) or (isinstance(value, _WHOLE) and not pt.is_nested(kind)):
        return False
    if pt.is_struct(kind):
        types = {field.name: field.type for field in kind}
        return any(name not in types or loses(member, types[name]) for name, member in dict(value).items())
    if pt.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return any(loses(key, kind.key_type) or loses(item, kind.item_type) for key, item in pairs)
    if pt.is_nested(kind):  # lists of all sorts; a text is not one of letters
        return isinstance(value, str | bytes | bytearray) or any(loses(item, kind.value_type) for item in value)
    if isinstance(value, float | Decimal | np.floating):
        return (pt.is_integer(kind) or pt.is_temporal(kind)) and value != int(value)
    return pt.is_temporal(kind) and _loses_time(value, kind)


def _loses_time(value: Any, kind: pa.DataType) -> bool:
    if pt.is_date(kind):
        return isinstance(value, dt.datetime) and value.time() != dt.time()
    nanos = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)  # of pandas' times
    micros = getattr(value, "microsecond", 0) or getattr(value, "microseconds", 0)
    unit = "ns" if pt.is_interval(kind) else kind.unit
    return bool((nanos and unit != "ns") or micros % _STEP_US.get(unit, 1))
