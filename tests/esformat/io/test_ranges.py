"""Byte ranges: close ones are joined, long ones cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from esformat.io.ranges import cut, join

RANGES = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 40)).map(lambda pair: (pair[0], sum(pair))), max_size=8)


@given(RANGES, st.integers(0, 30))
def test_joined(ranges, gap):
    """Joined ranges cover everything requested and no gap wider than allowed; separate ranges are further apart."""
    joined = join(ranges, gap)
    assert all(any(start <= a and b <= stop for start, stop in joined) for a, b in ranges)
    assert all(after[0] - before[1] > gap for before, after in pairwise(joined))
    ends = {stop for _, stop in ranges}
    for start, stop in joined:
        covered = {byte for a, b in ranges for byte in range(a, b)}
        holes = "".join("x" if byte in covered else "." for byte in range(start, stop)).split("x")
        assert max(map(len, holes)) <= gap
        assert stop in ends


@given(RANGES, st.integers(1, 50))
def test_cut(ranges, most):
    """Pieces are consecutive, fill their range, and are no longer than allowed."""
    for start, stop in ranges:
        pieces = list(cut([(start, stop)], most))
        assert [piece[0] for piece in pieces] == [start, *(piece[1] for piece in pieces[:-1])]
        assert pieces[-1][1] == stop
        assert all(0 < b - a <= most for a, b in pieces)
