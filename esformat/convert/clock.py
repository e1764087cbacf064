"""Columns of times, however they are written, to microseconds since 1970, UTC. Times without a zone get one here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.convert import epoch
from esformat.convert.arrays import Ints, Mask, ints
from esformat.convert.time_format import Parsed, TimeFormat

_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# With nanoseconds, 64 bits reach from 1677 to 2262.
_FIRST_NANO_US = -(2**63) // 1000 + 1
_LAST_NANO_US = (2**63 - 1) // 1000 - 1
_LONGEST_SHOWN = 40
_OPTION = "--timestamp-format"
_OUTSIDE = "is no time of the years 1 to 9999"


@dataclass(frozen=True, slots=True)
class Times:
    """A column of times. Row i is a time where `ok[i]`; `micros` is 0 elsewhere."""

    micros: Ints
    below: Ints  # nanoseconds below the microsecond, 0..999
    ok: Mask
    repeated_count: int  # local times that occur twice, taken as the first

    @property
    def has_nanos(self) -> bool:
        """Tell whether microseconds lose digits of some row."""
        return bool(self.below.any())

    def nanos(self) -> pa.Int64Array:
        """Give nanoseconds since 1970; null where they do not fit, which have no digits to lose."""
        fits = _fits_nanos(self.micros)
        return pa.array(np.where(fits, self.micros, 0) * 1000 + self.below, pa.int64(), mask=~fits)

    def timestamps(self) -> pa.TimestampArray:
        """Give the times in the type that segments store."""
        return pa.array(self.micros, pa.int64()).view(pa.timestamp("us", "UTC"))


class Clock:
    """How the times of an input are written, and in which zone those that do not say are."""

    def __init__(self, written: str | None = None, zone: str = "UTC") -> None:
        """Take `written` as s, ms, us, ns, iso or a format such as "%d/%m/%Y %H:%M".

        None means ISO 8601 for text and refuses numbers. Raises ValueError if either says nothing that we know.
        """
        self.unit = written if written in epoch.NANOS else None
        self.written = None if written == "iso" else written
        self._format = TimeFormat.iso() if self.unit or not self.written else TimeFormat.of(self.written)
        self.zone = None if zone in _UTC_NAMES else zone
        _check_zone(zone, self.zone)

    def read(self, column: pa.Array) -> Times:
        """Read `column`, of any type. What is null or no time is not ok; `complaint` tells why."""
        parsed = self._parse(column)
        micros, in_zone, repeated = self._localized(parsed)
        ok = parsed.ok & in_zone & (micros >= epoch.FIRST_US) & (micros <= epoch.LAST_US)
        ok &= (parsed.nanos == 0) | _fits_nanos(micros)
        return Times(np.where(ok, micros, 0), np.where(ok, parsed.nanos, 0), ok, repeated)

    def complaint(self, value: pa.Scalar) -> str:
        """Say why `value`, of which `read` made nothing, is no time, and what to do."""
        column = pa.array([value], value.type)
        text, number = _shown(value), _number_of(value)
        parsed = self._parse(column)
        if parsed.ok[0]:
            why = self._why_unfit(parsed)
        elif pa.types.is_timestamp(value.type) or pa.types.is_date(value.type):
            why = _OUTSIDE
        elif self.unit is not None:
            why = f"is no number of {self.unit}" if number is None else f"{_OUTSIDE}: is {_OPTION} {self.unit} right?"
        elif self.written is not None:
            why = f"is not written as {self.written!r}, which {_OPTION} gives"
        elif number is not None:
            why = f"is a number: say what it counts with {_OPTION} {_units(number)}"
        else:
            why = f"is not an ISO 8601 time: say how times are written with {_OPTION}"
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
        if pa.types.is_integer(type_) and self.unit:
            return epoch.from_integers(column, self.unit)
        if pa.types.is_floating(type_) and self.unit:
            return epoch.from_floats(column, self.unit)
        if pa.types.is_string(type_) or (_is_number(type_) and self.written):
            return self._from_text(column.cast(pa.string()))
        return _nothing(len(column))

    def _from_text(self, text: pa.StringArray) -> Parsed:
        if self.unit:
            return epoch.from_text(text, self.unit)
        if not self.written:
            for type_ in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
                try:
                    return _from_arrow(text.cast(type_))  # ten times faster than a pattern, if all are written alike
                except pa.ArrowInvalid:
                    continue
        return self._format.parse(text)

    def _localized(self, parsed: Parsed) -> tuple[Ints, Mask, int]:
        """Give UTC microseconds, which of them are times of the zone, and how many are so twice."""
        naive = parsed.ok & ~parsed.zoned
        if self.zone is None or not naive.any():
            return parsed.micros, np.ones(len(naive), dtype=np.bool_), 0
        civil = pa.array(parsed.micros, pa.timestamp("us"), mask=~naive)
        first = _assume(civil, self.zone, "earliest", "earliest")
        repeated = first != _assume(civil, self.zone, "latest", "earliest")
        skipped = first != _assume(civil, self.zone, "earliest", "latest")
        return np.where(naive, first, parsed.micros), ~skipped, int(repeated.sum())


def _assume(civil: pa.Array, zone: str, ambiguous: str, nonexistent: str) -> Ints:
    zoned = pc.assume_timezone(civil, zone, ambiguous=ambiguous, nonexistent=nonexistent)
    return ints(zoned.cast(pa.int64()).fill_null(0))


def _from_arrow(column: pa.Array) -> Parsed:
    """Read timestamps and dates of any unit."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s" if pa.types.is_date32(column.type) else "ms"))
    parsed = epoch.from_integers(column.cast(pa.int64()), column.type.unit)
    zoned = np.full(len(column), column.type.tz is not None)
    return Parsed(parsed.micros, parsed.nanos, zoned, parsed.ok)


def _nothing(length: int) -> Parsed:
    zeros, no = np.zeros(length, dtype=np.int64), np.zeros(length, dtype=np.bool_)
    return Parsed(zeros, zeros, no, no)


def _fits_nanos(micros: Ints) -> Mask:
    return (micros >= _FIRST_NANO_US) & (micros <= _LAST_NANO_US)


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _shown(value: pa.Scalar) -> str:
    if pa.types.is_temporal(value.type):  # Python has no times beyond the year 9999
        text = str(value.cast(pa.string()))
    else:
        text = repr(value.as_py()) if pa.types.is_string(value.type) else str(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def _number_of(value: pa.Scalar) -> float | None:
    if not (_is_number(value.type) or pa.types.is_string(value.type)):
        return None
    try:
        return float(value.as_py())
    except ValueError:
        return None


def _units(number: float) -> str:
    """List the units, first the one that makes `number` a time of our days, with that time."""
    for unit, nanos in epoch.NANOS.items():
        seconds = number * nanos / 1e9
        if 315_532_800 <= seconds < 4_102_444_800:  # 1980 to 2100
            others = ", ".join(other for other in epoch.NANOS if other != unit)
            return f"{unit} (which makes it {_EPOCH + timedelta(seconds=seconds):%Y-%m-%d}), {others}"
    return "s, ms, us or ns"


def _check_zone(given: str, zone: str | None) -> None:
    if zone is None:
        return
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), zone)
    except pa.ArrowInvalid:
        raise ValueError(
            f"unknown time zone {given!r}; give a name such as Europe/Stockholm or an offset such as +02:00"
        ) from None
