"""Columns of types that DuckDB lacks, in types that it has.

It refuses every statement over a table that has one such column, also where that is not asked for, and of lists of
no elements it ends the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

MOST_DIGITS = 38
"""Of a decimal number; one with more is text, which keeps all of them."""


def readable(dataset: Any) -> Any:
    """An `EventDataset` of the same events as DuckDB can read them."""
    given = dataset.events.arrow
    fields = [field.with_type(readable_type(field.type)) for field in given]
    arrow = pa.schema(fields, given.metadata)
    return dataset if arrow.equals(given) else dataset.reading(ReadableEvents(dataset.events, arrow))


def readable_type(kind: pa.DataType) -> pa.DataType:
    """The type that DuckDB reads values of a type in: the type itself for nearly all."""
    if pt.is_float16(kind):
        return pa.float32()
    if pt.is_decimal(kind):
        return _decimal(kind)
    if pt.is_struct(kind):
        return pa.struct([field.with_type(readable_type(field.type)) for field in kind])
    if pt.is_map(kind):
        return pa.map_(readable_type(kind.key_type), readable_type(kind.item_type), kind.keys_sorted)
    if pt.is_fixed_size_list(kind) and kind.list_size:
        return pa.list_(kind.value_field.with_type(readable_type(kind.value_type)), kind.list_size)
    if pt.is_list(kind) or pt.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(readable_type(kind.value_type)))
    if pt.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(readable_type(kind.value_type)))
    return kind


def _decimal(kind: pa.DataType) -> pa.DataType:
    digits = kind.precision - min(kind.scale, 0)
    if kind.scale >= 0 and not pt.is_decimal256(kind):
        return kind
    return pa.decimal128(digits, max(kind.scale, 0)) if digits <= MOST_DIGITS else pa.string()


class ReadableEvents:
    """`Events` with some columns in other types."""

    def __init__(self, events: Any, arrow: pa.Schema) -> None:
        self._events = events
        self.arrow = arrow
        """The columns as they are given."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    def holding(self, held: Any) -> ReadableEvents:
        """The same events, perhaps without some that lack texts."""
        return ReadableEvents(self._events.holding(held), self.arrow)

    def batches(self, bounds: Any, columns: Sequence[str], *, lazily: bool) -> Iterator[pa.RecordBatch]:
        """The named columns of at least the events within bounds."""
        for batch in self._events.batches(bounds, columns, lazily=lazily):
            schema = pa.schema([self.arrow.field(name) for name in batch.schema.names])
            arrays = [
                column if column.type == field.type else column.cast(field.type)
                for column, field in zip(batch.columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
