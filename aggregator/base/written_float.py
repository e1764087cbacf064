"""JSON fractions that keep the digits they were written with, and JSON output with these digits."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


class WrittenFloat(float):
    """A JSON number that Python would write differently: `1e2`, `-0`, or one with more digits than a float holds.

    `str` returns the original digits only if the float is a different number.
    """

    text: str
    """The original text."""

    def __new__(cls, text: str) -> WrittenFloat:
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __str__(self) -> str:
        plain = float.__repr__(self)
        try:
            return plain if Decimal(plain) == Decimal(self.text) else self.text
        except ArithmeticError:  # an exponent beyond the range of decimals
            return self.text


def parse_float(text: str) -> float:
    """Parse a JSON number with a fraction or an exponent, for `json.loads`."""
    found = float(text)
    return found if repr(found) == text else WrittenFloat(text)


def parse_int(text: str) -> int | WrittenFloat:
    """Parse another JSON number. The integer 0 has no sign, so -0 is a float."""
    return WrittenFloat(text) if text == "-0" else int(text)


def json_of(value: Any) -> str:
    """A value as JSON. Raises TypeError, ValueError, RecursionError as `json.dumps` does."""
    return _with_digits(value) if _has_written(value) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _with_digits(value: Any) -> str:
    """The JSON of a value that was parsed from JSON, with its original digits."""
    if isinstance(value, dict):
        members = [f"{json.dumps(name, ensure_ascii=False)}:{_with_digits(each)}" for name, each in value.items()]
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_with_digits, value))}]"
    return value.text if isinstance(value, WrittenFloat) else json.dumps(value, ensure_ascii=False)


def _has_written(value: Any) -> bool:
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return isinstance(value, WrittenFloat)
    return any(map(_has_written, value))
