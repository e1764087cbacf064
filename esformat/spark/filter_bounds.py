"""Translation of Spark's filters to bounds on the columns by which segments find events.

Bounds may admit more than the filters, because Spark applies every filter again to the rows. So an unknown filter costs
time but never changes results.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import pyarrow.types as pt
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from esformat.event import to_microseconds
from esformat.format.schema import EventSchema
from esformat.read.ask.bounds import NOTHING, UNBOUNDED, Bounds, Domain, admits_nothing
from esformat.spark.condition import AnyOf

_AFTER: dict[str, Callable[[Any], Any]] = {
    "space": lambda key: key + b"\0",
    "grouping": lambda key: key + b"\0",
    "timestamp": lambda moment: moment + 1,
}
"""The columns that are found by ranges, with functions that return the next larger value."""
_NONE: Domain = Domain(frozenset())


def bounds_of_filters(filters: Iterable[Filter], schema: EventSchema) -> Bounds:
    """Return the bounds of space, grouping, timestamp and indexed columns that all filters imply."""
    met = reduce(_meet, (_bounds(each, schema) for each in filters), UNBOUNDED)
    return NOTHING if admits_nothing(met) else met


def _meet(one: Bounds, two: Bounds) -> Bounds:
    return {**one, **{name: domain.meet(one[name]) if name in one else domain for name, domain in two.items()}}


def _join(one: Bounds, two: Bounds) -> Bounds:
    """Return bounds that admit everything that either operand admits."""
    if admits_nothing(one) or admits_nothing(two):
        return two if admits_nothing(one) else one
    joined = {}
    for name in one.keys() & two.keys():
        domain = one[name].join(two[name], _AFTER.get(name, lambda value: value))
        if name in _AFTER or domain.listed is not None:
            joined[name] = domain
    return joined


def _bounds(filter: Filter, schema: EventSchema) -> Bounds:
    if isinstance(filter, AnyOf):
        return reduce(_join, (bounds_of_filters(option, schema) for option in filter.options))
    attribute: tuple[str, ...] = getattr(filter, "attribute", ())
    if len(attribute) != 1:
        return UNBOUNDED  # a field of a struct, or not a column
    name = attribute[0]
    if name in ("space", "grouping"):
        domain = _domain(filter, _key, _AFTER[name])
    elif name == "timestamp":
        domain = _domain(filter, _moment, _AFTER[name])
    elif name in schema.indexes:
        kind = schema.fields[schema.positions[name]].type
        domain = _domain(filter, _checked(bool if pt.is_boolean(kind) else int if pt.is_integer(kind) else str), None)
    else:
        return UNBOUNDED
    return UNBOUNDED if domain is None else {name: domain}


def _domain(filter: Filter, convert: Callable[[Any], Any], after: Callable[[Any], Any] | None) -> Domain | None:
    """The values that a filter on a column admits; None if unknown. after: returns the next larger value.

    Without `after`, the segment finds only single values.
    """
    value = getattr(filter, "value", None)
    try:
        match filter:
            case EqualTo():
                return _NONE if value is None else Domain(frozenset([convert(value)]))
            case EqualNullSafe() if value is not None:
                return Domain(frozenset([convert(value)]))
            case In():
                return Domain(frozenset(convert(each) for each in filter.value if each is not None))
            case _ if after is None or value is None:
                return None
            case GreaterThan():
                return Domain(None, after(convert(value)), None)
            case GreaterThanOrEqual():
                return Domain(None, convert(value), None)
            case LessThan():
                return Domain(None, None, convert(value))
            case LessThanOrEqual():
                return Domain(None, None, after(convert(value)))
            case StringStartsWith():
                return _beginning_with(convert(value))
    except TypeError:  # a constant of another type: only Spark knows how it compares
        return None
    return None


def _key(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    raise TypeError


def _moment(value: Any) -> int:
    if not isinstance(value, dt.datetime) or value.tzinfo is None:
        raise TypeError
    return to_microseconds(value)


def _checked(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError
        return value

    return check


def _beginning_with(prefix: Any) -> Domain | None:
    if not isinstance(prefix, bytes):
        return None
    short = prefix.rstrip(b"\xff")
    return Domain(None, prefix, short[:-1] + bytes([short[-1] + 1]) if short else None)
