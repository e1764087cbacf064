"""Unix time: numbers of seconds, milliseconds, microseconds or nanoseconds since 1970. The only module that reads them.

If the caller does not name the unit, the size of the number determines it: below 10¹¹ seconds, below 10¹⁴ milliseconds,
below 10¹⁷ microseconds, otherwise nanoseconds. Each range covers the years 1973 to 5138, that of nanoseconds 1973 to
2262. Without a named unit, numbers that read as a date, such as 20260301, are refused, and so are columns that may
contain years.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
UNIX_UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds in each unit."""
# The years 1 to 9999, which ISO 8601 and datetime can write.
FIRST_US = -62_135_596_800_000_000
LAST_US = 253_402_300_799_999_999

_UNITS = tuple(UNIX_UNITS)
_BOUNDS = (10**11, 10**14, 10**17)
TOO_LARGE = 2**63  # nanoseconds of the year 2262
_DATES = (1, 10_000, 1_000_000)  # 20260301, 202603010800, 20260301080005
_DECIMAL = r"^(?P<sign>[+-]?)(?P<whole>\d{1,18}|[1-8]\d{18}|9[01]\d{17})(?:\.(?P<fraction>\d{1,9})\d*)?$"
_ONE = re.compile(_DECIMAL, re.ASCII)


@dataclass(frozen=True, slots=True)
class UnixTimes:
    """A column of times. Row i is a time if `ok[i]`: `micros`, plus `nanos` (0 to 999).

    assumed: the units that were inferred from sizes, for rows that are ok; empty if the caller named the unit.
    """

    micros: I64
    nanos: I64
    ok: Mask
    assumed: frozenset[str] = frozenset()


def unit_of(number: float | Decimal) -> str:
    """Infer the unit of a number from its size. Raises ValueError for a number that reads as a date or is too large."""
    if not -TOO_LARGE < number < TOO_LARGE:
        raise ValueError(f"{str(number)[:40]} is too large for a number of seconds to nanoseconds since 1970")
    if _reads_as_date(number):
        raise ValueError(
            f"{number} may be a date, or a number of {_by_size(number)} since 1970: write it as 2026-03-01, "
            "or say which unit it counts"
        )
    return _by_size(number)


def to_nanos(number: float | str, unit: str | None = None, *, from_query: bool = False) -> tuple[int, str]:
    """Convert a number, or its decimal text, to nanoseconds since 1970; also return the unit that was assumed.

    Text is exact; a float is rounded to the microsecond. Raises ValueError.

    unit: one of UNIX_UNITS; None: inferred from the size.
    from_query: the number comes from a query, where 2026 hardly means half an hour after 1970 began, and is refused.
    """
    exact: int | Decimal
    if isinstance(number, str):
        if not is_number(number):
            raise ValueError(f"{number[:40]!r} is no number of seconds to nanoseconds since 1970")
        exact = Decimal(number)
    elif isinstance(number, int):
        exact = number
    elif math.isfinite(number):
        exact = Decimal(number)
    else:
        raise ValueError(f"{number} is no time")
    if from_query and unit is None and may_be_year(exact):
        raise ValueError(f"{exact} {may_be_year(exact)}, or say which unit it counts")
    taken = unit or unit_of(exact)
    nanos = exact * UNIX_UNITS[taken] if -(10**30) < exact < 10**30 else 10**40
    if not FIRST_US * 1000 <= nanos < (LAST_US + 1) * 1000:
        raise ValueError(f"{str(number)[:40]} {taken} since 1970 is outside the years 1 to 9999")
    return (round(nanos / 1000) * 1000 if isinstance(number, float) else int(nanos)), taken


def may_be_year(number: float | Decimal) -> str:
    """The error text for a number that reads as a year from 1900 to 2100; empty for others."""
    if not _read_as_years(number):
        return ""
    return f"may be a year, or a number of s since 1970: write it as {int(number)}-01-01"


def is_number(text: str) -> bool:
    """Whether a text is a decimal number that `to_nanos` and `from_text` can read."""
    return _ONE.match(text) is not None


def from_integers(column: pa.Array, unit: str | None = None) -> UnixTimes:
    """Read integers. Nulls and times outside the years 1 to 9999 are not ok."""
    valid = _mask(column.is_valid())
    whole = np.asarray(column.cast(pa.int64(), safe=False).fill_null(0))
    if pa.types.is_uint64(column.type):
        valid &= whole >= 0  # 2**63 and more turned negative
    return _by_unit(whole, np.zeros_like(whole), unit, valid)


