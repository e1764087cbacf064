"""One event as Python sees it, and timestamps: whole microseconds since 1970, UTC."""

from __future__ import annotations

import datetime as dt
import re
from collections import _tuplegetter  # type: ignore[attr-defined]  # what namedtuple makes its fields of
from collections.abc import Mapping
from typing import Any, Protocol

from esformat.errors import InvalidEventError, UsageError

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_BEYOND_MICROSECONDS = re.compile(r"[.,]\d{6}\d*[1-9]")  # which `fromisoformat` leaves out
MIN_TIMESTAMP, MAX_TIMESTAMP = -(1 << 63), (1 << 63) - 1


def to_microseconds(moment: int | dt.datetime, what: str = "timestamp") -> int:
    """A timestamp as int64 µs since the epoch. Raises InvalidEventError for naive datetimes and other types."""
    if isinstance(moment, dt.datetime):
        if moment.tzinfo is None:
            raise InvalidEventError(
                f"{what} {moment.isoformat()} has no time zone", hint="use an aware datetime, e.g. tzinfo=datetime.UTC"
            )
        if getattr(moment, "nanosecond", 0):  # of pandas' timestamps
            raise InvalidEventError(
                f"{what} {moment.isoformat()} does not fit microseconds",
                hint="keep the nanoseconds in a column of their own and floor this one",
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
    """The start or the end of a question: as `to_microseconds`, or ISO 8601 text, in UTC where it names no zone."""
    if not isinstance(moment, str):
        return to_microseconds(moment, what)
    try:
        read = dt.datetime.fromisoformat(moment)
    except ValueError:
        read = None
    if read is None or _BEYOND_MICROSECONDS.search(moment):
        reason = "is no time in ISO 8601" if read is None else "does not fit microseconds"
        raise InvalidEventError(f"{what} {moment[:40]!r} {reason}", hint="write it like 2026-03-01T08:00:00Z")
    return to_microseconds(read if read.tzinfo is not None else read.replace(tzinfo=dt.UTC), what)


def to_key(key: str | bytes) -> bytes:
    """A space or grouping as it is stored. Raises UsageError for what is neither Unicode text nor bytes."""
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError:
            raise UsageError(f"key {key!r} is not Unicode text") from None
    if isinstance(key, bytes | bytearray | memoryview):
        return bytes(key)
    raise UsageError(f"a key must be str or bytes, not {type(key).__name__}")


class Attributes(Protocol):
    """Where an event finds its columns beyond the four that it carries."""

    def indexes(self, row: int) -> dict[str, Any]:
        """Indexed columns of a row that are not null."""
        ...

    def columns(self, row: int) -> dict[str, Any]:
        """Payload columns of a row besides `data`."""
        ...


class Event(tuple):  # type: ignore[type-arg]
    """Something that happened to somebody at some time.

    Made by scans, a million at a time, so it is a bare tuple inside; use the names, not positions:

    space, grouping: keys, `str` (or `bytes` in a segment with binary keys)
    timestamp: int, µs since the epoch, UTC; `time` is the same as an aware datetime
    data: the payload, `bytes` (None in a segment without a `data` column or a scan without it)
    indexes: dict of the indexed columns that are not null
    columns: dict of the other payload columns
    """

    __slots__ = ()

    space: str | bytes = _tuplegetter(0, "The space: whose event this is.")
    grouping: str | bytes = _tuplegetter(1, 'The grouping within the space, "" where there is none.')
    timestamp: int = _tuplegetter(2, "When it happened: µs since the epoch, UTC.")
    data: bytes | None = _tuplegetter(3, "The payload.")

    @property
    def indexes(self) -> dict[str, Any]:
        """Indexed columns that are not null, by name."""
        attributes: Attributes = self[5]
        return attributes.indexes(self[4])

    @property
    def columns(self) -> dict[str, Any]:
        """Payload columns besides `data`, by name."""
        attributes: Attributes = self[5]
        return attributes.columns(self[4])

    @property
    def time(self) -> dt.datetime:
        """The timestamp as an aware datetime. Raises OverflowError beyond the years 1 to 9999."""
        return _EPOCH + dt.timedelta(microseconds=self[2])

    def _plain(self) -> tuple[Any, ...]:
        return (*self[:4], self.indexes, self.columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self._plain() == other._plain()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:4])

    def __repr__(self) -> str:
        extra = "".join(
            f", {name}={value!r}" for name, value in (("indexes", self.indexes), ("columns", self.columns)) if value
        )
        keys = f"space={self.space!r}, grouping={self.grouping!r}, timestamp={self.timestamp}, data={self.data!r}"
        return f"Event({keys}{extra})"

    def __reduce__(self) -> tuple[Any, ...]:
        return make_event, self._plain()


class KnownAttributes:
    """Attributes of one event that are at hand."""

    __slots__ = ("_columns", "_indexes")

    def __init__(self, indexes: Mapping[str, Any], columns: Mapping[str, Any]) -> None:
        self._indexes, self._columns = dict(indexes), dict(columns)

    def indexes(self, row: int) -> dict[str, Any]:
        """Indexed columns that are not null."""
        return dict(self._indexes)

    def columns(self, row: int) -> dict[str, Any]:
        """Payload columns besides `data`."""
        return dict(self._columns)


def make_event(
    space: str | bytes,
    grouping: str | bytes,
    timestamp: int,
    data: bytes | None,
    indexes: Mapping[str, Any],
    columns: Mapping[str, Any],
) -> Event:
    """An event from its parts."""
    return tuple.__new__(Event, (space, grouping, timestamp, data, 0, KnownAttributes(indexes, columns)))
