"""Which run each row of some blocks belongs to, as looking every row up says."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.runs import run_starts, runs_at

counts_of_rows = st.lists(st.integers(1, 5), min_size=1, max_size=20)


def ints(values):
    """As the core takes them."""
    return np.array(list(values), np.int64)


@examples(150)
@given(counts_of_rows, counts_of_rows, st.data())
def test_runs_of_rows(runs, blocks, data):
    """Blocks anywhere among the runs, with gaps; all rows, and some of them."""
    first = data.draw(st.integers(0, 9))
    edges = list(accumulate(runs, initial=first))
    origins, counts = [], []
    row = first
    for count in blocks:
        row += data.draw(st.integers(0, 2))
        if row + count <= edges[-1]:
            origins.append(row)
            counts.append(count)
            row += count
    rows = [row for origin, count in zip(origins, counts, strict=True) for row in range(origin, origin + count)]
    block_of = [k for k, count in enumerate(counts) for _ in range(count)]
    expected = [bisect_right(edges, row) - 1 for row in rows]

    starts, found, bases = run_starts(ints(edges), ints(origins), ints(counts), ints(range(len(origins))))
    begins = [i for i in range(len(rows)) if i == 0 or (expected[i], block_of[i]) != (expected[i - 1], block_of[i - 1])]
    assert starts.tolist() == begins
    assert found.tolist() == [expected[i] for i in begins]
    assert bases.tolist() == [block_of[i] for i in begins]
    places = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1)))) if rows else []
    if rows:
        assert runs_at(starts, found, ints(places)).tolist() == [expected[place] for place in places]


@pytest.mark.parametrize(
    ("edges", "origins", "counts"),
    [([], [0], [1]), ([0], [0], [1]), ([0, 5], [0], [6]), ([3, 5], [2], [1]), ([0, 5], [5], [1]), ([0, 5], [1], [0])],
)
def test_rows_outside(edges, origins, counts):
    """Of no run, or of none at all: nothing outside is read."""
    with pytest.raises(ValueError, match="outside"):
        run_starts(ints(edges), ints(origins), ints(counts), ints([0]))


def test_facts_that_do_not_fit():
    """Blocks with fewer counts than places, and rows before the first run."""
    with pytest.raises(ValueError, match="different"):
        run_starts(ints([0, 5]), ints([0, 1]), ints([1]), ints([0, 0]))
    for starts, runs in (([], []), ([0], []), ([1], [0])):
        with pytest.raises(ValueError, match="outside"):
            runs_at(ints(starts), ints(runs), ints([0]))
