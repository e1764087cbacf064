"""COUNT, measures and GROUP BY over batches, computed by column, in memory bounded by the number of groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.base.allowance import Holding
from aggregator.lql.errors import LqlError
from aggregator.lql.parse import tree
from aggregator.lql.parse.columns import Columns, as_text, changed_case, decoded
from aggregator.lql.parse.operand import Column, Field, JsonPath, Message, Target, Timestamp, innermost, target_of
from aggregator.lql.parse.render import key_to_text, measure_to_text
from aggregator.lql.parse.template import field_text, micros, var_text
from aggregator.lql.run.adaptive_slices import AdaptiveSlices
from aggregator.lql.run.groups import ROWS, Groups
from aggregator.lql.run.json_path import path_text
from aggregator.lql.run.measure import (
    Maker,
    average,
    narrowed,
    number_type,
    percentiles,
    rounded,
    too_many,
    value_maker,
)

MAX_GROUPS = 1_000_000
_COUNT = tree.Measure()
_ALL = "all"  # the only key, with the same value in every row, if there are no others


class Counter:
    """Counts or measures rows, with a result row per value of the keys, or one for all rows if there are no keys."""

    def __init__(
        self,
        keys: Sequence[tree.Operand | tree.Every],
        columns: Columns,
        measures: Sequence[tree.Measure] = (),
        *,
        distinct: bool = False,
    ) -> None:
        """Compile the parts after SELECT and GROUP BY. A key of `columns` keeps its type; others are text.

        distinct: return only the keys. Raises LqlError.
        """
        self._measures = () if distinct else tuple(measures) or (tree.Measure(),)
        self._titles = [*map(key_to_text, keys), *map(measure_to_text, self._measures)]
        self._makers = {str(i): _maker(key, columns) for i, key in enumerate(keys)}
        if not keys:
            self._makers[_ALL] = lambda batch: pa.nulls(batch.num_rows, pa.int8())
        self._grouped = bool(keys)
        self._alike = not keys and all(measure.operand is None for measure in self._measures)
        operands = [measure.operand for measure in self._measures if measure.operand is not None]
        self.reads = frozenset[str]().union(*(_reads(each, columns) for each in [*keys, *operands]))
        """Columns that batches must have."""
        self.warnings: list[str] = []
        self._parsing = any(_is_parsed(each) for each in [*keys, *operands])
        self._slices = AdaptiveSlices()
        self._held = Holding()
        self._values = [_Values(measure, columns) for measure in self._measures]
        results = dict.fromkeys(result for values in self._values for result in values.results)
        self._groups = Groups(list(self._makers), list(results))
        self._apart = {values.name: Groups([*self._makers, values.name]) for values in self._values if values.apart}
        self._rounded: set[str] = set()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises LqlError if there are more than MAX_GROUPS groups, and the errors of `Allowance`."""
        if batch.num_rows == 0:
            return
        for part in self._slices.parts(batch) if self._parsing else [batch]:
            self._add(part)
        if not self._grouped and not self._apart:
            return
        self._held.set(self._groups.nbytes + sum(groups.nbytes for groups in self._apart.values()))

    def _add(self, batch: pa.RecordBatch) -> None:
        if self._alike:
            self._groups.add_alike(pa.table({_ALL: pa.nulls(1, pa.int8())}), batch.num_rows)
            return
        made = {name: make(batch) for name, make in self._makers.items()}
        for values in self._values:
            if values.name not in made and values.make is not None:
                made[values.name] = values.make(batch)
        rows = pa.table(made)
        if self._groups.add(rows):
            self._bound(self._groups.table())
        for values in self._values:
            if values.apart and self._apart[values.name].add(self._few_digits(rows, values.name)):
                self._bound_apart(values)

    def _bound(self, table: pa.Table | None) -> None:
        if table is not None and table.num_rows > MAX_GROUPS:
            raise LqlError(
                f"GROUP BY creates more than {MAX_GROUPS} groups", hint="group by less, or choose fewer records"
            )

    def _bound_apart(self, values: _Values) -> None:
        """Limit the number of different values; for percentiles, by rounding them."""
        groups = self._apart[values.name]
        table = groups.table()
        if table is None or table.num_rows <= MAX_GROUPS:
            return
        if values.measure.function == "PERCENTILE" and values.name not in self._rounded:
            self._rounded.add(values.name)
            groups.replace(self._few_digits(table, values.name), ROWS)
            self.warnings.append(
                f"{measure_to_text(values.measure)} is within 0.1 %: there are more than {MAX_GROUPS} different values"
            )
            table = groups.table()
        if table is not None and table.num_rows > MAX_GROUPS:
            raise too_many(values.measure, MAX_GROUPS)

    def _few_digits(self, rows: pa.Table, name: str) -> pa.Table:
        if name not in self._rounded:
            return rows
        values = rows[name].combine_chunks()
        few = pa.array(rounded(values.fill_null(0.0).to_numpy()), mask=np.asarray(values.is_null()))
        return rows.set_column(rows.schema.get_field_index(name), name, few)

    # ------------------------------------------------------------ the result

    def table(self, most_first: bool | None = None, order_by: tree.Measure = _COUNT) -> pa.Table:
        """A row per group: its keys, null if absent, and its measures; in ascending order of the keys.

        most_first: order by `order_by` instead, ties by their keys; False: smallest first. Nulls come last.
        """
        counted = self._groups.table()
        self._bound(counted)
        if counted is None:
            return self._empty()
        counted = counted.sort_by([(key, "ascending") for key in self._makers])
        measured = [self._result(values, counted) for values in self._values]
        keys = [counted[key] for key in self._makers if key != _ALL]
        table = pa.table([*keys, *measured], [str(i) for i in range(len(self._titles))])
        if most_first is not None:
            place = self._measures.index(order_by) if order_by in self._measures else None
            table = _ordered(table, counted[ROWS] if place is None else measured[place], most_first)
        self._held.set(0)  # the caller owns it now
        self._warn_of_nothing([*keys, *measured])
        return table.rename_columns(self._titles)

    def _warn_of_nothing(self, columns: Sequence[pa.ChunkedArray | pa.Array]) -> None:
        """Warn about keys and measures that have no value anywhere, because they may be mistyped."""
        counts = ("COUNT", "DISTINCT")
        whole = [None] * (len(columns) - len(self._measures)) + list(self._measures)
        for title, measure, column in zip(self._titles, whole, columns, strict=True):
            if measure is not None and measure.operand is None:
                continue
            counted = measure is not None and measure.function in counts
            if column.null_count == len(column) or (counted and pc.max(column).as_py() == 0):
                what = "value" if measure is None or counted else "number"
                self.warnings.append(f"{title!r}: no record that was read has a {what}")

    def _empty(self) -> pa.Table:
        """The result without rows: no group, or one if there are no keys."""
        rows = 0 if self._grouped else 1
        keys = [pa.nulls(rows) for key in self._makers if key != _ALL]
        return pa.table([*keys, *(values.nothing(rows) for values in self._values)], self._titles)

    def _result(self, values: _Values, counted: pa.Table) -> pa.ChunkedArray | pa.Array:
        """The column of a measure, with a row for each of `counted`, which is sorted by the keys."""
        if not values.apart:
            return values.result(counted)
        self._bound_apart(values)
        pairs = self._apart[values.name].table()
        assert pairs is not None
        pairs = pairs.sort_by([(key, "ascending") for key in [*self._makers, values.name]])
        counted_values = (values.name, "count")
        per_group = pairs.group_by(list(self._makers)).aggregate([([], "count_all"), counted_values])
        per_group = per_group.sort_by([(key, "ascending") for key in self._makers])
        if values.measure.percent is None:
            return per_group[f"{values.name}_count"]
        return percentiles(
            pairs[values.name].combine_chunks(),
            pairs[ROWS].combine_chunks(),
            per_group["count_all"].combine_chunks(),
            values.measure.percent,
        )


