"""Binary search in keys agrees with `bisect`."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.keys import Keys, are_key, number_keys

keys = st.lists(st.binary(max_size=3) | st.sampled_from([b"", b"\x7f", b"\x80", b"a\0", b"a"]), max_size=30).map(sorted)


def keys_of(held):
    """Keys as the core stores them."""
    return Keys(array("q", accumulate(map(len, held), initial=0)), b"".join(held))


@examples(100)
@given(keys, st.binary(max_size=4))
def test_places(held, key):
    """Present keys, also repeated ones, and absent keys are found: bytes compare unsigned, a prefix comes first."""
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
    """Pairs ascend strictly if sorting and deduplicating them changes nothing."""
    for pairs in (held, sorted(held), sorted(set(held))):
        first, second = (keys_of([pair[side] for pair in pairs]) for side in (0, 1))
        assert first.ascend_with(second) == (pairs == sorted(set(pairs)))
        assert first.descend() == (first.as_list() != sorted(first))


@pytest.mark.parametrize("edges", [[], [0, 3], [-1, 2], [1, 2], [0, 2, 1], [0, 1 << 62], [0, 1]])
def test_edges_outside(edges):
    """Edges outside the bytes are refused."""
    with pytest.raises(ValueError, match=r"edges|outside"):
        Keys(array("q", edges), b"ab")


def test_wrong_arguments():
    """Edges that are not int64, a position beyond the last key, and lists of different lengths are refused."""
    with pytest.raises(ValueError, match="edges"):
        Keys(array("i", [0, 2]), b"ab")
    for place in (-2, 1):
        with pytest.raises(IndexError):
            keys_of([b"ab"])[place]
    with pytest.raises(ValueError, match="numbers"):
        keys_of([b"ab"]).ascend_with(keys_of([]))


def numbered(held, before=b""):
    """The distinct keys of rows, the position of each row's key among them, and the edges."""
    edges = np.array([*accumulate(map(len, held), initial=len(before))], np.int64)
    places = np.full(len(held), -1, np.int64)
    return number_keys(edges, before + b"".join(held), places), places.tolist(), edges


rows = st.lists(st.sampled_from([b"", b"\0", b"a", b"b" * 8, b"b" * 9, b"b" * 8 + b"c"]) | st.binary(max_size=20))


@examples(200)
@given(rows, st.binary(max_size=3))
def test_keys_of_rows(held, before):
    """Distinct keys are returned in order of appearance; rows with a given key are marked."""
    keys, places, edges = numbered(held, before)
    assert keys == list(dict.fromkeys(held))
    assert [keys[place] for place in places] == held
    for key in [*keys[:3], b"x"]:
        mask = np.full(len(held), 7, np.uint8)
        are_key(edges, before + b"".join(held), key, mask)
        assert mask.tolist() == [one == key for one in held]


def test_keys_of_many_rows():
    """The same is true of many rows, for which the interpreter's lock is released."""
    for held in ([b"key %d" % n for n in range(9000)], [b"%d" % (n % 7) for n in range(9000)], [b"one"] * 9000):
        keys, places, _ = numbered(held)
        assert keys == list(dict.fromkeys(held))
        assert [keys[place] for place in places] == held


@pytest.mark.parametrize(
    "edges", [[], [0, 1], [0, 1, 2, 2], [-1, 0, 1], [0, 2, 1], [0, 1, 4], [1 << 62, 1 << 62, 1 << 62]]
)
def test_keys_of_rows_outside(edges):
    """For two rows of three bytes, edges that are too few, too many or outside the bytes are refused."""
    with pytest.raises(ValueError, match=r"edges|outside"):
        number_keys(np.array(edges, np.int64), b"abc", np.empty(2, np.int64))
    with pytest.raises(ValueError, match=r"edges|outside"):
        are_key(np.array(edges, np.int64), b"abc", b"a", np.empty(2, np.uint8))
