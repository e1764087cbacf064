"""Statements narrowed by a caller: to a time range, to the newest records first, by one more condition. No HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from aggregator import InvalidRequestError
from aggregator.lql import LqlError, parse_where
from aggregator.lql.parse.tree import Not, Select, all_of
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.times import TIME_UNITS, TimeReader
from esformat import InvalidEventError

Between = tuple[int | None, int | None]
"""A time range [start, end) in µs; None: unbounded."""
_WHEN: dict[str, Any] = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": ["integer", "null"]}]}
BETWEEN: Mapping[str, Any] = {
    "start": _WHEN,
    "end": _WHEN,
    "time_unit": {"enum": [*TIME_UNITS, None]},
}
"""Members of a request body that narrow a SELECT to a time range."""


def read_between(members: Mapping[str, Any]) -> Between:
    """Return the time range in a request body. Raises ProblemError (400)."""
    unit = members.get("time_unit")
    if unit is not None and unit not in TIME_UNITS:
        raise _wrong(f"time_unit is {str(unit)[:40]!r}", f"expected one of {', '.join(TIME_UNITS)}")
    return _time(members.get("start"), "start", unit), _time(members.get("end"), "end", unit)


def _time(given: Any, name: str, unit: str | None) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, str | int) or (isinstance(given, int) and abs(given) >= 2**63):
        raise _wrong(f"{name} must be a time", "send ISO 8601 text, or a whole number since 1970")
    if unit == "us" and isinstance(given, int):
        return given  # any value that events can have, even beyond the calendar's years
    try:
        return TimeReader(unit).read(given, name, up=True)
    except InvalidEventError as error:
        raise _wrong(error.message, "such as 2026-03-01T08:00:00Z") from None


def _wrong(detail: str, hint: str) -> ProblemError:
    return ProblemError(400, "invalid-parameter", detail, hint)


def newest_first(select: Select) -> Select:
    """Return the statement with its newest records first; a statement that counts is unchanged.

    Raises InvalidRequestError if the statement itself says where to begin.
    """
    if select.count or select.newest_first:
        return select
    if select.position is not None or (select.offset or 0) < 0:
        raise InvalidRequestError("the statement already says where to begin", hint="leave reverse out")
    return replace(select, newest_first=True)


def with_condition(select: Select, text: str, *, without: bool) -> Select:
    """Return the statement with one more condition. without: negate the condition. Raises LqlError."""
    found = parse_where(text)
    more = Not(found) if without else found
    return replace(select, where=more if select.where is None else all_of([select.where, more]))


def is_open(select: Select) -> bool:
    """Whether the statement sets no start, limit or order, so that a caller may set them."""
    return select.position is None and select.offset is None and select.limit is None and not select.newest_first


@contextlib.contextmanager
def without_place() -> Iterator[None]:
    """Turn LqlError into InvalidRequestError, for statements that we modified.

    The location of the error would mean nothing to the sender of the original statement.
    """
    try:
        yield
    except LqlError as error:
        raise InvalidRequestError(error.message, hint=error.hint) from None
