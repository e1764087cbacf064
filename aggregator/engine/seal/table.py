"""Unsealed batches as the table that a segment is written from, built in the process that writes the segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from aggregator.model import RECORD_INDEX, SchemaInfo
from aggregator.storage.memtable.batch import MemtableBatch, make_batch
from aggregator.storage.segments.file import arrow_schema
from aggregator.storage.state.schema import newest_of_families
from aggregator.storage.state.tombstones import Hidden, without_hidden
from esformat.parts import EventSchema


def with_indexes(batch: MemtableBatch) -> pa.RecordBatch:
    """The events of a batch as they were appended, with their record indexes."""
    field = pa.field(RECORD_INDEX, pa.int64(), nullable=False)
    columns = [*batch.events.columns, pa.array(batch.record_indexes())]
    return pa.RecordBatch.from_arrays(columns, schema=batch.events.schema.append(field))


def families(
    batches: Sequence[MemtableBatch], schemas: Iterable[SchemaInfo]
) -> Iterator[tuple[SchemaInfo, list[pa.RecordBatch]]]:
    """The batches with their record indexes, grouped by family, each with the newest schema of its family."""
    newest = {info.family: info for info in newest_of_families(schemas)}
    for family in dict.fromkeys(batch.schema.family for batch in batches):
        yield newest[family], [with_indexes(batch) for batch in batches if batch.schema.family == family]


def sealing_table(batches: Iterable[pa.RecordBatch], schema: EventSchema, hidden: Hidden) -> pa.Table:
    """Batches of one family with their record indexes as one table of the schema, without hidden events."""
    target = arrow_schema(schema)
    table = pa.Table.from_batches([_conform(batch, target) for batch in batches], target)
    return without_hidden(table, hidden)


def _conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """Convert a batch from an older schema of a family to a newer one: columns that were added since are null."""
    if batch.schema.equals(target):
        return batch
    known = set(batch.schema.names)
    arrays = [
        batch.column(field.name) if field.name in known or not field.nullable else pa.nulls(len(batch), field.type)
        for field in target
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def plain_batch(schema: SchemaInfo) -> MemtableBatch | None:
    """An event without values in the columns of a schema; None if one of them requires a value."""
    arrow = schema.schema.arrow
    if any(not field.nullable for field in schema.schema.fields):
        return None
    values: dict[str, Any] = dict.fromkeys(arrow.names)
    values |= dict.fromkeys(("space", "grouping"), b"" if schema.schema.binary_keys else "") | {"timestamp": 0}
    return make_batch(0, schema, pa.RecordBatch.from_pylist([values], schema=arrow), 0, 0)
