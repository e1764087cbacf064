"""Compare texts with a number: texts that are numbers compare exactly, all others are unequal to it.

No Python loop per text: floats decide, and only texts that round to the same float as the number are parsed as
decimals, once per distinct text.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.lql.text.predicate import Test, as_string
from aggregator.lql.text.quantity import LONGEST_NUMBER, NUMBER, parse_number

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WHOLE = rf"\A[ \t\r\n]*{NUMBER}[ \t\r\n]*\z"


def number_test(op: str, value: str) -> Test:
    """Compile `op`, one of tree.SYMBOLS. Raises ValueError if `value` is not a number."""
    limit = parse_number(value)
    near, compare = float(limit), COMPARE[op]

    def test(texts: pa.Array) -> pa.BooleanArray:
        result = np.full(len(texts), op == "!=")
        texts = as_string(texts)
        rows = pc.indices_nonzero(pc.match_substring_regex(texts, _WHOLE))
        if len(rows):
            numbers = pc.ascii_trim_whitespace(texts.take(rows))
            floats = np.asarray(pc.ascii_ltrim(numbers, "+").cast(pa.float64()))
            decided = compare(floats, near)
            long = np.asarray(pc.binary_length(numbers)) > LONGEST_NUMBER
            unsure = np.flatnonzero((floats == near) | (floats == 0) | np.isinf(floats) | long)
            decided[unsure] = _exactly(numbers.take(pa.array(unsure)), op, limit)
            result[np.asarray(rows)] = decided
        return pa.array(result)

    return test


def numbers_in(texts: pa.Array) -> pa.Array:
    """The texts that are numbers, as floats; null for all others."""
    texts = as_string(texts)
    numbers = pc.if_else(pc.match_substring_regex(texts, _WHOLE), texts, pa.scalar(None, texts.type))
    return pc.ascii_ltrim(pc.ascii_trim_whitespace(numbers), "+").cast(pa.float64())


def number_holds(text: str, op: str, limit: Decimal) -> bool:
    """Compare one text with a number."""
    try:
        return bool(COMPARE[op](parse_number(text), limit))
    except ValueError:
        return op == "!="


def _exactly(numbers: pa.Array, op: str, limit: Decimal) -> Any:
    encoded = numbers.dictionary_encode()
    holds = [number_holds(text, op, limit) for text in encoded.dictionary.to_pylist()]
    return np.array(holds, np.bool_)[np.asarray(encoded.indices)]
