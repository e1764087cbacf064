"""Comparing integers with any number exactly: which integer stands for a fraction, and what lies out of reach."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa

from aggregator.lql.text.comparison import comparison

IntegerTest = tuple[str, int] | bool


def bound(op: str, value: Decimal | Fraction, low: int, high: int) -> IntegerTest:
    """`x op value` for integers x of [low, high]: the same with an integer of that range, or what it always is."""
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
    """Apply what `bound` gave to int64 or uint64 values, or to decimals by their last of `scale` places; nulls stay."""
    if isinstance(test, bool):
        return pa.array(np.full(len(values), test), mask=np.asarray(values.is_null()))
    op, limit = test
    return comparison(op)(values, pa.scalar(Decimal(f"{limit}e{-scale}") if scale else limit, values.type))
