"""Counts a topic's events by time: whole segments from the manifest if possible, others from their timestamps."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from aggregator.base.allowance import check
from aggregator.base.histogram import I64, Histogram, TimeCounter, counted, counts_between
from aggregator.base.merge import numbers
from aggregator.model import SegmentInfo
from aggregator.read.memtable_source import lookup_groups, unsealed_batches
from aggregator.read.query import Query
from aggregator.read.segment_source import segment_batches, segment_times
from aggregator.read.view import View
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.state.state import Snapshot
from aggregator.storage.state.tombstones import hidden_in


def histogram_of(
    snapshot: Snapshot, pool: SegmentPool, query: Query, segments: list[SegmentInfo], buckets: int
) -> Histogram:
    """The events that match a query, counted by time. segments: those that may contain some."""
    span = time_bounds(snapshot, segments)
    if span is None:
        return Histogram(0, 1, ())
    return counted(
        *span,
        (query.start, query.end),
        buckets,
        lambda counter: count_times(counter, snapshot, pool, query, segments),
    )


def time_bounds(snapshot: Snapshot, segments: Iterable[SegmentInfo]) -> tuple[int, int] | None:
    """The first and the last time of segments and of all unsealed events; None if there are none."""
    known = [(info.min_timestamp, info.max_timestamp) for info in segments]
    known += [(batch.min_timestamp, batch.max_timestamp) for part in snapshot.memtables for batch in part.batches]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def count_times(
    counter: TimeCounter, snapshot: Snapshot, pool: SegmentPool, query: Query, segments: Iterable[SegmentInfo]
) -> None:
    """Count the events that match a query. If all events of a segment match, it is read only if it covers several
    spans of the counter, and only once while the cache has room for its counts.
    """
    narrow = query.space is not None or query.grouping is not None or bool(query.conditions)
    target = pa.schema([snapshot.schema_set.union.arrow.field("timestamp")])
    names = dict(snapshot.partitions)
    views = {number: View(query, target, hidden_in(snapshot.tombstones, number)) for number in names}
    for info in segments:
        check()
        view = views[info.partition]
        if not narrow and not view.hidden and _inside(info, query):
            _count_whole(counter, pool, info)
            continue
        if not view.hidden:
            whole = not narrow and _mostly_inside(info, query)
            for times in segment_times(pool, info, Query() if whole else query):
                counter.add_times(times)
            continue
        for batch in segment_batches(pool, info, view, names[info.partition], unordered=frozenset()):
            counter.add_times(numbers(batch, "timestamp"))
    for group in lookup_groups(snapshot, query):
        partition = group.partitions[0]  # of all its lookups
        for batch in unsealed_batches(group, views[partition], names[partition]):
            counter.add_times(numbers(batch, "timestamp"))


def _count_whole(counter: TimeCounter, pool: SegmentPool, info: SegmentInfo) -> None:
    """Count all events of a segment."""
    low, high = _times(info)
    if counter.whole(low, high):
        counter.add(low, high, info.rows)
        return
    key = (info.number, info.checksum, counter.width)  # another history of the catalog may reuse a number
    counts: I64 | None = pool.counts.find(key)
    if counts is None:
        counts = counts_between(low, high, counter.width, segment_times(pool, info, Query()))
        pool.counts.keep(key, counts, counts.nbytes)
    counter.add_counts(low, high, counts)


def _mostly_inside(info: SegmentInfo, query: Query) -> bool:
    """Whether the query covers more than half of a segment's time: filtering would then cost more than it saves."""
    low, high = _times(info)
    start = low if query.start is None else max(low, query.start)
    end = high if query.end is None else min(high, query.end)
    return 2 * (end - start) > high - low


def _times(info: SegmentInfo) -> tuple[int, int]:
    return info.min_timestamp, info.max_timestamp


def _inside(info: SegmentInfo, query: Query) -> bool:
    """Whether the query covers all times of a segment."""
    start, end = query.start, query.end
    return (start is None or start <= info.min_timestamp) and (end is None or info.max_timestamp < end)
