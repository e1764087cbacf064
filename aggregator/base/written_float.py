"""Fractions of JSON that keep the digits in which they came, and JSON with these digits."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


class WrittenFloat(float):
    """A fraction whose text in JSON is not the one that Python writes: `1e2`, or one with more digits than floats have.

    As text it has these digits only where the float is another number.
    """

    text: str
    """As it was written."""

    def __new__(cls, text: str) -> WrittenFloat:
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __str__(self) -> str:
        plain = float.__repr__(self)
        try:
            return plain if Decimal(plain) == Decimal(self.text) else self.text
        except ArithmeticError:  # an exponent beyond all decimals
            return self.text


def parse_float(text: str) -> float:
    """A number of JSON with a fraction or an exponent, for `json.loads`."""
    found = float(text)
    return found if repr(found) == text else WrittenFloat(text)


def json_of(value: Any) -> str:
    """A value as JSON. Raises TypeError, ValueError, RecursionError as `json.dumps` does."""
    return _with_digits(value) if _has_written(value) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _with_digits(value: Any) -> str:
    """The same of a value that came as JSON."""
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
