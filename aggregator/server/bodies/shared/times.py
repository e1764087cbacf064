"""Times over HTTP: ISO 8601 text, or numbers since 1970 in a stated unit, or in the one that their size suggests."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat import InvalidEventError
from esformat.convert import Clock
from esformat.parts import FIRST_US, LAST_US, UNIX_UNITS, from_integers, is_number, to_nanos

_ISO = Clock("iso")
_PLAIN_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)?")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
TIME_UNITS = tuple(UNIX_UNITS)
TIMES_HINT = f"send ISO 8601 text, or ?time_unit= with one of {', '.join(TIME_UNITS)}"


@dataclass(slots=True)
class TimeReader:
    """Reads the times of one request.

    unit: of numbers, as the request states; None: inferred from their size. assumed: the units that were inferred.
    """

    unit: str | None = None
    assumed: set[str] = field(default_factory=set)

    def read(self, given: Any, what: str, *, up: bool = False) -> int | None:
        """Return a JSON value as a time in µs; text without a zone is UTC. None stays None. Raises InvalidEventError.

        up: round up to whole µs. For the bounds of a query, because events have no fractions of a µs.
        """
        if given is None:
            return None
        if isinstance(given, str) and not is_number(given):
            return read_iso(given, what, up=up)
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise _no_time(given, what)
        try:
            nanos, unit = to_nanos(given, self.unit, from_query=up)
        except ValueError as error:
            raise InvalidEventError(f"{what}: {error}", hint=TIMES_HINT) from None
        if self.unit is None:
            self.assumed.add(unit)
        return -(-nanos // 1000) if up else nanos // 1000

    def of_arrow(self, table: pa.Table, name: str) -> pa.Table:
        """Return the table with its times in µs. Integers are µs unless a unit is stated. Raises InvalidEventError."""
        place = table.schema.get_field_index(name)
        if place < 0 or not pa.types.is_integer(table.schema.field(place).type):
            return table
        unit = self.unit or "us"
        if unit == "us" and _are_times(table.column(place)):
            return table
        column = pa.concat_arrays(table.column(place).chunks or [pa.array([], pa.int64())])
        times = from_integers(column, unit)
        null = column.is_null().to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(~times.ok & ~null)
        if len(wrong):
            raise InvalidEventError(
                f"{name} {column[int(wrong[0])]} {unit} since 1970 is outside the years 1 to 9999",
                hint="send Arrow timestamps, which have a unit, or ?time_unit=",
            )
        return table.set_column(place, name, pa.array(times.micros, pa.int64(), mask=null))


def _are_times(micros: pa.ChunkedArray) -> bool:
    """Whether all non-null numbers are µs since 1970 within the years 1 to 9999."""
    least, most = (end.as_py() for end in pc.min_max(micros).values())
    return least is None or bool(least >= FIRST_US and most <= LAST_US)


def read_iso(given: str, what: str, *, up: bool = False) -> int:
    """Return ISO 8601 text as µs, in UTC if it has no zone. up: as in `TimeReader.read`. Raises InvalidEventError."""
    if _PLAIN_ISO.fullmatch(given):  # hundreds of times faster for a single value
        with contextlib.suppress(ValueError):
            moment = dt.datetime.fromisoformat(given)
            utc = moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
            return (utc - _EPOCH) // dt.timedelta(microseconds=1)
    try:
        times = _ISO.read(pa.array([given]))
    except UnicodeEncodeError:  # half of a surrogate pair, from an escape in JSON
        raise _no_time(given, what) from None
    if times.ok[0]:
        return int(times.micros[0]) + (up and bool(times.below[0]))
    raise _no_time(given, what)


def _no_time(given: Any, what: str) -> InvalidEventError:
    return InvalidEventError(
        f"{what}: {str(given)[:40]!r} is neither ISO 8601 with year, month and day nor a number since 1970",
        hint=TIMES_HINT,
    )
