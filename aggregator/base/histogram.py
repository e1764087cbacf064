"""`Histogram`: the number of events in each of several equal spans of time; and the counters that build it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from aggregator.errors import InvalidRequestError
from esformat.parts import count_by_width

I64 = npt.NDArray[np.int64]
MIN_BUCKETS, MAX_BUCKETS = 2, 2_000
_S, _M, _H, _D = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_WIDTHS = (
    *(n * 10**power for power in range(6) for n in (1, 2, 5)),
    *(n * _S for n in (1, 2, 5, 10, 15, 30)),
    *(n * _M for n in (1, 2, 5, 10, 15, 30)),
    *(n * _H for n in (1, 2, 3, 6, 12)),
    *(n * _D for n in (1, 2, 7, 14, 30, 91, 182, 365)),
    *(n * 365 * _D for n in (2, 5, 10, 20, 50, 100, 1_000, 10_000)),
)
"""Span lengths in µs that are familiar to people."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Events by time: `counts[i]` covers [start_us + i * width_us, start_us + (i + 1) * width_us).

    `start_us` is a multiple of `width_us`, counted from 1970. Without events, `counts` is empty.
    """

    start_us: int
    width_us: int
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """The number of all events."""
        return sum(self.counts)

    def spans(self) -> list[tuple[int, int]]:
        """Start and end (µs) of each span."""
        edges = range(self.start_us, self.start_us + (len(self.counts) + 1) * self.width_us, self.width_us)
        return list(pairwise(edges))


def check_buckets(count: int) -> int:
    """Return the number unchanged. Raises InvalidRequestError if a histogram cannot have that many buckets."""
    if not MIN_BUCKETS <= count <= MAX_BUCKETS:
        raise InvalidRequestError(f"a histogram has {MIN_BUCKETS} to {MAX_BUCKETS:,} buckets, not {count:,}")
    return count


def width_for(length_us: int, most: int) -> int:
    """The shortest width in µs of which `most` spans cover a period of this length, wherever the period begins."""
    at_least = -(-length_us // (most - 1))
    place = bisect_left(_WIDTHS, at_least)
    return _WIDTHS[place] if place < len(_WIDTHS) else at_least


class TimeCounter:
    """Counts times (µs) from `low` to `high`, both included; `add_times` ignores other times."""

    def __init__(self, low: int, high: int, buckets: int) -> None:
        """buckets: the maximum."""
        self.width = width_for(high - low, buckets)
        self._span = low, high
        self._first = low // self.width
        self._counts = np.zeros(high // self.width - self._first + 1, np.int64)
        self.low: int | None = None
        """The smallest counted time."""
        self.high: int | None = None

    def whole(self, low: int, high: int) -> bool:
        """Whether all times between the two are in one span."""
        return low // self.width == high // self.width

    def add(self, low: int, high: int, count: int) -> None:
        """Add `count` times, all in one span."""
        self._counts[low // self.width - self._first] += count
        self._saw(low, high)

    def add_counts(self, low: int, high: int, counts: I64) -> None:
        """Add the result of `counts_between` for times whose minimum is `low` and maximum is `high`."""
        at = low // self.width - self._first
        self._counts[at : at + len(counts)] += counts
        self._saw(low, high)

    def add_times(self, times: I64) -> None:
        """Add each of the times."""
        found = _count(times, *self._span, self.width, self._counts)
        if found is not None:
            self._saw(*found)

    def _saw(self, low: int, high: int) -> None:
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    @property
    def is_coarse(self) -> bool:
        """Whether the counted times cover so small a part of the period that shorter spans would show more."""
        if self.low is None or self.high is None:
            return False
        return (self.high // self.width - self.low // self.width + 1) * 4 <= len(self._counts)

    def histogram(self) -> Histogram:
        """The counts, over the whole requested period."""
        counts = self._counts.tolist() if self.low is not None else []
        return Histogram(self._first * self.width, self.width, tuple(counts))


def _count(times: I64, low: int, high: int, width: int, counts: I64) -> tuple[int, int] | None:
    """Like `count_by_width`, from the start of `low`'s span, which may lie before the range of int64; times in that
    span are then counted separately.
    """
    begin = low // width * width
    if high - begin < 2**64:
        return count_by_width(times, low, high, width, begin % 2**64, counts)
    edge = begin + width
    early = times[(times >= low) & (times < edge)]
    counts[0] += len(early)
    found = count_by_width(times, edge, high, width, edge % 2**64, counts[1:])
    if not len(early):
        return found
    return int(early.min()), int(early.max()) if found is None else found[1]


def counts_between(low: int, high: int, width: int, times: Iterable[I64]) -> I64:
    """Number of times in each span of `width` µs, from the span of `low` to that of `high`.

    Raises ValueError if a time is outside.
    """
    first = low // width
    counts = np.zeros(high // width - first + 1, np.int64)
    rows = 0
    for some in times:
        rows += len(some)
        _count(some, low, high, width, counts)
    if int(counts.sum()) != rows:
        raise ValueError("some times are outside the span")
    return counts


def counted(
    low: int, high: int, asked: tuple[int | None, int | None], buckets: int, fill: Callable[[TimeCounter], None]
) -> Histogram:
    """The histogram of what `fill` counts, within the requested bounds; an open bound is set by the existing times.

    low, high: all times are between them, both included. asked: [start, end) in µs; None is open.
    """
    start, end = asked
    low = low if start is None else start
    high = high if end is None else end - 1
    if low > high:
        return Histogram(0, 1, ())
    counter = TimeCounter(low, high, check_buckets(buckets))
    fill(counter)
    if None in asked and counter.is_coarse and counter.low is not None and counter.high is not None:
        counter = TimeCounter(
            counter.low if start is None else start, counter.high if end is None else end - 1, buckets
        )
        fill(counter)
    return counter.histogram()