class _Values:
    """The values for one measure, as a column of the rows to group, and the results computed from them."""

    def __init__(self, measure: tree.Measure, columns: Columns) -> None:
        self.measure = measure
        self.apart = measure.function in ("DISTINCT", "PERCENTILE")  # needs the count of each different value
        self.name, self.type = ROWS, pa.int64()
        self.make: Maker | None = None
        self.results: list[tuple[str, str]] = []
        if measure.operand is None:
            return
        make = _operand_maker(measure.operand, columns)
        text = key_to_text(measure.operand)
        self.make = make
        self.name = f"{text} as it is"
        if measure.function not in ("COUNT", "DISTINCT"):
            self.type = number_type(measure, _type_of(measure.operand, columns))
            self.make = value_maker(measure, make, self.type, columns)
            self.name = f"{text} as {self.type}"
        how = {"COUNT": ["count"], "SUM": ["sum"], "AVG": ["sum", "count"], "MIN": ["min"], "MAX": ["max"]}
        self.results = [(self.name, each) for each in how.get(measure.function, [])]

    def result(self, counted: pa.Table) -> pa.ChunkedArray | pa.Array:
        function = self.measure.function
        if function == "AVG":
            return average(counted[f"{self.name}_sum"], counted[f"{self.name}_count"])
        if function == "SUM":
            return narrowed(counted[f"{self.name}_sum"])
        return counted[ROWS if self.measure.operand is None else f"{self.name}_{function.lower()}"]

    def nothing(self, rows: int) -> pa.Array:
        """The column if there are no records."""
        if self.measure.function in ("COUNT", "DISTINCT"):
            return pa.array([0] * rows, pa.int64())
        return narrowed(pa.nulls(rows, self.type))


