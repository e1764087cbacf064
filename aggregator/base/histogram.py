"""`Histogram`: how many events lie in each of some equal spans of time; and what counts them."""

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
"""Lengths of spans in µs, of which people know how long they are."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Events by time: `counts[i]` is of [start_us + i * width_us, start_us + (i + 1) * width_us).

    `start_us` is a multiple of `width_us`, counted from 1970. Without events there are no counts.
    """

    start_us: int
    width_us: int
    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """All events."""
        return sum(self.counts)

    def spans(self) -> list[tuple[int, int]]:
        """Start and end (µs) of each span."""
        edges = range(self.start_us, self.start_us + (len(self.counts) + 1) * self.width_us, self.width_us)
        return list(pairwise(edges))


def check_buckets(count: int) -> int:
    """The number itself. Raises InvalidRequestError where a histogram cannot have so many."""
    if not MIN_BUCKETS <= count <= MAX_BUCKETS:
        raise InvalidRequestError(f"a histogram has {MIN_BUCKETS} to {MAX_BUCKETS:,} buckets, not {count:,}")
    return count


def width_for(length_us: int, most: int) -> int:
    """The shortest length in µs of which `most` are enough for so long a time, wherever that begins."""
    at_least = -(-length_us // (most - 1))
    place = bisect_left(_WIDTHS, at_least)
    return _WIDTHS[place] if place < len(_WIDTHS) else at_least


class TimeCounter:
    """Counts times (µs) from `low` to `high`, both included; others are passed over, where they come one by one."""

    def __init__(self, low: int, high: int, buckets: int) -> None:
        """buckets: at most so many."""
        self.width = width_for(high - low, buckets)
        self._span = low, high
        self._first = low // self.width
        self._counts = np.zeros(high // self.width - self._first + 1, np.int64)
        self.low: int | None = None
        """The least time that was counted."""
        self.high: int | None = None

    def whole(self, low: int, high: int) -> bool:
        """Whether all times between two lie in one span."""
        return low // self.width == high // self.width

    def add(self, low: int, high: int, count: int) -> None:
        """Take in so many times of one span."""
        self._counts[low // self.width - self._first] += count
        self._saw(low, high)

    def add_counts(self, low: int, high: int, counts: I64) -> None:
        """Take in all times between two, which are the least and the greatest, as `counts_between` counts them."""
        at = low // self.width - self._first
        self._counts[at : at + len(counts)] += counts
        self._saw(low, high)

    def add_times(self, times: I64) -> None:
        """Take in each of them."""
        found = _count(times, *self._span, self.width, self._counts)
        if found is not None:
            self._saw(*found)

    def _saw(self, low: int, high: int) -> None:
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    @property
    def is_coarse(self) -> bool:
        """Whether what was counted lies in so small a part of the time that shorter spans would tell more."""
        if self.low is None or self.high is None:
            return False
        return (self.high // self.width - self.low // self.width + 1) * 4 <= len(self._counts)

    def histogram(self) -> Histogram:
        """What was counted, of the whole time that was asked for."""
        counts = self._counts.tolist() if self.low is not None else []
        return Histogram(self._first * self.width, self.width, tuple(counts))


def _count(times: I64, low: int, high: int, width: int, counts: I64) -> tuple[int, int] | None:
    """As `count_by_width`, from the span of `low` on, which may begin before all times: then it is counted apart."""
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
    """How many of some times lie in each span of so many µs, from the one of `low` to that of `high`.

    Raises ValueError where one is not between these.
    """
    first = low // width
    counts = np.zeros(high // width - first + 1, np.int64)
    rows = 0
    for some in times:
        rows += len(some)
        _count(some, low, high, width, counts)
    if int(counts.sum()) != rows:
        raise ValueError("there are times outside of the span")
    return counts


def counted(
    low: int, high: int, asked: tuple[int | None, int | None], buckets: int, fill: Callable[[TimeCounter], None]
) -> Histogram:
    """The histogram of what `fill` counts, between the bounds that were asked for or else around what there is.

    low, high: all times lie between them, both included. asked: [start, end) in µs; None is open.
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
