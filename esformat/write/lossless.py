"""Python values that a column of some type would hold in part only: what Arrow rounds, cuts short or leaves out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

_WHOLE = (int, str, bytes)  # are taken as they are, or not at all
_ALL_WHOLE = {*_WHOLE, type(None)}
_STEP_US = {"s": 1_000_000, "ms": 1_000}
_TIMES = ((pt.is_timestamp, dt.datetime), (pt.is_date, dt.date), (pt.is_time, dt.time), (pt.is_duration, dt.timedelta))
_MISREAD = ("double", "float", "struct", "date", "time", "duration")
"""In the names of nested types that Arrow may take values for which they are not."""


def first_cut(values: Sequence[Any], kind: pa.DataType) -> Any:
    """The first of some values that `loses` something in a type; None where none does."""
    if pt.is_boolean(kind) or (not pt.is_nested(kind) and _ALL_WHOLE.issuperset(map(type, values))):
        return None
    return next((value for value in values if loses(value, kind)), None)


def loses(value: Any, kind: pa.DataType) -> bool:
    """Whether Arrow takes a Python value as one of a type, but leaves part of it out: half of 1.5 among whole numbers.

    value: one that `pa.scalar` makes a scalar of that type of. Floats may be rounded to narrower ones.
    """
    if isinstance(value, bool | np.bool_):  # true is no 1
        return not pt.is_boolean(kind)
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


def are_misread(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Whether Arrow takes some of the values for what they are not: truth values for numbers, numbers for times, a
    moment for its day, pairs for an object; or leaves part of one out. Times without a zone are UTC.
    """
    if pt.is_floating(kind):
        return not {bool, np.bool_}.isdisjoint(map(type, values))
    if pt.is_nested(kind):
        inner = str(kind)
        if not any(name in inner for name in _MISREAD):
            return False
    elif not pt.is_temporal(kind):
        return False
    return first_cut(values, kind) is not None or any(_is_misread(value, kind) for value in values)


def _is_misread(value: Any, kind: pa.DataType) -> bool:
    if value is None or isinstance(value, pa.Scalar | np.datetime64 | np.timedelta64):
        return False
    if pt.is_struct(kind):
        if not isinstance(value, Mapping):
            return True
        return any(_is_misread(value.get(field.name), field.type) for field in kind)
    if pt.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return any(_is_misread(key, kind.key_type) or _is_misread(item, kind.item_type) for key, item in pairs)
    if pt.is_nested(kind):
        parts = kind.value_type
        return (pt.is_nested(parts) or pt.is_temporal(parts)) and any(_is_misread(item, parts) for item in value)
    return any(of_kind(kind) and not isinstance(value, of_python) for of_kind, of_python in _TIMES)