def _ordered(table: pa.Table, by: pa.ChunkedArray | pa.Array, most_first: bool) -> pa.Table:
    """Sort the rows by a measure; ties keep their order."""
    places = pa.array(range(table.num_rows), pa.int64())
    sorting = pa.table({"by": by, "place": places})
    direction = "descending" if most_first else "ascending"
    return table.take(pc.sort_indices(sorting, sort_keys=[("by", direction), ("place", "ascending")]))


def _operand_maker(operand: tree.Operand, columns: Columns) -> Maker:
    """Computes the values of an operand like GROUP BY; for ts, the times."""
    if isinstance(target_of(innermost(operand)[0]), Timestamp):
        return lambda batch: batch.column(columns.timestamp)
    return _maker(operand, columns)


def _type_of(operand: tree.Operand, columns: Columns) -> pa.DataType:
    name, functions = innermost(operand)
    target = target_of(name)
    if isinstance(target, Timestamp):
        return pa.timestamp("us", "UTC")
    if _is_whole_column(target, functions, columns):
        assert isinstance(target, Field | Column)
        return columns.schema.field(target.name).type
    return pa.string()


def _reads(key: tree.Operand | tree.Every, columns: Columns) -> set[str]:
    """The columns needed to compute a key or a value."""
    if isinstance(key, tree.Every):
        return {columns.timestamp}
    name, functions = innermost(key)
    target = target_of(name)
    if isinstance(target, Timestamp):
        return {columns.timestamp}
    if isinstance(target, Message | JsonPath):
        return {columns.message}
    own = {target.name} & set(columns.names)
    if _is_whole_column(target, functions, columns):
        return own
    tags = {columns.tags} if isinstance(target, Column) else set()
    return own | {each for each in (columns.extra, *tags) if each is not None}


def _is_whole_column(target: Target, functions: Sequence[str], columns: Columns) -> bool:
    """Whether the values are those of a column, with its type."""
    whole = isinstance(target, Column) or columns.extra is None  # no map has other values of the field
    return isinstance(target, Field | Column) and whole and not functions and target.name in columns.names


def _is_parsed(key: tree.Operand | tree.Every) -> bool:
    """Whether computing the key parses each message."""
    return not isinstance(key, tree.Every) and isinstance(target_of(innermost(key)[0]), JsonPath)


def _maker(key: tree.Operand | tree.Every, columns: Columns) -> Maker:
    if isinstance(key, tree.Every):
        return _every(key.length_us, columns)
    name, functions = innermost(key)
    target = target_of(name)
    if _is_whole_column(target, functions, columns):
        assert isinstance(target, Field | Column)
        kind = columns.schema.field(target.name).type
        as_group = as_text if pa.types.is_nested(kind) or pa.types.is_interval(kind) else decoded  # not groupable
        return lambda batch: _equal_alike(as_group(batch.column(target.name)))
    source = _text(target, columns)
    return lambda batch: changed_case(source(batch).cast(pa.large_string()), functions)


def _equal_alike(values: pa.Array) -> pa.Array:
    """Normalise floats for grouping: -0.0 to 0.0, which `=` does not distinguish, and every NaN to the same one; half
    floats, which Arrow cannot sort, to float32.
    """
    if not pa.types.is_floating(values.type):
        return values
    kind = pa.float32() if pa.types.is_float16(values.type) else values.type
    values = values.cast(kind)
    return pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), kind), pc.add(values, pa.scalar(0, kind)))


def _every(length_us: int, columns: Columns) -> Maker:
    def make(batch: pa.RecordBatch) -> pa.Array:
        stamps = micros(batch.column(columns.timestamp))
        spans = pc.subtract(stamps, _modulo(stamps, length_us))
        return spans.cast(pa.timestamp("us", "UTC"))

    return make


def _modulo(stamps: pa.Array, length: int) -> pa.Array:
    """The nonnegative remainder, even before 1970."""
    rest = pc.subtract(stamps, pc.multiply(pc.divide(stamps, length), length))
    return pc.if_else(pc.less(rest, 0), pc.add(rest, length), rest)


def _text(target: Target, columns: Columns) -> Maker:
    if isinstance(target, Message):
        return lambda batch: as_text(batch.column(columns.message))
    if isinstance(target, JsonPath):
        return lambda batch: path_text(target.steps, batch.column(columns.message))
    if isinstance(target, Timestamp):
        raise LqlError("grouping by ts needs an interval", hint='write ts EVERY "1h"')
    name, find = target.name, field_text if isinstance(target, Field) else var_text

    def make(batch: pa.RecordBatch) -> pa.Array:
        found = find(batch, columns, name)
        return pa.nulls(batch.num_rows, pa.large_string()) if found is None else found

    return make
