"""COUNT and GROUP BY over batches: keys made a column at a time, counts added up, memory bounded by the groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from aggregator.base.allowance import Holding
from aggregator.lql import tree
from aggregator.lql.columns import Columns, as_text, changed_case, decoded
from aggregator.lql.errors import LqlError
from aggregator.lql.json_path import path_text
from aggregator.lql.operand import Column, Field, JsonPath, Message, Target, Timestamp, innermost, target_of
from aggregator.lql.pace import Pace
from aggregator.lql.render import key_to_text
from aggregator.lql.template import field_text, micros, var_text

MAX_GROUPS = 1_000_000
_MERGE_ROWS = 200_000  # rows of partial counts that are added up before more come
Maker = Callable[[pa.RecordBatch], pa.Array]


class Counter:
    """Counts of the rows that it is given, per value of the keys, or of all where there are no keys."""

    def __init__(self, keys: Sequence[tree.Operand | tree.Every], columns: Columns) -> None:
        """Compile GROUP BY. A key of `columns` keeps its type; others are text. Raises LqlError."""
        self.names = [key_to_text(key) for key in keys]
        self._makers = [_maker(key, columns) for key in keys]
        self._parsing = any(_is_parsed(key) for key in keys)
        self._pace = Pace()
        self._partial: list[pa.Table] = []
        self._held = Holding()
        self._count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows. Raises LqlError beyond MAX_GROUPS groups, and what `Allowance` does."""
        self._count += batch.num_rows
        if not self._makers or batch.num_rows == 0:
            return
        for part in self._pace.parts(batch) if self._parsing else [batch]:
            made = pa.table([make(part) for make in self._makers], self._places)
            self._partial.append(made.group_by(self._places).aggregate([([], "count_all")]))
        if sum(part.num_rows for part in self._partial) > _MERGE_ROWS:
            self._merge()
        self._held.set(sum(part.nbytes for part in self._partial))

    def table(self, most_first: bool | None = None) -> pa.Table:
        """A row per group: its keys, null where there is none, and `count`; ascending by the keys in their order.

        most_first: by their counts instead, equal ones by their keys; False: the smallest first.
        """
        if not self._makers:
            return pa.table({"count": [self._count]})
        self._merge()
        if not self._partial:
            return pa.table({name: pa.nulls(0) for name in [*self._places, "count"]}).rename_columns(
                [*self.names, "count"]
            )
        order = [(place, "ascending") for place in self._places]
        if most_first is not None:
            order.insert(0, ("count_all", "descending" if most_first else "ascending"))
        counted = self._partial[0].sort_by(order)
        self._held.set(0)  # it is the caller's now
        return counted.rename_columns([*self.names, "count"])

    @property
    def _places(self) -> list[str]:
        """Names of the key columns while counting: keys themselves may be equal."""
        return [str(i) for i in range(len(self._makers))]

    def _merge(self) -> None:
        if not self._partial:
            return
        joined = pa.concat_tables(self._partial).group_by(self._places).aggregate([("count_all", "sum")])
        if joined.num_rows > MAX_GROUPS:
            raise LqlError(
                f"GROUP BY makes more than {MAX_GROUPS} groups", hint="group by less, or choose fewer records"
            )
        self._partial = [joined.rename_columns([*self._places, "count_all"])]


def _is_parsed(key: tree.Operand | tree.Every) -> bool:
    """Whether making the key parses each message."""
    return not isinstance(key, tree.Every) and isinstance(target_of(innermost(key)[0]), JsonPath)


def _maker(key: tree.Operand | tree.Every, columns: Columns) -> Maker:
    if isinstance(key, tree.Every):
        return _every(key.length_us, columns)
    name, functions = innermost(key)
    target = target_of(name)
    whole = isinstance(target, Column) or columns.extra is None  # the map has none of the field's values
    if isinstance(target, Field | Column) and whole and not functions and target.name in columns.names:
        return lambda batch: decoded(batch.column(target.name))
    source = _text(target, columns)

    def make(batch: pa.RecordBatch) -> pa.Array:
        texts = source(batch).cast(pa.large_string())
        for function in functions:
            texts = changed_case(texts, function)
        return texts

    return make


def _every(length_us: int, columns: Columns) -> Maker:
    def make(batch: pa.RecordBatch) -> pa.Array:
        stamps = micros(batch.column(columns.timestamp))
        spans = pc.subtract(stamps, _modulo(stamps, length_us))
        return spans.cast(pa.timestamp("us", "UTC"))

    return make


def _modulo(stamps: pa.Array, length: int) -> pa.Array:
    """Not negative, also before 1970."""
    rest = pc.subtract(stamps, pc.multiply(pc.divide(stamps, length), length))
    return pc.if_else(pc.less(rest, 0), pc.add(rest, length), rest)


def _text(target: Target, columns: Columns) -> Maker:
    if isinstance(target, Message):
        return lambda batch: as_text(batch.column(columns.message))
    if isinstance(target, JsonPath):
        return lambda batch: path_text(target.steps, batch.column(columns.message))
    if isinstance(target, Timestamp):
        raise LqlError("grouping by ts needs a length", hint='write ts EVERY "1h"')
    name, find = target.name, field_text if isinstance(target, Field) else var_text

    def make(batch: pa.RecordBatch) -> pa.Array:
        found = find(batch, columns, name)
        return pa.nulls(batch.num_rows, pa.large_string()) if found is None else found

    return make
