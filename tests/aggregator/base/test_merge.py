"""Ordered merge: its result equals a plain sort, and it reads no more than was requested."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from aggregator.base.merge import PARTITION_COLUMN, Source, merge, merge_few, sort_order


def batch(rows):
    return pa.record_batch({"timestamp": [time for time, _ in rows], "record_index": [index for _, index in rows]})


sources_of_rows = st.lists(st.lists(st.lists(st.integers(0, 6), max_size=4), max_size=4), max_size=4)


@examples(150)
@given(sources_of_rows, st.booleans(), st.sampled_from([{}, {"sparing": True}, {"ahead": True}]))
def test_any_sources(drawn, reverse, how):
    """Rows are ordered by time, partition and record index, however they are batched; reverse is the exact mirror."""
    sources, expected = [], []
    for partition, batches in enumerate(drawn):
        rows = sorted(time for times in batches for time in times)
        numbered = [(time, index) for index, time in enumerate(rows)]
        expected += [(time, partition, index) for time, index in numbered]
        numbered = numbered[::-1] if reverse else numbered
        cut = [[numbered.pop(0) for _ in times] for times in batches]
        if expected and any(cut):
            first = next(rows for rows in cut if rows)[0][0]
            parts = [batch(rows) for rows in cut if rows]
            sources.append(Source(~first if reverse else first, partition, lambda parts=parts: iter(parts)))
    merged = merge(sources, by="timestamp", reverse=reverse, **how)
    found = [tuple(row.values()) for one in merged for row in one.to_pylist()]
    assert found == [(time, index) for time, _, index in sorted(expected, reverse=reverse)]


@examples(150)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 60)), min_size=1, unique_by=lambda row: row[1]),
    st.sampled_from([1, 1 << 40]),
    st.booleans(),
)
def test_order_of_rows(rows, apart, reverse):
    """Rows are ordered by time, ties by record index, whether the indexes are close together or far apart."""
    times, indexes = (np.array([row[part] for row in rows], np.int64) for part in (0, 1))
    order = sort_order(times, None, indexes * apart - 7, reverse=reverse)
    found = rows if order is None else [rows[place] for place in order]
    assert found == sorted(rows, reverse=reverse)


def test_indexes_that_come_twice_lose_no_row():
    """Record indexes are unique; should a fault elsewhere duplicate them, no row is lost."""
    times, indexes = np.array([5, 3, 4, 3]), np.array([1, 0, 1, 0])
    order = sort_order(times, None, indexes, reverse=False)
    assert order.tolist() == [1, 3, 2, 0]


@examples(150)
@given(st.lists(st.lists(st.lists(st.integers(0, 6), max_size=4), max_size=4), max_size=4), st.booleans())
def test_few_in_any_order(drawn, reverse):
    """`merge_few` gives the same order for unsorted sources, also if a column names the partition of each row."""
    rows = [(time, number % 2, index) for number, batches in enumerate(drawn) for batch in batches
            for index, time in enumerate(batch, 100 * number)]  # fmt: skip
    sources = []
    for number, batches in enumerate(drawn):
        parts = [batch([*enumerated(times, 100 * number)]) for times in batches if times]
        if number < 2:
            sources.append(Source(0, number, lambda parts=parts: iter(parts)))
        else:
            placed = [
                one.append_column(PARTITION_COLUMN, pa.array([number % 2] * len(one), pa.int64())) for one in parts
            ]
            sources.append(Source(0, None, lambda parts=placed: iter(parts)))
    few = merge_few(sources, by="timestamp", reverse=reverse, most_bytes=1 << 30)
    found = [tuple(row.values()) for one in few for row in one.to_pylist()]
    assert found == [(time, index) for time, _, index in sorted(rows, reverse=reverse)]


def enumerated(times, first):
    return [(time, index) for index, time in enumerate(times, first)]


def test_too_much_for_few():
    """Sources that take more bytes than allowed return None, and no more of them is read."""
    read = []

    def batches(number):
        read.append(number)
        yield batch([(n, n) for n in range(100)])

    sources = [Source(0, number, lambda number=number: batches(number)) for number in range(9)]
    assert merge_few(sources, by="timestamp", reverse=False, most_bytes=4000) is None
    assert read == [0, 1, 2]
    assert sum(map(len, merge_few(sources, by="timestamp", reverse=False, most_bytes=1 << 20))) == 900


@pytest.mark.parametrize(("sparing", "expected"), [(True, 1), (False, 2)])
def test_sparing(sparing, expected):
    """With `sparing`, all rows of a batch except the last are returned before the next batch is read."""
    read = []

    def batches(number):
        for first in (0, 10, 20):
            read.append((number, first))
            yield batch([(first + place, first + place) for place in range(10)])

    sources = [Source(0, 0, lambda: batches(0)), Source(100, 1, lambda: batches(1))]
    given = 0
    for one in merge(sources, by="timestamp", reverse=False, sparing=sparing):
        given += len(one)
        if given >= 9:
            break
    assert len(read) == expected


@pytest.mark.parametrize("reverse", [False, True])
def test_no_batch_is_read_before_it_is_needed(reverse):
    """By record index, which is unique, all rows of a batch are returned before the next batch is read."""
    read = []

    def batches():
        for first in (20, 10, 0) if reverse else (0, 10, 20):
            read.append(first)
            rows = [(0, first + place) for place in range(10)]
            yield batch(rows[::-1] if reverse else rows)

    merged = merge([Source(~29 if reverse else 0, 0, batches)], by="record_index", reverse=reverse, sparing=True)
    for count in (1, 2, 3):
        assert len(next(merged)) == 10
        assert len(read) == count
    assert next(merged, None) is None
