"""Packed rows: many events in one row, for queries that use little of each; Spark unpacks them.

A row from Python costs Java several times as much as a row that it creates from an array element. So the values of a
column are passed as arrays, and each run of equal keys once, with its number of events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from esformat.read.row_range import EVENTS, KEYS, runs_of_rows, schema_of
from esformat.spark.condition import columns_of, matching
from esformat.spark.event_columns import column_name
from esformat.spark.reader import SegmentReader
from esformat.spark.scan_plan import RowRange, opened_as_planned
from esformat.spark.types import arrow_schema

MOST_EVENTS = 2048  # per row
LEAVES = 64  # whose runs form one batch
_FIXED = (
    BooleanType, ByteType, DateType, DoubleType, FloatType, IntegerType, LongType, ShortType, TimestampNTZType,
    TimestampType,
)  # fmt: skip


def can_be_packed(schema: StructType) -> bool:
    """Whether all columns are keys, or there is only one column, of fixed width.

    Both together would cost more than they save if spaces have few events, since each would be an array.
    """
    return all(each.name in KEYS for each in schema) or (len(schema) == 1 and isinstance(schema[0].dataType, _FIXED))


def packed_schema(schema: StructType) -> StructType:
    """The columns of packed rows for a schema that can be packed."""
    columns = [
        each if each.name in KEYS else StructField(each.name, ArrayType(each.dataType, each.nullable), nullable=False)
        for each in schema
    ]
    counted = all(each.name in KEYS for each in schema)
    return StructType([*columns, *([StructField(EVENTS, IntegerType(), nullable=False)] if counted else [])])


def unpacked_schema(packed: StructType) -> StructType:
    """The columns of the events that packed rows stand for."""
    columns = []
    for each in packed:
        kind = each.dataType
        if isinstance(kind, ArrayType):
            columns.append(StructField(each.name, kind.elementType, kind.containsNull))
        elif each.name in KEYS:
            columns.append(each)
    return StructType(columns)


def unpacked(rows: DataFrame) -> DataFrame:
    """The events that packed rows stand for."""
    names = [each.name for each in unpacked_schema(rows.schema)]
    columns = [
        column_name(name) if name in KEYS else f"explode({column_name(name)}) AS {column_name(name)}" for name in names
    ]
    if EVENTS in rows.columns:
        columns.append(f"explode(array_repeat(0, {EVENTS})) AS {EVENTS}")
    return rows.selectExpr(*columns).select(*map(column_name, names))


class PackedReader(SegmentReader):
    """Reads events as packed rows."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of one task as packed rows."""
        schema = arrow_schema(packed_schema(self._schema))
        looked_at = {name for each in self._where for name in columns_of(each)}
        needed = {*self._schema.names, *looked_at}
        if needed <= set(KEYS):
            keys = [name for name in KEYS if name in needed]
            yield from (_counted(runs, schema) for rows in partition.value or () for runs in self._runs(rows, keys))
        else:
            yield from (_packed(batch, schema) for batch in super().read(partition))

    def _runs(self, rows: RowRange, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the runs of a range with matching keys. Reads only the directory."""
        with opened_as_planned(rows) as segment:
            runs = runs_of_rows(segment, rows.first, rows.last, self._bounds(schema_of(segment)), keys)
            while few := list(islice(runs, LEAVES)):
                batch = pa.Table.from_batches(few).combine_chunks().to_batches()[0]
                found = matching(batch, self._where)
                if len(found):
                    yield found


def _counted(runs: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert runs to packed rows of at most MOST_EVENTS events."""
    counts = np.asarray(runs.column(EVENTS))
    parts = -(-counts // MOST_EVENTS)
    pieces = np.full(int(parts.sum()), MOST_EVENTS)
    pieces[np.cumsum(parts) - 1] = counts - (parts - 1) * MOST_EVENTS
    row_of = None if len(pieces) == len(runs) else pa.array(np.repeat(np.arange(len(runs)), parts))
    keys = [runs.column(name) if row_of is None else runs.column(name).take(row_of) for name in schema.names[:-1]]
    return pa.RecordBatch.from_arrays([*keys, pa.array(pieces.astype(np.int32))], schema=schema)


def _packed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert events to packed rows, each with one value per key."""
    count = len(batch)
    edges = np.arange(0, count, MOST_EVENTS)
    for name in KEYS:
        if name in batch.schema.names:
            ends = np.asarray(pc.run_end_encode(batch.column(name)).run_ends)
            edges = np.union1d(edges, ends[:-1])
    first, offsets = pa.array(edges), pa.array(np.append(edges, count).astype(np.int32))
    columns = []
    for field in schema:
        if field.name in KEYS:
            columns.append(batch.column(field.name).take(first))
        elif field.name == EVENTS:
            columns.append(pa.array(np.diff(edges, append=count).astype(np.int32)))
        else:
            columns.append(pa.ListArray.from_arrays(offsets, batch.column(field.name), type=field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
