"""Numbers that count from 1970 to microseconds: integers, floats and decimal text, a column at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.convert.arrays import Ints, Mask, ints, mask
from esformat.convert.time_format import Parsed

NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}  # in each unit

# Times of the years 1 to 9999, which ISO 8601 and datetime can write.
FIRST_US = -62_135_596_800_000_000
LAST_US = 253_402_300_799_999_999

_DECIMAL = r"^(?P<sign>[+-]?)(?P<whole>\d{1,18})(?:\.(?P<fraction>\d{1,9}))?$"


def from_integers(column: pa.Array, unit: str) -> Parsed:
    """Read integers that count `unit`. What is null or beyond the years 1 to 9999 is not ok."""
    valid = mask(column.is_valid())
    inside = ints(column.cast(pa.int64(), safe=False).fill_null(0))
    if pa.types.is_uint64(column.type):
        valid &= inside >= 0  # 2**63 and more came out negative
    return _scaled(inside, np.zeros_like(inside), unit, valid)


def from_floats(column: pa.Array, unit: str) -> Parsed:
    """Read floats that count `unit`, rounded to the microsecond: they hold no more digits for times of today."""
    values = column.cast(pa.float64()).fill_null(float("nan")).to_numpy(zero_copy_only=False)
    micros = values * (NANOS[unit] / 1000)
    ok = (micros >= FIRST_US) & (micros <= LAST_US)  # false for NaN
    whole = np.rint(np.where(ok, micros, 0)).astype(np.int64)
    return Parsed(whole, np.zeros_like(whole), np.ones(len(values), dtype=np.bool_), ok)


def from_text(column: pa.StringArray, unit: str) -> Parsed:
    """Read decimal text such as "1403534919.25" that counts `unit`, exact to the nanosecond."""
    found = pc.extract_regex(column, _DECIMAL)
    ok = mask(found.is_valid())
    whole = _number(found.field("whole"))
    billionths = _number(pc.utf8_rpad(found.field("fraction"), 9, "0"))
    parsed = _scaled(whole, billionths // (1_000_000_000 // NANOS[unit]), unit, ok)
    negative = mask(pc.equal(found.field("sign"), "-"))
    return _negated(parsed, negative)


def _number(text: pa.StringArray) -> Ints:
    return ints(pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64()))


def _scaled(whole: Ints, nanos: Ints, unit: str, ok: Mask) -> Parsed:
    """Turn `whole` units and `nanos` (not below 0) more into microseconds and the nanoseconds below them."""
    if unit == "ns":
        micros, below = whole // 1000, whole % 1000 + nanos
    else:
        scale = NANOS[unit] // 1000
        ok = ok & (whole >= FIRST_US // scale) & (whole <= LAST_US // scale)
        micros, below = np.where(ok, whole, 0) * scale, nanos
    return Parsed(micros + below // 1000, below % 1000, np.ones(len(whole), dtype=np.bool_), ok)


def _negated(parsed: Parsed, negative: Mask) -> Parsed:
    borrowed = parsed.nanos > 0
    micros = np.where(negative, -parsed.micros - borrowed, parsed.micros)
    nanos = np.where(negative & borrowed, 1000 - parsed.nanos, parsed.nanos)
    ok = parsed.ok & (micros >= FIRST_US) & (micros <= LAST_US)
    return Parsed(micros, nanos, parsed.zoned, ok)
