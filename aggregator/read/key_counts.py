"""Counts of a topic's events by space or index value, from metadata if possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aggregator.read.scan import Scan
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.state.state import Snapshot


def counted_spaces(snapshot: Snapshot, pool: SegmentPool, scan: Callable[..., Scan]) -> dict[str | bytes, int]:
    """Spaces in ascending order, with their numbers of events. scan: the topic's, used if some events are hidden."""
    if snapshot.tombstones:
        return _read(scan, "space")
    counts: Counter[Any] = Counter()
    for info in snapshot.segments:
        for space, count in pool.get(info).spaces().pairs():
            counts[space] += count
    _add_unsealed(snapshot, "space", counts)
    return dict(sorted(counts.items()))


def counted_values(snapshot: Snapshot, pool: SegmentPool, name: str, scan: Callable[..., Scan]) -> dict[Any, int]:
    """Values of an indexed column in ascending order, without null, with their numbers of events.

    If the column has several types, values are counted as scans return them.
    """
    fields = [field for info in snapshot.schemas for field in info.schema.fields if field.name == name]
    types = {field.type for field in fields if field.indexed}  # else no event had a value
    if snapshot.tombstones or len(types) > 1:
        return _read(scan, name)
    counts: Counter[Any] = Counter()
    for info in snapshot.segments:
        segment = pool.get(info)
        for value, count in segment.index_values(name).pairs() if name in segment.indexes else ():
            counts[value] += count
    _add_unsealed(snapshot, name, counts)
    return dict(sorted(counts.items()))


def _read(scan: Callable[..., Scan], column: str) -> dict[Any, int]:
    counts: Counter[Any] = Counter()
    for batch in scan(columns=[column]).batches():
        _add(batch.column(0), counts)
    return dict(sorted(counts.items()))


def _add_unsealed(snapshot: Snapshot, column: str, counts: Counter[Any]) -> None:
    for part in snapshot.memtables:
        for batch in part.batches:
            if column in batch.events.schema.names:
                _add(batch.events.column(column), counts)


def _add(column: pa.Array, counts: Counter[Any]) -> None:
    found = pc.value_counts(column.drop_null())
    values, numbers = (found.field(part).to_pylist() for part in (0, 1))
    for value, number in zip(values, numbers, strict=True):
        counts[value] += number
