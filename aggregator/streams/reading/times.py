"""Histogram of a SELECT's records. Topics of which all events are selected are counted from segment metadata."""

from __future__ import annotations

from dataclasses import replace

from aggregator.base.histogram import Histogram, TimeCounter, counted
from aggregator.base.merge import numbers
from aggregator.lql import Filter, TimeSpan
from aggregator.read.query import Query
from aggregator.read.time_counts import count_times, time_bounds
from aggregator.storage.segments.pool import SegmentPool
from aggregator.streams.reading.row_filter import Round
from aggregator.streams.reading.windows import Material, TopicPart, read_unordered


def count_by_time(material: Material, where: Filter, span: TimeSpan, pool: SegmentPool, buckets: int) -> Histogram:
    """Count the records in `span` that satisfy `where`, in at most `buckets` buckets."""
    span_query = Query(start=span.start_us, end=span.end_us)
    bounds = [time_bounds(part.snapshot, part.snapshot.segments.select(span_query)) for part in material.parts]
    known = [found for found in bounds if found is not None]
    if not known:
        return Histogram(0, 1, ())

    def fill(counter: TimeCounter) -> None:
        for part in material.parts:
            if not where.columns and _is_whole(part):
                count_times(counter, part.snapshot, pool, span_query, part.snapshot.segments.select(span_query))
                continue
            around = Round({}, material.ends)
            for batch in read_unordered(replace(material, parts=[part]), around, where, span, ["timestamp"], pool):
                counter.add_times(numbers(batch, "timestamp"))

    return counted(
        min(low for low, _ in known), max(high for _, high in known), (span.start_us, span.end_us), buckets, fill
    )


def _is_whole(part: TopicPart) -> bool:
    """Whether FROM selects every event of a topic."""
    if part.spaces is None:
        return True
    if part.streams or part.others is None or part.others.space() is not None:
        return False
    return all(part.others.match_by_partition(name) is True for _, name in part.snapshot.partitions)
