"""Keys found by halving, as `bisect` finds them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.keys import find_key, pairs_ascend

keys = st.lists(st.binary(max_size=3) | st.sampled_from([b"", b"\x7f", b"\x80", b"a\0", b"a"]), max_size=30).map(sorted)


@examples(100)
@given(keys, st.binary(max_size=4))
def test_places(held, key):
    """Keys that are there, also several times, and others; bytes count unsigned, the shorter key comes first."""
    edges = np.cumsum([0, *map(len, held)])
    for wanted in [key, *held]:
        found = find_key(b"".join(held), edges, wanted)
        assert found == (bisect_left(held, wanted), bisect_right(held, wanted))


@examples(100)
@given(
    st.lists(st.tuples(st.sampled_from([b"", b"a", b"ab", b"\x80"]), st.sampled_from([b"", b"\0", b"b"])), max_size=6)
)
def test_pairs(held):
    """Pairs ascend strictly where sorting them, each once, changes nothing."""
    for pairs in (held, sorted(held), sorted(set(held))):
        edges = [np.cumsum([0, *map(len, keys)]) for keys in ([a for a, _ in pairs], [b for _, b in pairs])]
        first, second = (b"".join(pair[side] for pair in pairs) for side in (0, 1))
        assert pairs_ascend(first, edges[0], second, edges[1]) == (pairs == sorted(set(pairs)))


@pytest.mark.parametrize("edges", [[], [0, 3], [-1, 1], [2, 1], [0, 1 << 62]])
def test_edges_outside(edges):
    """Nothing is read outside of the bytes."""
    with pytest.raises(ValueError, match=r"numbers|outside"):
        pairs_ascend(b"ab", np.array(edges, np.int64), b"", np.zeros(2, np.int64))
    with pytest.raises(ValueError, match=r"numbers|outside"):
        pairs_ascend(b"", np.zeros(2, np.int64), b"ab", np.array(edges, np.int64))
    with pytest.raises(ValueError, match=r"edges|outside"):
        find_key(b"ab", np.array(edges, np.int64), b"a")