def from_floats(column: pa.Array, unit: str | None = None) -> UnixTimes:
    """Read floats, rounded to the microsecond: they have no more digits for present-day times."""
    values = column.cast(pa.float64()).fill_null(float("nan")).to_numpy(zero_copy_only=False)
    ok = np.abs(values) < 1e30  # false for NaN
    codes, plausible = _codes(np.where(ok, values, 0), unit)
    micros = np.where(ok, values, 0) * np.array([UNIX_UNITS[name] / 1000 for name in _UNITS])[codes]
    ok = ok & plausible & (micros >= FIRST_US) & (micros <= LAST_US)
    ok &= unit is not None or not _read_as_years(values[ok]).all()
    made = np.rint(np.where(ok, micros, 0)).astype(np.int64)
    return UnixTimes(made, np.zeros_like(made), ok, _assumed(codes, ok, unit))


def from_text(column: pa.StringArray, unit: str | None = None) -> UnixTimes:
    """Read decimal text such as "1403534919.25", exact to the nanosecond."""
    found = pc.extract_regex(column, _DECIMAL)
    ok = _mask(found.is_valid())
    whole = _number(found.field("whole"))
    billionths = _number(pc.utf8_rpad(found.field("fraction"), 9, "0"))
    negative = _mask(pc.equal(found.field("sign"), "-"))
    return _by_unit(whole, billionths, unit, ok, negative)


def _by_unit(whole: I64, billionths: I64, unit: str | None, ok: Mask, negative: Mask | None = None) -> UnixTimes:
    """Times of `whole` units plus billionths of a unit; `negative` marks the numbers with a minus sign."""
    numbers = whole if negative is None else np.where(negative, -whole, whole)
    codes, plausible = _codes(numbers, unit)
    ok = ok & plausible
    ok &= unit is not None or billionths.any() or not _read_as_years(numbers[ok]).all()
    micros, nanos = np.zeros_like(whole), np.zeros_like(whole)
    for code in np.unique(codes[ok]).tolist():
        rows = codes == code
        size = UNIX_UNITS[_UNITS[code]]
        if size == 1:
            micros[rows], nanos[rows] = whole[rows] // 1000, whole[rows] % 1000
            continue
        scale = size // 1000
        ok &= ~rows | ((whole >= FIRST_US // scale - 1) & (whole <= LAST_US // scale + 1))
        below = billionths[rows] // (1_000_000_000 // size)
        micros[rows] = np.where(ok[rows], whole[rows], 0) * scale + below // 1000
        nanos[rows] = below % 1000
    if negative is not None:
        borrowed = negative & (nanos > 0)
        micros = np.where(negative, -micros - borrowed, micros)
        nanos = np.where(borrowed, 1000 - nanos, nanos)
    ok &= (micros >= FIRST_US) & (micros <= LAST_US)
    return UnixTimes(micros, nanos, ok, _assumed(codes, ok, unit))


def _codes(numbers: npt.NDArray[np.int64] | npt.NDArray[np.float64], unit: str | None) -> tuple[I64, Mask]:
    """The unit of each number, as a position in _UNITS, and a mask of those neither like dates nor too large."""
    if unit is not None:
        return np.full(len(numbers), _UNITS.index(unit)), np.ones(len(numbers), np.bool_)
    codes = np.zeros(len(numbers), np.int64)
    for bound in _BOUNDS:
        codes += (numbers >= bound) | (numbers <= -bound)
    return codes, ~_reads_as_date(numbers) & (numbers < TOO_LARGE) & (numbers > -TOO_LARGE)


def _by_size(number: Any) -> str:
    return next((unit for unit, bound in zip(_UNITS, _BOUNDS, strict=False) if -bound < number < bound), "ns")


def _reads_as_date(numbers: Any) -> Any:
    """Whether a number, or each of an array, is written like a date from 1900 to 2100, perhaps with a time of day."""
    found = numbers != numbers  # False, or an array of False
    for scale in _DATES:
        near = (numbers >= 19_000_101 * scale) & (numbers < 21_010_000 * scale)
        if near is not False and np.any(near):
            month, day = numbers // (100 * scale) % 100, numbers // scale % 100
            found |= near & (numbers % 1 == 0) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    return found


def _read_as_years(numbers: Any) -> Any:
    """Whether a number, or each of an array, is one of the years 1900 to 2100."""
    return (numbers >= 1900) & (numbers <= 2100) & (numbers % 1 == 0)


def _assumed(codes: I64, ok: Mask, unit: str | None) -> frozenset[str]:
    return frozenset() if unit is not None else frozenset(_UNITS[code] for code in np.unique(codes[ok]).tolist())


def _number(text: pa.StringArray) -> I64:
    return np.asarray(pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64()).fill_null(0))


def _mask(column: pa.Array) -> Mask:
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
