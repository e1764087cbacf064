"""Records and bytes of each stream, by segment, from metadata where possible.

A record of a segment counts as the segment's average bytes on disk per record; an unsealed record as the average bytes
in memory per unsealed record of its partition. Hidden records do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from aggregator.base.merge import numbers
from aggregator.engine.backend import Backend
from aggregator.lql.parse.tree import Source
from aggregator.model import RECORD_INDEX, SegmentInfo
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.state.state import MemtableView, Snapshot
from aggregator.storage.state.streams import Stream
from aggregator.storage.state.tombstones import Hidden, count_hidden, hidden_in, without_hidden


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a stream in one segment, or in the unsealed events (`segment` None). Times are in µs."""

    topic: str
    name: str
    segment: int | None
    records: int
    size_bytes: float
    min_us: int
    max_us: int


def shares(backend: Backend, source: Source | None) -> Iterator[Share]:
    """The shares of all selected streams. Raises LqlError, OSError, esformat.CorruptSegmentError."""
    backend.refresh()
    topics: dict[str, list[Stream]] = {}
    for stream in backend.streams.select(source):
        topics.setdefault(stream.topic, []).append(stream)
    for name, streams in topics.items():
        topic = backend.state.topics.get(name)
        if topic is None:  # deleted in between
            continue
        snapshot, pin = backend.snapshot(topic, None)
        try:
            yield from shares_of(backend.pool, snapshot, {stream.name for stream in streams})
        finally:
            pin.release()


def shares_of(pool: SegmentPool, snapshot: Snapshot, wanted: set[str]) -> Iterator[Share]:
    """The shares of the streams with those names."""
    segments: dict[int, list[SegmentInfo]] = {}
    for info in snapshot.segments:
        segments.setdefault(info.partition, []).append(info)
    for number, _ in snapshot.partitions:
        every = hidden_in(snapshot.tombstones, number)
        hidden = {name.encode(): every[name.encode()] for name in wanted if name.encode() in every} if every else {}
        for info in segments.get(number, ()):
            yield from _sealed(pool, snapshot, info, wanted, hidden)
        for part in snapshot.memtables:
            if part.partition == number:
                yield from _unsealed(snapshot, part, wanted, hidden)


def record_bytes(info: SegmentInfo) -> float:
    """Average bytes per record of a segment."""
    return info.size_bytes / info.rows


def unsealed_record_bytes(part: MemtableView) -> float:
    """Average bytes per unsealed record of a partition."""
    return sum(batch.size_bytes for batch in part.batches) / sum(batch.rows for batch in part.batches)


def _sealed(
    pool: SegmentPool, snapshot: Snapshot, info: SegmentInfo, wanted: set[str], hidden: Hidden
) -> Iterator[Share]:
    """The shares in a segment. For several streams, their times are those of the segment."""
    few = len(wanted) == 1
    segment = pool.get(info)
    found = {name: segment.spaces(name).get(name) for name in wanted} if few else dict(segment.spaces("{"))
    gone = count_hidden(segment, info, hidden) if hidden else {}
    for key, count in found.items():
        name = str(key)
        left = (count or 0) - gone.get(name.encode(), 0)
        if name not in wanted or not left:
            continue
        low, high = info.min_timestamp, info.max_timestamp
        if few:
            columns = ["space", "timestamp", RECORD_INDEX] if hidden else ["timestamp"]
            table = segment[name].scan(columns=columns).to_table()
            times = numbers(without_hidden(table, hidden), "timestamp")
            low, high = int(times.min()), int(times.max())
        yield Share(snapshot.topic.name, name, info.number, left, left * record_bytes(info), low, high)


def _unsealed(snapshot: Snapshot, part: MemtableView, wanted: set[str], hidden: Hidden) -> Iterator[Share]:
    tables = []
    for batch in part.batches:
        table = pa.table(
            {
                "space": batch.events.column("space"),
                "timestamp": batch.events.column("timestamp").cast(pa.int64()),
                RECORD_INDEX: batch.record_indexes(),
            }
        )
        tables.append(without_hidden(table, hidden))
    whole = pa.concat_tables(tables)
    if len(wanted) == 1:
        whole = whole.filter(pc.equal(whole["space"], next(iter(wanted))))
    times = [("timestamp", "count"), ("timestamp", "min"), ("timestamp", "max")]
    grouped = whole.group_by("space").aggregate(times)
    size = unsealed_record_bytes(part)
    for row in grouped.to_pylist():
        if row["space"] in wanted:
            yield Share(
                snapshot.topic.name,
                row["space"],
                None,
                row["timestamp_count"],
                row["timestamp_count"] * size,
                row["timestamp_min"],
                row["timestamp_max"],
            )
