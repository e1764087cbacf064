"""Pushdown: the time span in which a condition can match, and the values that indexes can look up.

Pure functions. Each result covers every matching event, and may cover others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from aggregator.lql.parse.operand import Column, Field, Timestamp, innermost, resolve_time, target_of
from aggregator.lql.parse.tree import And, Condition, Expression, Name, Not, Or, Range, Value
from aggregator.lql.text.times import NANOS_PER_MICRO

_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Times from `start_us` on, before `end_us`, in microseconds; None is open. Empty unless start < end."""

    start_us: int | None = None
    end_us: int | None = None

    @property
    def empty(self) -> bool:
        """Whether the span contains no time."""
        return self.start_us is not None and self.end_us is not None and self.start_us >= self.end_us

    def __and__(self, other: TimeSpan) -> TimeSpan:
        starts = [start for start in (self.start_us, other.start_us) if start is not None]
        ends = [end for end in (self.end_us, other.end_us) if end is not None]
        return TimeSpan(max(starts, default=None), min(ends, default=None))

    def __or__(self, other: TimeSpan) -> TimeSpan:
        """The shortest span that contains both."""
        if self.empty or other.empty:
            return other if self.empty else self
        open_start = self.start_us is None or other.start_us is None
        open_end = self.end_us is None or other.end_us is None
        return TimeSpan(
            None if open_start else min(self.start_us or 0, other.start_us or 0),
            None if open_end else max(self.end_us or 0, other.end_us or 0),
        )


EVERYTHING = TimeSpan()


def range_span(range_: Range | None, now_ns: int) -> TimeSpan:
    """The span of RANGE, including both of its times, even if they are not whole microseconds. Raises LqlError."""
    if range_ is None:
        return EVERYTHING
    start, end = (
        None if time is None else resolve_time(time.text, now_ns, time.mark) for time in (range_.start, range_.end)
    )
    return TimeSpan(
        None if start is None else -(-start // NANOS_PER_MICRO), None if end is None else end // NANOS_PER_MICRO + 1
    )


def time_span(where: Expression | None, now_ns: int) -> TimeSpan:
    """The span outside of which `where` matches nothing. Raises LqlError."""
    return EVERYTHING if where is None else _span(where, now_ns, negated=False)


def equalities(where: Expression | None) -> dict[str, frozenset[Value]]:
    """Per column or field, the set of values that every matching event must have one of, if `where` implies that.

    A number may have other spellings in a text. Empty values are never included: they also stand for an absent field,
    which no index lists.
    """
    found = {} if where is None else _equal(where, negated=False)
    return {name: values for name, values in found.items() if all(value.text for value in values)}


def _span(where: Expression, now_ns: int, *, negated: bool) -> TimeSpan:
    if isinstance(where, Not):
        return _span(where.term, now_ns, negated=not negated)
    if isinstance(where, And | Or):
        spans = [_span(term, now_ns, negated=negated) for term in where.terms]
        both = isinstance(where, And) != negated
        joined = spans[0]
        for span in spans[1:]:
            joined = joined & span if both else joined | span
        return joined
    if not isinstance(where.operand, Name) or not isinstance(target_of(where.operand), Timestamp):
        return EVERYTHING
    return _compared(where, now_ns, negated=negated)


def _compared(condition: Condition, now_ns: int, *, negated: bool) -> TimeSpan:
    op = _OPPOSITE[condition.op] if negated else condition.op
    nanos = resolve_time(condition.value.text, now_ns, condition.value.mark)
    at_or_after = -(-nanos // NANOS_PER_MICRO)  # the first microsecond that is not before
    after = math.floor(nanos // NANOS_PER_MICRO) + 1  # the first that is later
    return {
        "<": TimeSpan(None, at_or_after),
        "<=": TimeSpan(None, after),
        ">": TimeSpan(after),
        ">=": TimeSpan(at_or_after),
        "=": TimeSpan(at_or_after, after),
        "!=": EVERYTHING,
    }[op]


def _equal(where: Expression, *, negated: bool) -> dict[str, frozenset[Value]]:
    if isinstance(where, Not):
        return _equal(where.term, negated=not negated)
    if isinstance(where, Condition):
        operand, functions = innermost(where.operand)
        target = target_of(operand)
        wanted = "!=" if negated else "="
        if functions or where.op != wanted or not isinstance(target, Column | Field):
            return {}
        return {target.name: frozenset({where.value})}
    maps = [_equal(term, negated=negated) for term in where.terms]
    if isinstance(where, And) != negated:
        joined: dict[str, frozenset[Value]] = {}
        for one in maps:
            for name, values in one.items():
                joined[name] = joined[name] & values if name in joined else values
        return joined
    in_all = set(maps[0]).intersection(*maps[1:])
    return {name: frozenset().union(*(one[name] for one in maps)) for name in in_all}
