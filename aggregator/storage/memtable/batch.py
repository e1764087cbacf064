"""An unsealed batch of a partition, or several merged ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.model import SchemaInfo
from esformat.parts import MessageWriter, message_writer

I64 = npt.NDArray[np.int64]
SMALL_BYTES = 32 << 10
"""Batches up to this size are merged."""


class SchemaPlaces:
    """Numbers distinct schemas, because a schema's own number is unique only within its catalog."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}  # by identity, because nearly all are the same objects
        self._distinct: list[SchemaInfo] = []

    def place(self, schema: SchemaInfo) -> int:
        """The number of a schema; equal schemas have the same."""
        found = self._known.get(id(schema))
        if found is None:
            if schema not in self._distinct:
                self._distinct.append(schema)
            found = self._known[id(schema)] = self._distinct.index(schema)
        return found


@dataclass(slots=True, eq=False)
class MemtableBatch:
    """A batch in a partition: its events have the record indexes [first_index, first_index + rows), or `indexes`.

    content: the batch, or the message that it is decoded from on demand.
    ends: for merged batches, the row after the last one of each. Only there may the batch be cut for sealing, because
    the log is read by whole batches.
    """

    first_index: int
    schema: SchemaInfo
    content: pa.RecordBatch | bytes
    rows: int
    min_timestamp: int
    max_timestamp: int
    size_bytes: int
    arrived_us: int
    joined: int = 0  # how many times it was merged
    indexes: I64 | None = None
    ends: I64 | None = None
    _read: pa.RecordBatch | None = field(default=None, init=False)

    @property
    def events(self) -> pa.RecordBatch:
        """The events."""
        if isinstance(self.content, pa.RecordBatch):
            return self.content
        if self._read is None:  # two concurrent readers both decode it; either result is good
            self._read = pa.ipc.read_record_batch(self.content, self.schema.schema.arrow)
        return self._read

    @property
    def end_index(self) -> int:
        """The record index after the last event."""
        return self.first_index + self.rows if self.indexes is None else int(self.indexes[-1]) + 1

    def goes_with(self, other: MemtableBatch) -> bool:
        """Whether the two can be merged: same schema, merged equally often, and small."""
        alike = self.joined == other.joined and self.schema is other.schema
        return alike and self.size_bytes <= SMALL_BYTES and other.size_bytes <= SMALL_BYTES

    def from_index(self, index: int) -> MemtableBatch:
        """The events from a record index on, of which there is at least one."""
        first = int(np.searchsorted(self.record_indexes(), index))
        return self.part(first, self.rows)

    def part(self, first: int, end: int) -> MemtableBatch:
        """The events in rows [first, end), of which there is at least one."""
        indexes = self.record_indexes()
        return replace(
            self,
            first_index=int(indexes[first]),
            content=self.events.slice(first, end - first),
            rows=end - first,
            size_bytes=self.size_bytes * (end - first) // self.rows,
            indexes=None if self.indexes is None else indexes[first:end],
            ends=None if self.ends is None else self.ends[(self.ends > first) & (self.ends <= end)] - first,
        )

    def cut_at(self, size_bytes: int) -> tuple[MemtableBatch, MemtableBatch] | None:
        """Split between merged batches: the first, of about `size_bytes`, and the rest; None if there is only one."""
        if self.ends is None:
            return None
        ends = self.ends[self.ends < self.rows]
        if not len(ends):
            return None
        place = min(int(np.searchsorted(ends, size_bytes * self.rows // max(1, self.size_bytes))), len(ends) - 1)
        row = int(ends[place])
        first = self.part(0, row)
        return first, replace(self.part(row, self.rows), size_bytes=self.size_bytes - first.size_bytes)

    def record_indexes(self) -> I64:
        """The record index of each event."""
        if self.indexes is not None:
            return self.indexes
        return np.arange(self.first_index, self.first_index + self.rows, dtype=np.int64)


def make_batch(
    first_index: int, schema: SchemaInfo, batch: pa.RecordBatch, size_bytes: int, now_us: int
) -> MemtableBatch:
    """Create a batch from a nonempty batch."""
    times = times_of(batch)
    return MemtableBatch(first_index, schema, batch, len(batch), int(times.min()), int(times.max()), size_bytes, now_us)


def times_of(batch: pa.RecordBatch) -> I64:
    """The timestamps of a batch's events."""
    return np.asarray(batch.column("timestamp").view(pa.int64()).to_numpy())


def join(batches: Sequence[MemtableBatch]) -> MemtableBatch:
    """Merge adjacent batches of one schema."""
    follow = all(a.end_index == b.first_index for a, b in pairwise(batches))
    whole = follow and all(batch.indexes is None for batch in batches)
    return MemtableBatch(
        batches[0].first_index,
        batches[0].schema,
        _whole(batches),
        sum(batch.rows for batch in batches),
        min(batch.min_timestamp for batch in batches),
        max(batch.max_timestamp for batch in batches),
        sum(batch.size_bytes for batch in batches),
        batches[0].arrived_us,
        batches[0].joined + 1,
        None if whole else np.concatenate([batch.record_indexes() for batch in batches]),
        _ends(batches),
    )


def _whole(batches: Sequence[MemtableBatch]) -> pa.RecordBatch | bytes:
    """The events of batches as one batch, or one message."""
    messages = [batch.content for batch in batches if isinstance(batch.content, bytes)]
    if len(messages) < len(batches):
        return pa.concat_batches([batch.events for batch in batches])
    schema = batches[0].schema.schema.arrow
    writer = writer_of(schema)
    whole = None if writer is None else writer.join(messages)
    if whole is not None:
        return whole
    begin = schema.serialize().to_pybytes()
    with pa.ipc.open_stream(b"".join([begin, *messages])) as stream:
        return stream.read_all().combine_chunks().to_batches()[0]


@lru_cache(maxsize=64)
def writer_of(schema: pa.Schema) -> MessageWriter | None:
    """The writer that joins and searches messages of a schema; None if it has types that the core does not support."""
    return message_writer(schema, schema, {name: place for place, name in enumerate(schema.names)}, -1)


def _ends(batches: Sequence[MemtableBatch]) -> I64:
    """The row after each batch of the merged batches."""
    if all(batch.ends is None for batch in batches):
        return np.cumsum([batch.rows for batch in batches])
    mine = [np.array([batch.rows]) if batch.ends is None else batch.ends for batch in batches]
    bases = accumulate((batch.rows for batch in batches[:-1]), initial=0)
    return np.concatenate([ends + base for ends, base in zip(mine, bases, strict=True)])
