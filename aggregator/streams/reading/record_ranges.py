"""Ranges of record indexes: where the records after a key begin, and how many of a range are gone.

Records are gone whether retention, TRUNCATE or an erasure removed them, even if hidden events are still on disk.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from aggregator.base.merge import numbers
from aggregator.engine.backend import Backend
from aggregator.errors import InvalidRequestError
from aggregator.model import RECORD_INDEX, SegmentInfo
from aggregator.storage.manifest.lineage import Lineage
from aggregator.storage.memtable.batch import MemtableBatch
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.segments.table import Bounds
from aggregator.storage.state.state import CatalogState, Snapshot
from aggregator.storage.state.tombstones import Hidden, count_hidden, hidden_in, hidden_rows
from aggregator.streams.reading.position import Key, Position


def gone_between(snapshot: Snapshot, begin: Mapping[int, int], end: Mapping[int, int], pool: SegmentPool) -> int:
    """How many records with record indexes in [begin, end) of the snapshot's partitions no longer exist.

    Reads the record indexes of segments that are only partly inside, or have hidden records. Raises OSError,
    esformat.EsdbError.
    """
    gone = 0
    for number, _ in snapshot.partitions:
        first, last = begin.get(number, 0), end.get(number, 0)
        if first < last:
            hidden = hidden_in(snapshot.tombstones, number)
            found = snapshot.segments.select(Bounds(partition=number, first_index=first, end_index=last))
            there = sum(_of_segment(info, first, last, hidden, pool) for info in found)
            for part in snapshot.memtables:
                for batch in part.batches if part.partition == number else ():
                    if batch.first_index < last and batch.end_index > first:
                        there += _of_batch(batch, first, last, hidden)
            holes = (min(last, high) - max(first, low) for low, high in snapshot.holes.get(number, ()))
            never = sum(size for size in holes if size > 0)  # indexes skipped by a crash were never records
            gone += max(0, last - first - there - never)
    return gone


def _of_segment(info: SegmentInfo, first: int, last: int, hidden: Hidden, pool: SegmentPool) -> int:
    """How many of a segment's records are visible in [first, last)."""
    low, high = max(first, info.first_index), min(last, info.last_index + 1)
    whole = high - low == info.last_index + 1 - info.first_index
    covers_all = info.rows == info.last_index + 1 - info.first_index
    near = {
        space: cuts
        for space, cuts in hidden.items()
        if info.min_space <= space <= info.max_space
        and any(info.first_index < cut.end_index and info.min_timestamp <= cut.time_us for cut in cuts)
    }
    if whole:
        return info.rows - (sum(count_hidden(pool.get(info), info, near).values()) if near else 0)
    if covers_all and not near:
        return high - low
    columns = ["space", "timestamp", RECORD_INDEX] if near else [RECORD_INDEX]
    return sum(_visible(batch, first, last, near) for batch in pool.get(info).scan(columns=columns).batches())


def _of_batch(batch: MemtableBatch, first: int, last: int, hidden: Hidden) -> int:
    indexes = batch.record_indexes()
    if not hidden:
        return int(np.searchsorted(indexes, last) - np.searchsorted(indexes, first))
    columns = {name: batch.events.column(name) for name in ("space", "timestamp")}
    return _visible(pa.record_batch({**columns, RECORD_INDEX: pa.array(indexes)}), first, last, hidden)


def _visible(batch: pa.RecordBatch, first: int, last: int, hidden: Hidden) -> int:
    indexes = numbers(batch, RECORD_INDEX)
    mask = (indexes >= first) & (indexes < last)
    unseen = hidden_rows(pa.Table.from_batches([batch]), hidden) if hidden else None
    return int((mask if unseen is None else mask & ~unseen).sum())


def distance(state: CatalogState, begin: Mapping[int, int], end: Mapping[int, int]) -> int:
    """The maximum number of records between the two positions."""
    spans = (state.partitions[number][1].outside_holes(begin.get(number, 0), last) for number, last in end.items())
    return sum(last - first for mine in spans for first, last in mine)


def lineage_of(backend: Backend) -> Lineage:
    """The catalog's lineage, for positions. Raises InvalidRequestError if the catalog was never opened for writing."""
    lineage = backend.state.lineage
    if not lineage.identity or not lineage.names:
        raise InvalidRequestError("this catalog has no positions yet", hint="open it for writing once")
    return lineage


def first_after(snapshot: Snapshot, number: int, standing: Position, key: Key, backend: Backend) -> int:
    """The first record index of a partition whose record follows `key` in the round."""
    begin, end = standing.begin.get(number, 0), standing.end.get(number, 0)
    first = end
    for info in snapshot.segments.select(Bounds(partition=number, first_index=begin, end_index=end)):
        if info.min_timestamp > key[0]:
            first = min(first, info.first_index)
        elif info.max_timestamp >= key[0]:
            table = backend.pool.get(info).scan(start=key[0], columns=["timestamp", RECORD_INDEX]).to_table()
            first = min(first, _least(table, number, key, begin))
    for part in snapshot.memtables:
        for batch in part.batches if part.partition == number else ():
            if batch.max_timestamp >= key[0] and batch.end_index > begin and batch.first_index < end:
                columns = {"timestamp": batch.events.column("timestamp"), RECORD_INDEX: batch.record_indexes()}
                first = min(first, _least(pa.table(columns), number, key, begin))
    return max(first, begin)


def _least(table: pa.Table, number: int, key: Key, begin: int) -> int:
    times, indexes = numbers(table, "timestamp"), numbers(table, RECORD_INDEX)
    ties = (times == key[0]) & ((number > key[1]) | ((number == key[1]) & (indexes > key[2])))
    mine = indexes[((times > key[0]) | ties) & (indexes >= begin)]
    return int(mine.min()) if len(mine) else int(np.iinfo(np.int64).max)
