"""Histograms of times: spans of familiar lengths that cover all times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator import InvalidRequestError
from aggregator.base.histogram import MAX_BUCKETS, TimeCounter, check_buckets, counted, width_for

TIMES = st.lists(
    st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(0, 10**6) | st.sampled_from([-(2**63) + 1, 2**63 - 1]),
    min_size=1,
    max_size=30,
)


@given(TIMES, st.integers(2, 100), st.none() | st.integers(-(10**6), 10**6), st.none() | st.integers(0, 10**7))
def test_every_time_is_counted_where_it_lies(times, buckets, start, end):
    """Each requested time is counted in the one span that contains it; there are at most as many spans as requested."""
    asked = [t for t in times if (start is None or t >= start) and (end is None or t < end)]
    found = counted(
        min(times), max(times), (start, end), buckets, lambda counter: counter.add_times(np.array(asked, np.int64))
    )
    assert found.total == len(asked)
    assert len(found.counts) <= buckets + (found.width_us == 1)
    assert found.start_us % found.width_us == 0
    for (low, high), count in zip(found.spans(), found.counts, strict=True):
        assert count == sum(low <= t < high for t in asked)


@pytest.mark.parametrize("buckets", [2, 3, 60, 2000])
def test_all_of_time(buckets):
    """The first span begins before the earliest possible time."""
    low, high = -(2**63) + 1, 2**63 - 1
    times = [low, low + 1, -1, 0, 5, high]
    found = counted(low, high, (None, None), buckets, lambda counter: counter.add_times(np.array(times, np.int64)))
    assert found.total == len(times)
    assert [(at, n) for at, n in enumerate(found.counts) if n] == [
        (at, n) for at, (low, high) in enumerate(found.spans()) if (n := sum(low <= t < high for t in times))
    ]


@pytest.mark.parametrize(
    ("length", "buckets", "width"),
    [
        (0, 60, 1),
        (3_600_000_000, 61, 60_000_000),
        (86_400_000_000, 60, 1_800_000_000),
        (86_399_000_000, 24, 7_200_000_000),
    ],
)
def test_width(length, buckets, width):
    """The width is the shortest familiar length that suffices."""
    assert width_for(length, buckets) == width


def test_few_times_in_a_long_time_are_looked_at_again():
    """If all times fall in a small part of the range, they are counted again around it, unless bounds are given."""
    times = np.arange(100, dtype=np.int64) + 5 * 10**9
    looks = []

    def fill(counter: TimeCounter) -> None:
        looks.append(counter.width)
        counter.add_times(times)

    assert counted(0, 10**12, (None, None), 60, fill).width_us == 2
    assert len(looks) == 2
    assert counted(0, 10**12, (0, 10**12), 60, fill).width_us == looks[0]
    assert len(looks) == 3


def test_whole_spans():
    """Times that all fall in one span can be counted without being read."""
    counter = TimeCounter(0, 999, 10)
    assert counter.whole(0, 99)
    assert not counter.whole(199, 200)
    counter.add(300, 350, 7)
    assert counter.histogram().counts[1] == 7
    assert (counter.width, counter.low, counter.high) == (200, 300, 350)


@pytest.mark.parametrize("count", [1, -1, MAX_BUCKETS + 1])
def test_buckets(count):
    """Too many buckets would fill the memory; fewer than two say nothing. Both are refused."""
    with pytest.raises(InvalidRequestError, match="a histogram has 2 to 2,000 buckets"):
        check_buckets(count)
