"""The size of a micro-batch: exact numbers of events, fair shares, gaps. No Spark."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.spark.admission import Span, admit, uncovered


def span(indexes, size=10):
    """A span of the record indexes, with events of `size` bytes each."""
    found = np.array(sorted(indexes), np.int64)
    return Span(int(found[0]), int(found[-1]) + 1, len(found), size * len(found), lambda: found[::-1])


def refused():
    raise AssertionError("record indexes without gaps are not looked up")


DENSE = [Span(0, 100, 100, 1000, refused), Span(100, 150, 50, 500, refused)]
CASES = {
    "all of it": (None, None, 0, 150),
    "rows": (30, None, 0, 30),
    "rows from the middle": (30, None, 90, 120),
    "more rows than there are": (1000, None, 20, 150),
    "bytes": (None, 255, 0, 25),
    "one event at least": (None, 1, 140, 141),
    "the lower limit counts": (30, 100, 0, 10),
}


@pytest.mark.parametrize("case", CASES)
def test_one_partition(case):
    rows, size, begin, end = CASES[case]
    assert admit({"a": DENSE}, {"a": begin}, {"a": 150}, rows, size) == {"a": end}


def test_partitions_share():
    """A small partition needs less than its share; the others get the remainder. No partition starves."""
    available = {"large": [Span(0, 1000, 1000, 1000, refused)], "small": [Span(0, 10, 10, 10, refused)]}
    assert admit(available, {}, {"large": 1000, "small": 10}, 100, None) == {"large": 90, "small": 10}
    assert admit(available, {}, {"large": 1000, "small": 10}, 1, None) in (
        {"large": 0, "small": 1},
        {"large": 1, "small": 0},
    )


def test_gaps_are_passed_over():
    """Unused record indexes cost nothing: the events behind them are read in the same batch."""
    spans = [span(range(10)), span(range(1 << 32, (1 << 32) + 10))]
    assert admit({"a": spans}, {}, {"a": (1 << 32) + 10}, 15, None) == {"a": (1 << 32) + 5}
    merged = [span([*range(10), *range(1 << 32, (1 << 32) + 10)])]
    assert admit({"a": merged}, {}, {"a": (1 << 32) + 10}, 15, None) == {"a": (1 << 32) + 5}


@given(
    st.dictionaries(st.sampled_from("abc"), st.sets(st.integers(0, 60), min_size=1)),
    st.integers(1, 30),
    st.lists(st.integers(1, 9), min_size=1),
)
def test_every_event_in_one_batch(partitions, most, cuts):
    """No batch exceeds the limit, each batch reads something, and together they read every event once."""
    available = {}
    for name, indexes in partitions.items():  # overlapping spans, like those of two schemas
        ordered = sorted(indexes)
        parts = [ordered[n :: len(cuts)] for n in range(len(cuts))]
        available[name] = [span(part) for part in parts if part]
    ends = {name: max(indexes) + 1 for name, indexes in partitions.items()}
    begin = dict.fromkeys(ends, 0)
    seen = []
    while begin != ends:
        after = admit(available, begin, ends, most, None)
        batch = [(n, i) for n, indexes in partitions.items() for i in indexes if begin[n] <= i < after[n]]
        assert 1 <= len(batch) <= most
        seen += batch
        begin = after
    assert sorted(seen) == sorted((name, index) for name, indexes in partitions.items() for index in indexes)


@pytest.mark.parametrize(
    ("begin", "end", "spans", "gone"),
    [
        (0, 10, [], [(0, 10)]),
        (0, 10, [(0, 10)], []),
        (2, 10, [(5, 12), (0, 3)], [(3, 5)]),
        (0, 10, [(2, 4), (3, 6), (8, 9)], [(0, 2), (6, 8), (9, 10)]),
        (5, 5, [(20, 30)], []),
        (5, 10, [(0, 7), (0, 6), (20, 30)], [(7, 10)]),
    ],
)
def test_uncovered(begin, end, spans, gone):
    """The result is exactly the record indexes that no span covers."""
    assert uncovered(begin, end, spans) == gone
