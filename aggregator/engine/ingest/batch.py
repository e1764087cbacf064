"""Tables of events as one record batch of the topic's schema. Nothing is stored here."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from esformat import InvalidEventError
from esformat.parts import KEY_COLUMNS, EventSchema, check_table, to_arrow

MAX_KEY_BYTES = 65_535
"""Of a space or grouping, as in the segment format."""


class BatchAdapter:
    """How batches with one set of columns become batches of a schema; made once for each set of columns."""

    def __init__(self, given: pa.Schema, schema: EventSchema) -> None:
        self._schema = schema
        self._target = schema.arrow
        self._steps: list[tuple[pa.Field, int]] | None = None  # None: only the slow way will do
        known, places = set(self._target.names), {name: place for place, name in enumerate(given.names)}
        self._without_values = [name for name in given.names if name not in known]  # so they are no columns
        if len(places) == len(given):
            types = given.types
            steps = [(field, places.get(field.name, -1)) for field in self._target]
            if all(self._is_simple(field, None if at < 0 else types[at]) for field, at in steps):
                self._steps = steps

    @staticmethod
    def _is_simple(field: pa.Field, kind: pa.DataType | None) -> bool:
        """Whether a column of that type, or none, becomes the field without a look at its values."""
        if kind is None:
            return bool(field.nullable) or field.name == "grouping"
        return bool(kind == field.type) or (field.name == "timestamp" and kind == pa.int64())

    def apply(self, given: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
        """The events of `given`, checked. Raises InvalidEventError, and says which column and row."""
        if self._steps is not None and (isinstance(given, pa.RecordBatch) or _one_chunk(given)):
            batch = given if isinstance(given, pa.RecordBatch) else given.to_batches()[0]
            if self._is_plain(batch, self._steps):
                return pa.RecordBatch.from_arrays([_column(batch, *step) for step in self._steps], schema=self._target)
        return _one_batch(check_table(to_arrow(given).drop_columns(self._without_values), self._schema))

    @staticmethod
    def _is_plain(batch: pa.RecordBatch, steps: list[tuple[pa.Field, int]]) -> bool:
        """Whether the batch can be taken as it is. Where not, the slow way tells what is wrong, if anything."""
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid:
            return False
        for field, place in steps:
            if place < 0:
                continue
            column = batch.column(place)
            if not field.nullable and column.null_count:
                return False
            if field.name in KEY_COLUMNS[:2] and column.nbytes > MAX_KEY_BYTES:
                longest = pc.max(pc.binary_length(column)).as_py()
                if longest is not None and longest > MAX_KEY_BYTES:
                    return False
        return True


def _column(batch: pa.RecordBatch, field: pa.Field, place: int) -> pa.Array:
    if place < 0:
        return (
            pa.nulls(len(batch), field.type)
            if field.nullable
            else pa.repeat(pa.scalar("").cast(field.type), len(batch))
        )
    column = batch.column(place)
    return column if column.type == field.type else column.view(field.type)  # int64 as timestamps: see _is_simple


def _one_chunk(table: pa.Table) -> bool:
    return len(table) > 0 and all(column.num_chunks == 1 for column in table.columns)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise InvalidEventError("the batch is larger than 2 GiB", hint="append it in smaller ones")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
