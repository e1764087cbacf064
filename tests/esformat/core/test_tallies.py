"""Counts of combinations of codes agree with a model in a few lines of Python."""

from __future__ import annotations

import itertools
import math
from itertools import accumulate

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.tallies import MOST_COMBINATIONS, MOST_COUNTED_COLUMNS, count_codes, extend_times
from esformat.errors import CorruptSegmentError

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
FIRST, LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@examples(200)
@given(st.data(), st.lists(st.integers(1, 4), max_size=3), st.sampled_from([1, 1, 99]))
def test_codes_are_counted(data, sizes, times_over):
    """The rows of each combination are counted; and only blocks with a row beyond the known times have to be read."""
    row = st.tuples(st.tuples(*(st.integers(0, size - 1) for size in sizes)), int64s)
    blocks = data.draw(st.lists(st.lists(row, min_size=1, max_size=9), min_size=1, max_size=4))
    blocks = [block * times_over for block in blocks]
    rows = [row for block in blocks for row in block]
    kinds = [data.draw(st.sampled_from([np.uint8, np.int64])) for _ in sizes]
    codes = [np.array([row[k] for row, _ in rows], kind) for k, kind in enumerate(kinds)]
    combinations = list(itertools.product(*map(range, sizes)))
    known = data.draw(st.lists(st.sampled_from(rows), max_size=4))
    lows, highs = np.full(len(combinations), LAST), np.full(len(combinations), FIRST)
    for row, time in known:
        place = combinations.index(row)
        lows[place], highs[place] = min(lows[place], time), max(highs[place], time)
    starts = np.array([0, *accumulate(map(len, blocks))][:-1])
    extremes = [np.array([end(time for _, time in block) for block in blocks]) for end in (min, max)]
    counts = np.ones(math.prod(sizes), np.int64)

    beyond = count_codes(len(rows), codes, sizes, counts, (starts, *extremes), lows, highs)
    of = [[time for row, time in rows if row == each] for each in combinations]
    assert (counts - 1).tolist() == list(map(len, of))
    assert beyond == [
        number
        for number, block in enumerate(blocks)
        for least, most in [(min(time for _, time in block), max(time for _, time in block))]
        if any(least < lows[place] or most > highs[place] for place in {combinations.index(row) for row, _ in block})
    ]
    assert count_codes(len(rows), codes, sizes, counts) == []
    assert (counts - 1).tolist() == [2 * len(each) for each in of]

    within = np.concatenate([np.arange(0), *(starts[n] + np.arange(len(blocks[n])) for n in beyond)])
    times = np.array([time for _, time in rows], np.int64)
    extend_times([each[within] for each in codes], sizes, times[within], lows, highs)
    assert lows.tolist() == [min(each, default=LAST) for each in of]
    assert highs.tolist() == [max(each, default=FIRST) for each in of]


ONE = np.zeros(1, np.uint8)


def test_codes_out_of_bounds():
    """Codes that a column does not have are refused, in any row."""
    for code in (-1, 3, 1 << 32, 1 << 62, -(1 << 63)):
        for rows in (2, 300):
            codes = [np.array([0] * (rows - 1) + [code])]
            with pytest.raises(CorruptSegmentError, match="no value in the column's dictionary"):
                count_codes(rows, codes, [3], np.zeros(3, np.int64))
            with pytest.raises(CorruptSegmentError, match="no value in the column's dictionary"):
                extend_times(codes, [3], *(np.zeros(size, np.int64) for size in (rows, 3, 3)))
    with pytest.raises(CorruptSegmentError, match="no value in the column's dictionary"):
        count_codes(1, [np.array([3], np.uint8)], [3], np.zeros(3, np.int64))


@pytest.mark.parametrize(
    ("codes", "sizes", "combinations"),
    [
        ([ONE], [4], 3),
        ([ONE], [0], 3),
        ([ONE], [-1], 3),
        ([ONE, ONE], [2, 2], 3),
        ([ONE, np.zeros(2, np.uint8)], [1, 1], 3),
        ([ONE], [1, 1], 3),
        ([np.zeros(2, np.uint8)], [1], 3),
        ([], [], 0),
        ([ONE], [3], MOST_COMBINATIONS + 1),
        ([ONE] * (MOST_COUNTED_COLUMNS + 1), [1] * (MOST_COUNTED_COLUMNS + 1), 3),
    ],
)
def test_lengths_that_do_not_fit(codes, sizes, combinations):
    """Columns without a code for each row, and fewer places than combinations, are refused."""
    with pytest.raises(ValueError, match="not fit"):
        count_codes(1, codes, sizes, np.zeros(combinations, np.int64))
    with pytest.raises(ValueError, match="not fit"):
        extend_times(codes, sizes, *(np.zeros(size, np.int64) for size in (1, combinations, combinations)))


@pytest.mark.parametrize(
    ("starts", "lengths"),
    [
        ([0, 1], (2, 2, 3, 2)),  # of least, most, lows, highs
        ([0, 1], (2, 2, 2, 1)),
        ([0, 1], (1, 2, 2, 2)),
        ([0, 1], (2, 3, 2, 2)),
        ([], (0, 0, 2, 2)),
        ([1, 2], (2, 2, 2, 2)),
        ([-1, 2], (2, 2, 2, 2)),
        ([0, 4], (2, 2, 2, 2)),
        ([0, 2, 1], (3, 3, 2, 2)),
    ],
)
def test_blocks_that_do_not_fit(starts, lengths):
    """Blocks that do not begin one after another within the rows, and times of other lengths, are refused."""
    least, most, lows, highs = (np.zeros(size, np.int64) for size in lengths)
    blocks = np.array(starts, np.int64), least, most
    with pytest.raises(ValueError, match="not fit"):
        count_codes(3, [np.zeros(3, np.uint8)], [2], np.zeros(2, np.int64), blocks, lows, highs)


def test_times_that_do_not_fit():
    """Arrays of times of different lengths are refused."""
    with pytest.raises(ValueError, match="not fit"):
        extend_times([ONE], [2], *(np.zeros(size, np.int64) for size in (1, 2, 3)))
