"""Parse sizes and durations as people write them. All programs of the project use these two functions."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

_SIZE = re.compile(r"(\d{0,18}\.?\d{1,18})\s*(?:([kmgtp])(i?)b?|b)?", re.IGNORECASE | re.ASCII)
_PART = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-zA-Zµ]+)\s*", re.ASCII)
_MOST = 2**63 - 1
_NAMES: dict[Decimal | int, str] = {
    Decimal("0.001"): "ns nsec", 1: "us µs usec", 1_000: "ms msec", 1_000_000: "s sec second seconds",
    60_000_000: "m min minute minutes", 3_600_000_000: "h hr hour hours", 86_400_000_000: "d day days",
    604_800_000_000: "w week weeks", 2_630_016_000_000: "M month months", 31_557_600_000_000: "y year years",
}  # fmt: skip
_MICROSECONDS = {name: Decimal(length) for length, names in _NAMES.items() for name in names.split()}


def parse_size(given: int | str) -> int:
    """The bytes of a size: an integer from 0, or text such as "1000", "64 kB", "1.5GiB".

    Units are powers of 1000 (k, M, G, T, P), or with an "i" powers of 1024. Case is ignored, and a final "b" is
    optional. A fraction of a byte is cut off. Raises ValueError.
    """
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    found = _SIZE.fullmatch(given.strip()) if isinstance(given, str) else None
    if found is None:
        raise ValueError(f"invalid size {given!r}: expected a number with an optional unit, such as 256MiB")
    unit = (1024 if found[3] else 1000) ** " kmgtp".index((found[2] or " ").lower())
    size = int(Decimal(found[1]) * unit)
    if size > _MOST:
        raise ValueError(f"invalid size {given!r}: larger than any disk")
    return size


def parse_duration(given: dt.timedelta | str) -> int:
    """The microseconds of a duration: a timedelta from 0, or text such as "90s", "1h 30m", "7d". Raises ValueError.

    Units are case-sensitive: ns, us, ms, s, m or min, h, d, w, M or month (30.44 days), y or year (365.25 days), and
    their usual other names. A fraction of a microsecond is cut off.
    """
    if isinstance(given, dt.timedelta) and given >= dt.timedelta(0):
        return given // dt.timedelta(microseconds=1)
    text = given if isinstance(given, str) else ""
    parts = _PART.findall(text)
    whole = "".join(map("".join, parts)) == "".join(text.split())
    if not parts or not whole or any(unit not in _MICROSECONDS for _, unit in parts):
        raise ValueError(f"invalid length of time {given!r}: expected a number with a unit, such as 90s, 1h 30m or 7d")
    length = int(sum(Decimal(number) * _MICROSECONDS[unit] for number, unit in parts))
    if length > _MOST:
        raise ValueError(f"invalid length of time {given!r}: longer than timestamps reach")
    return length
