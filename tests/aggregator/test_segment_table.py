"""Choosing segments: the same as looking at each, whatever came and went before."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator import segment_table
from aggregator.model import SegmentInfo
from aggregator.segment_table import Bounds, SegmentTable, key_prefix

KEYS = st.binary(max_size=3).map(lambda tail: b"customer-" + tail) | st.sampled_from([b"", b"\xff" * 12, b"customer"])


@st.composite
def infos(draw, number):
    low, high = sorted([draw(KEYS), draw(KEYS)])
    first, last = sorted([draw(st.integers(0, 20)), draw(st.integers(0, 20))])
    start, end = sorted([draw(st.integers(-5, 5)), draw(st.integers(-5, 5))])
    return SegmentInfo(number, draw(st.integers(1, 3)), 1, first, last, start, end, low, high, 1, 1, 1, 0, 0)


BOUNDS = st.builds(
    Bounds, st.none() | KEYS, st.none() | st.integers(-6, 6), st.none() | st.integers(-6, 6),
    st.none() | st.integers(1, 3), st.none() | st.integers(0, 21), st.none() | st.integers(0, 21),
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def small():
    """A table that grows and is cleaned up after a few segments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_table, "_FIRST_CAPACITY", 4)
        yield


def overlaps(info, bounds):
    """The rule, for one segment."""
    return (
        (bounds.space is None or info.min_space <= bounds.space <= info.max_space)
        and (bounds.start is None or info.max_timestamp >= bounds.start)
        and (bounds.end is None or info.min_timestamp < bounds.end)
        and bounds.partition in (None, info.partition)
        and (bounds.first_index is None or info.last_index >= bounds.first_index)
        and (bounds.end_index is None or info.first_index < bounds.end_index)
    )


@settings(max_examples=60)
@given(st.data())
def test_selection(data):
    """After any additions and removals; views show what was there when they were taken."""
    table = SegmentTable()
    there = {}
    views = []
    number = 0
    for _ in range(data.draw(st.integers(1, 4))):
        new = []
        for _ in range(data.draw(st.integers(0, 8))):
            number += 1
            new.append(data.draw(infos(number)))
        table.add(new)
        there |= {info.number: info for info in new}
        gone = data.draw(st.lists(st.integers(1, max(1, number)), max_size=10))
        table.remove(gone)
        for place in gone:
            there.pop(place, None)
        views.append((table.view(), list(there.values())))
        assert len(table) == len(there)
        assert all(number in table for number in there)
    bounds = data.draw(BOUNDS)
    for view, expected in views:
        assert list(view) == expected
        assert len(view) == len(expected)
        assert view.select(bounds) == [info for info in expected if overlaps(info, bounds)]


@given(KEYS, KEYS, st.binary(max_size=12))
def test_prefixes_order_as_keys(left, right, common):
    """A smaller key never has the larger number."""
    if left <= right:
        assert key_prefix(left, common) <= key_prefix(right, common)
