"""Detect Python values that a column of some type would store only partly: what Arrow rounds, truncates or omits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

Test: TypeAlias = Callable[[Any], bool]
_BOOLS = (bool, np.bool_)
_WHOLE = (int, str, bytes, type(None), pa.Scalar)  # stored completely or not at all
_ALL_WHOLE = {int, str, bytes, type(None)}
_ALL_FLOAT = {float, int, type(None)}
_LARGEST_SIGNED = (1 << 63) - 1
_FLOATS = (float, Decimal, np.floating)
_STEP_US = {"s": 1_000_000, "ms": 1_000}
_TIMES = ((pt.is_timestamp, dt.datetime), (pt.is_date, dt.date), (pt.is_time, dt.time), (pt.is_duration, dt.timedelta))
_ANY_TIME = (type(None), pa.Scalar, np.datetime64, np.timedelta64)
_MISREAD = ("double", "float", "struct", "date", "time", "duration")
"""Names of types in which Arrow may misread values, as they appear in the names of nested types."""


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Like `pa.array`, but refuses a map whose list of pairs contains null, with which `pa.array` ends the process.

    Raises what `pa.array` raises, and ArrowInvalid for such a list.
    """
    if "map<" in str(kind) and any(_has_null_pair(value, kind) for value in values):
        raise pa.ArrowInvalid("a map entry must be a pair of key and value, not null")
    return pa.array(values, kind)


def _has_null_pair(value: Any, kind: pa.DataType) -> bool:
    if value is None or isinstance(value, pa.Scalar) or not pt.is_nested(kind):
        return False
    if pt.is_struct(kind):
        members = dict(value)
        return any(_has_null_pair(members.get(field.name), field.type) for field in kind)
    if not pt.is_map(kind):
        return any(_has_null_pair(item, kind.value_type) for item in value)
    pairs = list(value.items() if isinstance(value, Mapping) else value)
    return None in pairs or any(_has_null_pair(item, kind.item_type) for _, item in pairs)


def first_cut(values: Sequence[Any], kind: pa.DataType) -> Any:
    """The first of some values that loses something in a type, as tested by `losing`; None if none does."""
    if not pt.is_nested(kind) and _ALL_WHOLE.issuperset(map(type, values)):
        return None
    return next(filter(losing(kind), values), None)


def losing(kind: pa.DataType) -> Test:
    """A test of whether Arrow accepts a Python value for a type but drops part of it, such as half of 1.5 for an
    integer.

    It must be called with values that `pa.scalar` accepts for that type. Floats may be rounded to narrower ones.
    """
    return _test_of(kind, strict=False)


def are_misread(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Whether Arrow misreads some of the values: booleans as numbers, numbers as times, a datetime as its date, pairs
    as a struct; or drops part of one. Times without a zone are UTC.
    """
    if pt.is_floating(kind):
        return not _ALL_FLOAT.issuperset(map(type, values)) and any(map(_is_no_float, values))
    if pt.is_nested(kind):
        inner = str(kind)
        if not any(name in inner for name in _MISREAD):
            return False
    elif not pt.is_temporal(kind):
        return False
    return any(map(_test_of(kind, strict=True), values))


@lru_cache(maxsize=1 << 12)
def _test_of(kind: pa.DataType, *, strict: bool) -> Test:
    """A test for values that a type would store only in part; strict: also those that Arrow misreads."""
    if pt.is_struct(kind):
        return _test_of_structs({field.name: _test_of(field.type, strict=strict) for field in kind}, strict=strict)
    if pt.is_map(kind):
        return _test_of_maps(_test_of(kind.key_type, strict=strict), _test_of(kind.item_type, strict=strict))
    if pt.is_nested(kind):
        return _test_of_lists(_test_of(kind.value_type, strict=strict))
    if pt.is_boolean(kind):
        return lambda value: False
    if pt.is_temporal(kind):
        return _test_of_times(kind, strict=strict)
    if pt.is_floating(kind):
        return _is_no_float
    return _is_no_integer if pt.is_integer(kind) else _is_truth


def _is_truth(value: Any) -> bool:
    return isinstance(value, _BOOLS)  # true is not 1


def _is_no_float(value: Any) -> bool:
    """Also for NumPy's unsigned numbers beyond 63 bits, which Arrow takes for signed ones: 2⁶⁴ - 1 for -1."""
    return isinstance(value, _BOOLS) or (isinstance(value, np.unsignedinteger) and bool(value > _LARGEST_SIGNED))


def _is_no_integer(value: Any) -> bool:
    return isinstance(value, _BOOLS) or (isinstance(value, _FLOATS) and bool(value != int(value)))


def _test_of_structs(tests: Mapping[str, Test], *, strict: bool) -> Test:
    def test(value: Any) -> bool:
        if not isinstance(value, Mapping):
            if value is None or isinstance(value, pa.Scalar):
                return False
            if strict or isinstance(value, _BOOLS):
                return True
            value = dict(value)
        for name, member in value.items():
            of_member = tests.get(name)
            if of_member is None or of_member(member):
                return True
        return False

    return test


def _test_of_maps(of_keys: Test, of_items: Test) -> Test:
    def test(value: Any) -> bool:
        if value is None or isinstance(value, (*_BOOLS, pa.Scalar)):
            return isinstance(value, _BOOLS)
        pairs = value.items() if isinstance(value, Mapping) else value
        return any(of_keys(key) or of_items(item) for key, item in pairs)

    return test


def _test_of_lists(of_items: Test) -> Test:
    """A test for lists of all kinds; text is not a list of characters."""

    def test(value: Any) -> bool:
        if value is None or isinstance(value, pa.Scalar):
            return False
        return isinstance(value, (*_BOOLS, str, bytes, bytearray)) or any(map(of_items, value))

    return test


def _test_of_times(kind: pa.DataType, *, strict: bool) -> Test:
    unit = "ns" if pt.is_date(kind) or pt.is_interval(kind) else kind.unit
    step_us, is_date = _STEP_US.get(unit, 1), pt.is_date(kind)
    mine = tuple(of_python for of_kind, of_python in _TIMES if of_kind(kind)) if strict else ()

    def test(value: Any) -> bool:
        if mine and not isinstance(value, (*mine, *_ANY_TIME)):
            return True
        if isinstance(value, _BOOLS):
            return True
        if isinstance(value, _WHOLE):
            return False
        if isinstance(value, _FLOATS):
            return bool(value != int(value))
        if is_date:
            return isinstance(value, dt.datetime) and value.time() != dt.time()
        nanos = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)  # of pandas' times
        micros = getattr(value, "microsecond", 0) or getattr(value, "microseconds", 0)
        return bool((nanos and unit != "ns") or micros % step_us)

    return test
