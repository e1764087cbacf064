"""Rows of several batches in a given order, in slices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.values import take_values
from esformat.write import ordered_pieces as module
from esformat.write.ordered_pieces import ordered_pieces, pieces_of, rows_of

VALUES = st.one_of(st.none(), st.text(max_size=3), st.text("aé", min_size=60, max_size=70))


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


@given(st.lists(st.lists(VALUES, max_size=5), min_size=1, max_size=4), st.data())
def test_rows_in_any_order(parts, data):
    """Rows of several batches, also of slices, in any order and repeated: as from Arrow's concatenation."""
    batches = []
    for values in parts:
        first = data.draw(st.integers(0, len(values)))
        texts = pa.array(values, pa.string())
        some = {
            "text": texts,
            "bytes": texts.cast(pa.binary()),
            "coded": texts.dictionary_encode(),
            "n": pa.array([7] * len(texts), pa.int64()),
        }
        batches.append(pa.record_batch(some).slice(first))
    count = sum(map(len, batches))
    order = np.array(data.draw(st.lists(st.integers(0, count - 1)) if count else st.just([])), np.int64)
    found = rows_of(batches, order[::-1])
    found.validate(full=True)
    assert found.to_pylist() == pa.Table.from_batches(map(plain, batches)).take(pa.array(order[::-1])).to_pylist()


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch without dictionaries."""
    return batch.set_column(2, "coded", batch["coded"].cast(pa.string()))


@pytest.mark.parametrize(
    ("order", "edges", "error"),
    [
        ([3], [0, 1, 2, 4], IndexError),
        ([-1], [0, 1, 2, 4], IndexError),
        ([2**62], [0, 1, 2, 4], IndexError),
        ([0], [0, 1, 2, 5], ValueError),
        ([0], [-1, 1, 2, 4], ValueError),
        ([0], [0, 2, 1, 4], ValueError),
        ([0], [2, 1, 3, 4], ValueError),
        ([0] * 2**12, [0, 2**20], OverflowError),
    ],
)
def test_numbers_and_edges_out_of_bounds(order, edges, error):
    """No memory outside of the values is read or written."""
    text = np.zeros(4 if len(order) == 1 else 2**20, np.uint8)
    with pytest.raises(error):
        take_values(np.array(order, np.int64), [(np.array(edges, np.int32), text)], pa.allocate_buffer)
