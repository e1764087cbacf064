"""Reading by time if many segments overlap: one span of time, a wave, after another, in the order of the result.

A wave opens only segments, and reads only blocks, with times in its span. The newest 200 events of a thousand segments
that all span a day are within a few seconds; and only the rows of one wave are in memory to be sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggregator.base.merge import Source, merge, merge_few
from aggregator.base.window_budget import WindowBudget
from aggregator.model import SegmentInfo

MAX_OVERLAP = 16
"""If no more segments than this overlap at any time, all are merged at the same time, without waves."""
WAVE_BYTES = 64 << 20
"""Approximate maximum size of a wave in memory, estimated from the one before."""
FIRST_ROWS = 1 << 14
"""Approximate number of rows in the first wave of a result without a limit, whatever their size."""
SMALL_ROWS = 1 << 14
"""A wave that is meant to have at most this many rows is sorted as a whole, not segment by segment first."""
FEW_ROWS = 16
"""Minimum number of rows that a wave is meant to have."""
MARGIN = 1.1
"""A wave is meant to have this many times the rows wanted, as times are less evenly distributed than assumed."""
MAX_WAVE_GROWTH = 64
"""Maximum ratio of the rows that a wave is meant to have to those of the one before."""
Span = tuple[int | None, int | None]
Sources = Callable[[int | None, int | None, bool], Iterable[Source]]
"""Returns the sources of the rows between two times in µs. The third argument: rows of a source may be unordered."""


class _Expected:
    """Estimates how many events come before a time, as if each segment's events were evenly distributed in its span."""

    def __init__(self, segments: Sequence[SegmentInfo]) -> None:
        facts = np.array([(info.min_timestamp, info.max_timestamp, info.rows) for info in segments], np.float64)
        low, high, rows = facts.T
        spans = np.array(
            [
                (low, low + 1, np.minimum(1, rows)),
                (high, high + 1, np.minimum(1, np.maximum(0, rows - 1))),
                (low + 1, high, np.maximum(0, rows - 2)),
            ]
        )
        begin, end, held = (spans[:, part].ravel() for part in range(3))
        self.times, places = np.unique(np.concatenate([begin, end]), return_inverse=True)
        rates = held / np.maximum(1, end - begin)
        slopes = np.cumsum(np.bincount(places, np.concatenate([rates, -rates])))[:-1]
        self.counts = np.concatenate([[0.0], np.cumsum(np.maximum(0, slopes) * np.diff(self.times))])
        ends = np.concatenate([low, high + 1])
        order = np.argsort(ends, kind="stable")
        self.max_overlap = int(np.cumsum(np.where(order < len(low), 1, -1)).max())
        """Maximum number of segments that overlap at any time."""

    def before(self, time: int) -> float:
        """Estimated number of events before a time."""
        return float(np.interp(time, self.times, self.counts))

    def time(self, count: float) -> int:
        """Estimated time before which there are `count` events."""
        return int(np.interp(count, self.counts, self.times))


@dataclass(frozen=True, slots=True)
class Waves:
    """Reads rows by time, from sources that read segments.

    windows: memory that scans share. reverse: the newest first. sparing: for `merge`, if there are no waves.
    """

    sources: Sources
    windows: WindowBudget
    reverse: bool
    sparing: bool

    def read(self, segments: Sequence[SegmentInfo], span: Span, limit: int | None) -> Iterator[pa.RecordBatch]:
        """The rows of all times in `span`, start and end in µs: by one merge, or in waves if many segments overlap.

        segments: all that have times in the span. limit: about how many rows the caller will take.
        """
        expected = _Expected(segments) if len(segments) > MAX_OVERLAP else None
        if expected is None or expected.max_overlap <= MAX_OVERLAP:
            return merge(self.sources(*span, False), by="timestamp", reverse=self.reverse, sparing=self.sparing)
        return self._waves(expected, span, limit)

    def _waves(self, expected: _Expected, span: Span, limit: int | None) -> Iterator[pa.RecordBatch]:
        start, end = span
        reverse = self.reverse
        first = 0.0 if start is None else expected.before(start)
        last = float(expected.counts[-1]) if end is None else expected.before(end)
        wanted = limit
        rows = FIRST_ROWS if limit is None else min(FIRST_ROWS, int(limit * MARGIN) + FEW_ROWS)
        while last - first > rows:
            edge = expected.time(last - rows if reverse else first + rows)
            if (start is not None and edge <= start) or (end is not None and edge >= end):
                rows *= 2  # this many events share one time
                continue
            found = size = 0
            for batch in self._wave(edge, end, rows) if reverse else self._wave(start, edge, rows):
                found, size = found + len(batch), size + batch.nbytes
                yield batch
            if reverse:
                end, last = edge, last - rows
            else:
                start, first = edge, first + rows
            fits = max(FEW_ROWS, WAVE_BYTES * rows // max(1, size))
            wanted = None if wanted is None or found >= wanted else wanted - found  # else the caller takes more
            if wanted is not None and found:
                fits = min(fits, int(MARGIN * rows * wanted / found) + FEW_ROWS)
            rows = min(fits, MAX_WAVE_GROWTH * rows)
        yield from self._wave(start, end, last - first)

    def _wave(self, start: int | None, end: int | None, rows: float) -> Iterator[pa.RecordBatch]:
        """The rows between two times. rows: their estimated number."""
        if rows <= SMALL_ROWS:
            with self.windows.window() as window:
                sources = self.sources(start, end, True)
                few = merge_few(sources, by="timestamp", reverse=self.reverse, most_bytes=window.bytes)
                if few is not None:
                    window.resize(sum(batch.nbytes for batch in few))
                    yield from few
                    return
        yield from merge(self.sources(start, end, False), by="timestamp", reverse=self.reverse, ahead=True)
