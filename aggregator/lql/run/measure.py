"""SUM, AVG, MIN, MAX, COUNT of values, COUNT(DISTINCT …) and percentiles: the values of a batch that they use, and the
results computed from partial ones.

Measures use numbers: those of a numeric column, and text values that are written as numbers; NaN is ignored. MIN and
MAX also use times and dates. Absent values are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.lql.errors import LqlError
from aggregator.lql.parse import tree
from aggregator.lql.parse.columns import Columns, decoded, is_text, value_type
from aggregator.lql.parse.operand import Timestamp, innermost, target_of
from aggregator.lql.parse.render import measure_to_text
from aggregator.lql.parse.template import micros
from aggregator.lql.text.number import numbers_in
from esformat.parts import plain_array

Maker = Callable[[pa.RecordBatch], pa.Array]
_KEPT_BITS = 10  # binary digits of a value that are kept if there are too many different values


def number_type(measure: tree.Measure, type_: pa.DataType) -> pa.DataType:
    """The type in which a measure uses values of a column. Raises LqlError if it cannot use them."""
    type_ = value_type(type_)
    if is_text(type_) or pa.types.is_null(type_) or pa.types.is_floating(type_):
        return pa.float64()
    number = pa.types.is_integer(type_) or pa.types.is_decimal(type_)
    if measure.function in ("MIN", "MAX"):
        if number or (pa.types.is_temporal(type_) and not pa.types.is_interval(type_)):
            return type_
    elif number and measure.function != "SUM":
        return pa.float64()
    elif pa.types.is_integer(type_):
        return pa.decimal128(20, 0)  # holds every 64-bit number; a sum has 38 digits and does not overflow
    elif pa.types.is_decimal(type_):
        return pa.decimal256(76, type_.scale)
    name, _ = innermost(measure.operand) if measure.operand is not None else (tree.Name(""), ())
    raise LqlError(f"{measure.function} takes numbers; {name.text} is of type {type_}", mark=name.mark)


def value_maker(measure: tree.Measure, make: Maker, type_: pa.DataType, columns: Columns) -> Maker:
    """A function that computes a measure's values, of `type_`. make: computes the operand's, as for GROUP BY."""
    assert measure.operand is not None
    if isinstance(target_of(innermost(measure.operand)[0]), Timestamp):
        return lambda batch: micros(batch.column(columns.timestamp)).cast(type_)

    def made(batch: pa.RecordBatch) -> pa.Array:
        values = decoded(make(batch))
        if is_text(values.type):
            values = numbers_in(values)
        if pa.types.is_floating(values.type):
            values = values.cast(pa.float64())
            values = pc.if_else(pc.is_nan(values), None, values)
        if pa.types.is_decimal(values.type):
            return plain_array(values, type_)
        return values.cast(type_, safe=not pa.types.is_floating(type_))  # large integers become the nearest float

    return made


def rounded(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The values with fewer binary digits: within a thousandth of the originals."""
    mantissa, exponent = np.frexp(values)
    few: npt.NDArray[np.float64] = np.ldexp(np.round(np.ldexp(mantissa, _KEPT_BITS)), exponent - _KEPT_BITS)
    return few


def percentiles(values: pa.Array, counts: pa.Array, rows: pa.Array, percent: Decimal) -> pa.Array:
    """The percentile of each group: its smallest value that at least `percent` percent of its values do not exceed.

    values, counts: those of all groups, group by group, ascending, absent ones last. rows: number of values in each
    group.
    """
    weights = np.where(np.asarray(values.is_valid()), np.asarray(counts), 0)
    ends = np.cumsum(np.asarray(rows))
    running = np.concatenate([[0], np.cumsum(weights)])
    before = running[np.concatenate([[0], ends[:-1]])] if len(ends) else ends
    held = running[ends] - before
    part = Fraction(percent) / 100
    ranks = np.maximum(1, -(-held * part.numerator // part.denominator))
    found = np.searchsorted(running[1:], before + ranks, side="left")
    places = pa.array(np.minimum(found, max(0, len(weights) - 1)), mask=held == 0)
    return values.take(places)


def narrowed(sums: pa.Array) -> pa.Array:
    """Sums of whole numbers as int64, or with all their digits if one does not fit; others unchanged."""
    if not pa.types.is_decimal(sums.type):
        return sums
    kind = pa.int64() if sums.type.scale == 0 else pa.decimal128(38, sums.type.scale)
    try:
        return sums.cast(kind)
    except pa.ArrowInvalid:
        return sums


def average(sums: pa.Array, counts: pa.Array) -> pa.Array:
    """Sums divided by the number of values; null if there were none."""
    return pc.divide(sums.cast(pa.float64()), pc.if_else(pc.equal(counts, 0), None, counts).cast(pa.float64()))


def too_many(measure: tree.Measure, most: int) -> LqlError:
    """The error for more different values than can be counted."""
    return LqlError(
        f"{measure_to_text(measure)} has more than {most} different values",
        mark=measure.mark,
        hint="choose fewer records, or group by less",
    )
