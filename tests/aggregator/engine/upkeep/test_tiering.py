"""Which segments are evicted, and which objects are strays."""

from __future__ import annotations

import pytest

from aggregator.engine.upkeep.tiering import strays, to_evict
from aggregator.model import SegmentInfo
from aggregator.policy import KeepLocal


def segment(number: int, newest: int, size: int = 10) -> SegmentInfo:
    return SegmentInfo(number, 1, 1, 0, 0, 0, newest, b"", b"", 1, size, 0, 0, 0)


SEGMENTS = [segment(1, 100), segment(2, 300), segment(3, 200), segment(4, 400)]


@pytest.mark.parametrize(
    ("keep", "over", "arrived", "gone"),
    [
        ({}, 0, {1, 2, 3, 4}, []),
        ({"bytes": 25}, 0, {1, 2, 3, 4}, [1, 3]),
        ({"bytes": 0}, 0, {1, 2, 3, 4}, [1, 3, 2, 4]),
        ({"bytes": 0}, 0, {2, 3}, [3, 2]),
        ({"age_us": 250}, 0, {1, 2, 3, 4}, [1, 3]),
        ({"age_us": 250, "bytes": 10}, 0, {1, 2, 3, 4}, [1, 3, 2]),
        ({}, 1, {1, 2, 3, 4}, [1]),
        ({}, 11, {1, 2, 4}, [1, 2]),
        ({"bytes": 25}, 11, {1, 2, 3, 4}, [1, 3]),
        ({"bytes": 25}, 21, {1, 2, 3, 4}, [1, 3, 2]),
        ({}, 1000, {1}, [1]),
        ({}, 1000, set(), []),
    ],
)
def test_the_oldest_leave_first(keep, over, arrived, gone):
    """The oldest uploaded segments are evicted first, by the limits, and more if the disk lacks space."""
    chosen = to_evict([("t", info) for info in SEGMENTS], arrived, KeepLocal(**keep), 500, over)
    assert [info.number for info in chosen] == gone


@pytest.mark.parametrize(
    ("keep", "over", "gone"),
    [
        ({"bytes": 0, "topics": {"odd": {}}}, 0, [2, 4]),
        ({"topics": {"odd": {"bytes": 10}}}, 0, [1]),
        ({"bytes": 10, "topics": {"odd": {"bytes": 10}}}, 0, [1, 2]),
        ({"bytes": 10, "topics": {"odd": {"age_us": 350}}}, 0, [1, 2]),
        ({"bytes": 10, "topics": {"even": {}}}, 0, [1]),
        ({"bytes": 20, "topics": {"neither": {"bytes": 0}}}, 0, [1, 3]),
        ({"topics": {"odd": {}, "even": {"bytes": 10}}}, 30, [1, 3, 2]),
    ],
)
def test_topics_with_limits_of_their_own(keep, over, gone):
    """Topics with their own limits count separately, all others together. Disk space takes precedence over limits."""
    local = [("odd" if info.number % 2 else "even", info) for info in SEGMENTS]
    chosen = to_evict(local, {1, 2, 3, 4}, KeepLocal(**keep), 500, over)
    assert [info.number for info in chosen] == gone


def test_strays():
    """Objects of segments that nothing names are strays once they are old; others are left alone."""
    name = "segments/000000/{:012d}-00000000000000ff.esdb"
    there = {name.format(1): 0, name.format(2): 0, name.format(3): 90, "segments/notes.txt": 0}
    assert strays(there, {name.format(2)}, 100, 50) == [name.format(1)]
    assert strays(there, {name.format(2)}, 80, 0) == [name.format(1), name.format(3)]  # store clocks have whole seconds
    assert strays(there, {name.format(2)}, 100, 5) == [name.format(1), name.format(3)]
