"""`Event`, and conversions of keys and of timestamps, which are whole microseconds since 1970, UTC."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from esformat.core.events import Event, make_event
from esformat.core.keys import to_key
from esformat.errors import InvalidEventError

__all__ = [
    "MAX_TIMESTAMP",
    "MIN_TIMESTAMP",
    "Event",
    "make_event",
    "to_bound",
    "to_key",
    "to_microseconds",
]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_BEYOND_MICROSECONDS = re.compile(r"[.,]\d{6}\d*[1-9]")  # digits that `fromisoformat` drops
MIN_TIMESTAMP, MAX_TIMESTAMP = -(1 << 63), (1 << 63) - 1


def to_microseconds(moment: int | dt.datetime, what: str = "timestamp") -> int:
    """A timestamp as int64 µs since the epoch. Raises InvalidEventError for naive datetimes and other types."""
    if isinstance(moment, dt.datetime):
        if moment.tzinfo is None:
            raise InvalidEventError(
                f"{what} {moment.isoformat()} has no time zone", hint="use an aware datetime, e.g. tzinfo=datetime.UTC"
            )
        if getattr(moment, "nanosecond", 0):  # pandas timestamps have it
            raise InvalidEventError(
                f"{what} {moment.isoformat()} does not fit microseconds",
                hint="keep the nanoseconds in a separate column and floor this one",
            )
        return (moment - _EPOCH) // _MICROSECOND
    if isinstance(moment, bool) or not hasattr(moment, "__index__"):
        raise InvalidEventError(
            f"{what} must be microseconds as an int or an aware datetime, not {type(moment).__name__}"
        )
    number = moment.__index__()
    if not MIN_TIMESTAMP <= number <= MAX_TIMESTAMP:
        raise InvalidEventError(f"{what} {number} does not fit 64 bits", hint="timestamps are microseconds since 1970")
    return number


def to_bound(moment: Any, what: str) -> int:
    """The start or end of a query, like `to_microseconds`, but also from ISO 8601 text, in UTC if it names no zone."""
    if not isinstance(moment, str):
        return to_microseconds(moment, what)
    try:
        read = dt.datetime.fromisoformat(moment)
    except ValueError:
        read = None
    if read is None or _BEYOND_MICROSECONDS.search(moment):
        reason = "is not an ISO 8601 time" if read is None else "does not fit microseconds"
        raise InvalidEventError(f"{what} {moment[:40]!r} {reason}", hint="write it like 2026-03-01T08:00:00Z")
    return to_microseconds(read if read.tzinfo is not None else read.replace(tzinfo=dt.UTC), what)
