"""Conversion of column types that DuckDB lacks to types that it has.

DuckDB rejects every statement on a table with such a column, even if the column is not used, and crashes on lists of
fixed size 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

MOST_DIGITS = 38
"""The most digits of a DuckDB decimal; longer decimals become text, which keeps all digits."""


def readable(dataset: Any) -> Any:
    """Return an `EventDataset` of the same events in types that DuckDB can read."""
    given = dataset.events.arrow
    fields = [field.with_type(readable_type(field.type)) for field in given]
    arrow = pa.schema(fields, given.metadata)
    return dataset if arrow.equals(given) else dataset.reading(ReadableEvents(dataset.events, arrow))


def readable_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which DuckDB can read values of a type: nearly always the type itself."""
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
    """`Events` with some columns converted to other types."""

    def __init__(self, events: Any, arrow: pa.Schema) -> None:
        self._events = events
        self.arrow = arrow
        """The schema of the converted columns."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    def requiring(self, required_texts: Any) -> ReadableEvents:
        """The same events, possibly without some that lack required texts."""
        return ReadableEvents(self._events.requiring(required_texts), self.arrow)

    def batches(self, bounds: Any, columns: Sequence[str], *, lazily: bool) -> Iterator[pa.RecordBatch]:
        """Yield the named columns of at least the events within bounds."""
        for batch in self._events.batches(bounds, columns, lazily=lazily):
            schema = pa.schema([self.arrow.field(name) for name in batch.schema.names])
            arrays = [
                column if column.type == field.type else column.cast(field.type)
                for column, field in zip(batch.columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
