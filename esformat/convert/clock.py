"""Conversion of time columns in any format to microseconds since 1970 in UTC, applying a zone to times without one."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.convert.arrays import Ints, Mask, ints, mask
from esformat.convert.time_format import Parsed, TimeFormat
from esformat.format import unix_time
from esformat.format.arrays import is_numeric

_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})
# In nanoseconds, 64 bits cover the years 1677 to 2262.
_FIRST_NANO_US = -(2**63) // 1000 + 1
_LAST_NANO_US = (2**63 - 1) // 1000 - 1
_LONGEST_SHOWN = 40
_OPTION = "--timestamp-format"
_PLAIN_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?\Z", re.ASCII)
_OTHER_ISO = re.compile(r"\d{4}-?W\d\d|\d{4}-\d{3}(?!\d)|\d{8}[Tt]", re.ASCII)
_OUTSIDE = "is outside the years 1 to 9999"


@dataclass(frozen=True, slots=True)
class Times:
    """A column of times. Row i is a valid time if `ok[i]`; otherwise `micros[i]` is 0."""

    micros: Ints
    below: Ints  # nanoseconds below the microsecond, 0..999
    ok: Mask
    repeated_count: int  # local times that occur twice when clocks are put back; the first is taken
    assumed: frozenset[str] = frozenset()  # units that were guessed from the size of numbers

    @property
    def has_nanos(self) -> bool:
        """Whether some row has digits below the microsecond."""
        return bool(self.below.any())

    def nanos(self) -> pa.Int64Array:
        """Return nanoseconds since 1970; null if they do not fit in 64 bits: such times have whole microseconds."""
        fits = _fits_nanos(self.micros)
        return pa.array(np.where(fits, self.micros, 0) * 1000 + self.below, pa.int64(), mask=~fits)

    def timestamps(self) -> pa.TimestampArray:
        """Return the times in the type that segments store."""
        return pa.array(self.micros, pa.int64()).view(pa.timestamp("us", "UTC"))


class Clock:
    """The format of an input's times, and the zone of times without one."""

    def __init__(self, written: str | None = None, zone: str = "UTC", *, unit: str | None = None) -> None:
        """Create a clock for times written as s, ms, us, ns, iso or a format such as "%d/%m/%Y %H:%M".

        If `written` is None, times are ISO 8601 or numbers since 1970, in `unit` or a unit guessed from their size.
        Raises ValueError for an unknown format or zone.
        """
        self.unit = written if written in unix_time.UNIX_UNITS else unit
        self.written = None if written == "iso" else written
        self._mixed = written is None  # texts and numbers alike
        iso = not self.written or self.written in unix_time.UNIX_UNITS
        self._format = TimeFormat.iso() if iso else TimeFormat.of(self.written or "")
        self.zone = None if zone in _UTC_NAMES else zone
        _check_zone(zone, self.zone)

    def read(self, column: pa.Array) -> Times:
        """Read `column`, of any type. Nulls and invalid times are not ok; `complaint` says why."""
        if pa.types.is_timestamp(column.type) and column.type.unit == "us" and column.type.tz is not None:
            return _as_stored(column)
        parsed = self._parse(column)
        micros, in_zone, repeated = self._localized(parsed)
        ok = parsed.ok & in_zone & (micros >= unix_time.FIRST_US) & (micros <= unix_time.LAST_US)
        ok &= (parsed.nanos == 0) | _fits_nanos(micros)
        return Times(np.where(ok, micros, 0), np.where(ok, parsed.nanos, 0), ok, repeated, parsed.assumed)

    def complaint(self, value: pa.Scalar) -> str:
        """Say why `read` rejected `value`, and what to do."""
        column = pa.array([value], value.type)
        text, number = _shown(value), _number_of(value)
        parsed = self._parse(column)
        if parsed.ok[0]:
            why = self._why_unfit(parsed)
        elif pa.types.is_timestamp(value.type) or pa.types.is_date(value.type):
            why = _OUTSIDE
        elif number is not None and (self.unit or self._mixed) and not _is_plain(value):
            why = "is not a plain number: use digits only, such as 1700000000.5"
        elif self.unit is not None and (number is not None or not self._mixed):
            why = (
                f"is not a number of {self.unit}"
                if number is None
                else f"{_OUTSIDE}: give a {_OPTION} other than {self.unit}"
            )
        elif self.written is not None:
            why = f"does not match {_OPTION} {self.written!r}"
        elif number is not None and not self._mixed:
            why = f"is a number: give its unit with {_OPTION} s, ms, us or ns"
        elif number is not None:
            why = _why_no_count(number)
        elif _OTHER_ISO.match(str(value)):
            why = (
                "has an unsupported ISO 8601 form, such as weeks or days of the year: write 2026-03-01 or "
                f"2026-03-01T08:00:05Z, or give the format with {_OPTION}, such as %Y-%j"
            )
        else:
            known = "neither an ISO 8601 time nor a number since 1970" if self._mixed else "not an ISO 8601 time"
            why = f"is {known}: give the format with {_OPTION}, such as '%d/%m/%Y %H:%M'"
        return f"timestamp {text} {why}"

    def _why_unfit(self, parsed: Parsed) -> str:
        _, in_zone, _ = self._localized(parsed)
        if not in_zone[0]:
            return f"does not exist in {self.zone}: clocks were put forward over it"
        if parsed.nanos[0]:
            return "has digits below the microsecond, which fit in years 1678 to 2261 only"
        return _OUTSIDE

    def _parse(self, column: pa.Array) -> Parsed:
        type_ = column.type
        if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            return _from_arrow(column)
        counted = self.unit is not None or self._mixed
        if pa.types.is_integer(type_) and counted:
            return _zoned(unix_time.from_integers(column, self.unit))
        if pa.types.is_floating(type_) and counted:
            return _zoned(unix_time.from_floats(column, self.unit))
        if pa.types.is_string(type_) or (is_numeric(type_) and (self.written or self._mixed)):
            return self._from_text(column.cast(pa.string()))
        return _nothing(len(column))

    def _from_text(self, text: pa.StringArray) -> Parsed:
        if self.unit and not self._mixed:
            return _zoned(unix_time.from_text(text, self.unit))
        if not self.written:
            for type_ in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
                try:
                    return _from_arrow(text.cast(type_))  # ten times faster than a regex, if all rows have one form
                except pa.ArrowInvalid:
                    continue
        parsed = self._format.parse(text)
        if not self._mixed or parsed.ok.all():
            return parsed
        return _either(parsed, _zoned(unix_time.from_text(text, self.unit)))

    def _localized(self, parsed: Parsed) -> tuple[Ints, Mask, int]:
        """Return microseconds in UTC, whether each exists in the zone, and how many are ambiguous in it."""
        naive = parsed.ok & ~parsed.zoned
        if self.zone is None or not naive.any():
            return parsed.micros, np.ones(len(naive), dtype=np.bool_), 0
        civil = pa.array(parsed.micros, pa.timestamp("us"), mask=~naive)
        first = _assume(civil, self.zone, "earliest", "earliest")
        repeated = first != _assume(civil, self.zone, "latest", "earliest")
        skipped = first != _assume(civil, self.zone, "earliest", "latest")
        return np.where(naive, first, parsed.micros), ~skipped, int(repeated.sum())


