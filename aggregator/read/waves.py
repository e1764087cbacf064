"""Reading by time where many segments overlap: one stretch of time after another, in the order of the answer.

A wave opens only segments, and reads only blocks, with times in it. The newest 200 events of a thousand segments that
all span a day lie in a few seconds; and what is held to be put into order is one wave's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from aggregator.base.merge import Source, merge, merge_few
from aggregator.base.window_budget import WindowBudget
from aggregator.model import SegmentInfo

CROWD = 16
"""Where no more segments overlap at any time, they are read side by side."""
WAVE_BYTES = 64 << 20
"""About so much of the events of one wave is held, as far as the one before tells."""
FIRST_ROWS = 1 << 14
"""The first wave of an answer without a limit has about so many, however large they are."""
SMALL_ROWS = 1 << 14
"""A wave that is meant to have no more is put into order at once, and not segment by segment first."""
FEW_ROWS = 16
"""No wave is meant to have fewer."""
MARGIN = 1.1
"""A wave is meant to have so many times the rows that are wanted: times are not as even as they are taken to be."""
GROWTH = 64
"""A wave is meant to have so many times the rows of the one before at most."""
Span = tuple[int | None, int | None]
Sources = Callable[[int | None, int | None, bool], Iterable[Source]]
"""What has the rows between two times in µs; it is told whether their order within a source does not matter."""


class _Expected:
    """How many events of some segments come before a time, as if each had its own evenly over its span."""

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
        self.crowd = int(np.cumsum(np.where(order < len(low), 1, -1)).max())
        """So many segments overlap where most do."""

    def before(self, time: int) -> float:
        """How many events come before a time."""
        return float(np.interp(time, self.times, self.counts))

    def time(self, count: float) -> int:
        """The time before which so many events come."""
        return int(np.interp(count, self.counts, self.times))


@dataclass(frozen=True, slots=True)
class Waves:
    """How rows are read by time, from sources that come of segments.

    windows: memory that scans share. reverse: the newest first. sparing: as `merge` has it, where there are no waves.
    """

    sources: Sources
    windows: WindowBudget
    reverse: bool
    sparing: bool

    def read(self, segments: Sequence[SegmentInfo], span: Span, limit: int | None) -> Iterator[pa.RecordBatch]:
        """The rows of all times of `span`, start and end in µs: at once, or in waves where segments overlap.

        segments: all that have times in the span. limit: about so many rows will be taken.
        """
        expected = _Expected(segments) if len(segments) > CROWD else None
        if expected is None or expected.crowd <= CROWD:
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
                rows *= 2  # as many events have one time
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
            wanted = None if wanted is None or found >= wanted else wanted - found  # else somebody takes more than said
            if wanted is not None and found:
                fits = min(fits, int(MARGIN * rows * wanted / found) + FEW_ROWS)
            rows = min(fits, GROWTH * rows)
        yield from self._wave(start, end, last - first)

    def _wave(self, start: int | None, end: int | None, rows: float) -> Iterator[pa.RecordBatch]:
        """The rows between two times, which are about so many."""
        if rows <= SMALL_ROWS:
            with self.windows.window() as window:
                sources = self.sources(start, end, True)
                few = merge_few(sources, by="timestamp", reverse=self.reverse, most_bytes=window.bytes)
                if few is not None:
                    window.keep(sum(batch.nbytes for batch in few))
                    yield from few
                    return
        yield from merge(self.sources(start, end, False), by="timestamp", reverse=self.reverse, ahead=True)
