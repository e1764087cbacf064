"""Rows of several batches in a given order, in slices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esformat.write import ordered_pieces as module
from esformat.write.ordered_pieces import ordered_pieces, pieces_of


def batch(first: int, sizes: list[int]) -> pa.RecordBatch:
    """Numbered rows with payloads of these sizes."""
    return pa.record_batch({"row": np.arange(first, first + len(sizes)), "data": pa.array([b"x" * n for n in sizes])})


@given(st.lists(st.lists(st.integers(0, 90), max_size=6), min_size=1, max_size=5), st.integers(1, 5), st.randoms())
def test_any_order(sizes, most_rows, random):
    """Every row is returned once, in the given order; slices have limited rows and bytes."""
    starts = np.cumsum([0, *map(len, sizes)])
    batches = [batch(int(start), mine) for start, mine in zip(starts, sizes, strict=False)]
    order = list(range(int(starts[-1])))
    random.shuffle(order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_ROWS", most_rows)
        patch.setattr(module, "PIECE_BYTES", 100)
        found = list(ordered_pieces(batches, np.array(order, np.int64)))
        slices = [piece for one in batches for piece in pieces_of(one)]
    assert [row for piece in found for row in piece["row"].to_pylist()] == order
    assert [row for piece in slices for row in piece["row"].to_pylist()] == sorted(order)
    for piece in found + slices:
        assert len(piece) <= most_rows
        assert len(piece) == 1 or piece.nbytes <= 250
