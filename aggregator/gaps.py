"""Records that are gone: record indexes that were given, and that no segment and no unsealed batch covers any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aggregator.segment_table import Bounds
from aggregator.state import Snapshot
from aggregator.writing import LOST_INDEXES


def gone_between(snapshot: Snapshot, begin: Mapping[int, int], end: Mapping[int, int]) -> int:
    """How many record indexes in [begin, end) of the snapshot's partitions are of records that are not there now.

    Whole segments count, as retention drops them; what was erased out of one does not.
    """
    gone = 0
    for number, _ in snapshot.partitions:
        first, last = begin.get(number, 0), end.get(number, 0)
        if first < last:
            bounds = Bounds(partition=number, first_index=first, end_index=last)
            spans = [(info.first_index, info.last_index + 1) for info in snapshot.segments.select(bounds)]
            for part in snapshot.unsealed:
                if part.partition == number:
                    spans += [(piece.first_index, piece.end_index) for piece in part.pieces]
            gone += _uncovered(spans, first, last)
    return gone


def _uncovered(spans: Iterable[tuple[int, int]], first: int, last: int) -> int:
    """Numbers of [first, last) outside of all spans. Those that a crash passed over never were any."""
    gone = 0
    for low, high in sorted(spans):
        if low >= last:
            break
        if low > first:
            gone += (low - first) % LOST_INDEXES
        first = max(first, high)
    return gone + max(0, last - first) % LOST_INDEXES


def distance(begin: Mapping[int, int], end: Mapping[int, int]) -> int:
    """How many records there are between the two places, at most."""
    return sum(max(0, last - begin.get(number, 0)) % LOST_INDEXES for number, last in end.items())