def _as_stored(column: pa.TimestampArray) -> Times:
    """Take times in the type that segments store as they are, even those outside the years 1 to 9999."""
    micros = ints(column.cast(pa.int64()).fill_null(0))
    return Times(micros, np.zeros_like(micros), mask(column.is_valid()), 0)


def _assume(civil: pa.Array, zone: str, ambiguous: str, nonexistent: str) -> Ints:
    zoned = pc.assume_timezone(civil, zone, ambiguous=ambiguous, nonexistent=nonexistent)
    return ints(zoned.cast(pa.int64()).fill_null(0))


def _from_arrow(column: pa.Array) -> Parsed:
    """Convert timestamps and dates of any unit."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s" if pa.types.is_date32(column.type) else "ms"))
    found = unix_time.from_integers(column.cast(pa.int64()), column.type.unit)
    zoned = np.full(len(column), column.type.tz is not None)
    return Parsed(found.micros, found.nanos, zoned, found.ok)


def _zoned(found: unix_time.UnixTimes) -> Parsed:
    """Mark numbers as zoned: they count from 1970 in UTC."""
    return Parsed(found.micros, found.nanos, np.ones(len(found.ok), dtype=np.bool_), found.ok, found.assumed)


def _either(first: Parsed, second: Parsed) -> Parsed:
    """Merge two results: rows of `first` if they are ok, else those of `second`."""
    return Parsed(
        np.where(first.ok, first.micros, second.micros),
        np.where(first.ok, first.nanos, second.nanos),
        np.where(first.ok, first.zoned, second.zoned),
        first.ok | second.ok,
        second.assumed,
    )


def _nothing(length: int) -> Parsed:
    zeros, no = np.zeros(length, dtype=np.int64), np.zeros(length, dtype=np.bool_)
    return Parsed(zeros, zeros, no, no)


def _fits_nanos(micros: Ints) -> Mask:
    return (micros >= _FIRST_NANO_US) & (micros <= _LAST_NANO_US)


def _shown(value: pa.Scalar) -> str:
    if pa.types.is_temporal(value.type):  # Python's times end at the year 9999
        text = str(value.cast(pa.string()))
    else:
        text = repr(value.as_py()) if pa.types.is_string(value.type) else str(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def _number_of(value: pa.Scalar) -> float | None:
    if not (is_numeric(value.type) or pa.types.is_string(value.type)):
        return None
    try:
        return float(value.as_py())
    except ValueError:
        return None


def _is_plain(value: pa.Scalar) -> bool:
    """Whether a number is not text, or text of plain digits, without an exponent or surrounding spaces."""
    return not pa.types.is_string(value.type) or _PLAIN_NUMBER.match(value.as_py()) is not None


def _why_no_count(number: float) -> str:
    year = unix_time.may_be_year(number)
    if year:
        return f"{year}, or give its unit with {_OPTION} s"
    if abs(number) >= unix_time.TOO_LARGE:
        return f"is too large for a number since 1970: give the format with {_OPTION}"
    try:
        unix_time.unit_of(number)
    except ValueError:
        return f"may be a date or a number since 1970: give {_OPTION} %Y%m%d, or its unit: s, ms, us or ns"
    return f"{_OUTSIDE} in every unit since 1970"


def _check_zone(given: str, zone: str | None) -> None:
    if zone is None:
        return
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), zone)
    except pa.ArrowInvalid:
        raise ValueError(
            f"unknown time zone {given!r}; give a name such as Europe/Stockholm or an offset such as +02:00"
        ) from None
