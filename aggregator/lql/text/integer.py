"""Compare integers exactly with any number: find an equivalent integer bound, and handle values out of range."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa

from aggregator.lql.text.comparison import comparison

IntegerTest = tuple[str, int] | bool


def bound(op: str, value: Decimal | Fraction, low: int, high: int) -> IntegerTest:
    """Reduce `x op value`, for integers x in [low, high], to an integer comparison, or to its constant result."""
    value = Fraction(value)
    if op in ("=", "!="):
        if value.denominator != 1 or not low <= value <= high:
            return op == "!="
        return op, int(value)
    limit = math.ceil(value) if op in ("<", ">=") else math.floor(value)
    if limit < low:
        return op in (">", ">=")
    if limit > high:
        return op in ("<", "<=")
    return op, limit


def run(test: IntegerTest, values: pa.Array, scale: int = 0) -> pa.BooleanArray:
    """Apply the result of `bound` to int64 or uint64 values, or to decimals with `scale` digits; nulls stay."""
    if isinstance(test, bool):
        return pa.array(np.full(len(values), test), mask=np.asarray(values.is_null()))
    op, limit = test
    return comparison(op)(values, pa.scalar(Decimal(f"{limit}e{-scale}") if scale else limit, values.type))
