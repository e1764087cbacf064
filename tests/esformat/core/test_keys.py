"""Keys found by halving, as `bisect` finds them."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate

import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.keys import Keys

keys = st.lists(st.binary(max_size=3) | st.sampled_from([b"", b"\x7f", b"\x80", b"a\0", b"a"]), max_size=30).map(sorted)


def keys_of(held):
    """Keys as the core holds them."""
    return Keys(array("q", accumulate(map(len, held), initial=0)), b"".join(held))


@examples(100)
@given(keys, st.binary(max_size=4))
def test_places(held, key):
    """Keys that are there, also several times, and others; bytes count unsigned, the shorter key comes first."""
    stored = keys_of(held)
    assert stored.as_list() == list(stored) == [stored[place] for place in range(len(stored))] == held
    if held:
        assert stored[-1] == held[-1]
    for wanted in [key, *held]:
        assert stored.places_of(wanted) == (bisect_left(held, wanted), bisect_right(held, wanted))


@examples(100)
@given(
    st.lists(st.tuples(st.sampled_from([b"", b"a", b"ab", b"\x80"]), st.sampled_from([b"", b"\0", b"b"])), max_size=6)
)
def test_pairs(held):
    """Pairs ascend strictly where sorting them, each once, changes nothing."""
    for pairs in (held, sorted(held), sorted(set(held))):
        first, second = (keys_of([pair[side] for pair in pairs]) for side in (0, 1))
        assert first.ascend_with(second) == (pairs == sorted(set(pairs)))


@pytest.mark.parametrize("edges", [[], [0, 3], [-1, 2], [1, 2], [0, 2, 1], [0, 1 << 62], [0, 1]])
def test_edges_outside(edges):
    """Nothing is read outside of the bytes."""
    with pytest.raises(ValueError, match=r"edges|outside"):
        Keys(array("q", edges), b"ab")


def test_wrong_arguments():
    """Edges that are not int64, a place beyond the last key, and lists of keys of different lengths."""
    with pytest.raises(ValueError, match="edges"):
        Keys(array("i", [0, 2]), b"ab")
    for place in (-2, 1):
        with pytest.raises(IndexError):
            keys_of([b"ab"])[place]
    with pytest.raises(ValueError, match="numbers"):
        keys_of([b"ab"]).ascend_with(keys_of([]))
