"""Sizes, lengths of time and whole numbers as written in statements: parse text to integers, and format it."""

from __future__ import annotations

import re
from decimal import Decimal

_LENGTH = re.compile(r"(\d{0,18}\.?\d{1,18})(us|ms|s|m|h|d|w)", re.IGNORECASE | re.ASCII)
# Microseconds, longest last.
LENGTHS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_MOST = 2**63 - 1
LONGEST_NUMBER = 400  # limit for digits and for powers of ten: more than the largest float has
NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
"""The pattern of a number, for `re` and RE2."""
_NUMBER = re.compile(NUMBER)


def parse_length_us(text: str) -> int:
    """Microseconds: a number and us, ms, s, m, h, d or w. Raises ValueError."""
    found = _LENGTH.fullmatch(text.strip())
    length = int(Decimal(found[1]) * LENGTHS_US[found[2].lower()]) if found else 0
    if not 0 < length <= _MOST:
        raise ValueError(f"invalid length of time {text!r}: expected 30s, 5m, 1.5h, 1d …")
    return length


def format_length(length_us: int) -> str:
    """A length of time in the largest unit that needs no fraction."""
    unit = next(unit for unit in reversed(LENGTHS_US) if length_us % LENGTHS_US[unit] == 0)
    return f"{length_us // LENGTHS_US[unit]}{unit}"


def parse_integer(text: str) -> int:
    """A whole number of 64 bits. Raises ValueError."""
    if re.fullmatch(r"[-+]?[0-9]{1,19}", text) is None or not -_MOST <= int(text) <= _MOST:
        raise ValueError(f"invalid whole number {text!r}")
    return int(text)


def parse_number(text: str) -> Decimal:
    """A number within about the range of 64-bit integers and floats. Raises ValueError."""
    text = text.strip(" \t\r\n")
    try:
        plain = len(text) <= LONGEST_NUMBER and _NUMBER.fullmatch(text)
        number = Decimal(text) if plain else Decimal("nan")
    except ArithmeticError:
        number = Decimal("nan")
    if not number.is_finite() or abs(number.adjusted()) > LONGEST_NUMBER:
        raise ValueError(f"invalid number {text[:40]!r}")
    return number
