"""Indexes built from arriving columns use memory that does not grow with the rows."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
from small_pieces import Pieces, cut_small

from esformat.tools.column_indexes import ColumnIndexes

ROWS, ROWS_AT_ONCE = 20_000, 500


def test_memory_is_bounded(tmp_path):
    """Rows and values of two columns with unique values are kept on disk."""
    held = []
    pieces = Pieces(index_bytes=256 << 10, index_step_rows=1000)
    with cut_small(pieces), closing(ColumnIndexes([0, 3], tmp_path)) as indexes:
        before = pa.total_allocated_bytes()
        for first in range(0, ROWS, ROWS_AT_ONCE):
            numbers = np.arange(first, first + ROWS_AT_ONCE)[::-1]
            indexes.add({0: pa.array(numbers), 3: pa.array([f"{number:040}" for number in numbers.tolist()])})
            held.append(pa.total_allocated_bytes() - before)
        found = [np.concatenate([chunk.rows for chunk in indexes.chunks(place)]) for place in (0, 3)]
    assert max(held) < 400 << 10  # the values alone are 1,120 kB
    expected = np.arange(ROWS).reshape(-1, ROWS_AT_ONCE)[:, ::-1].ravel()
    assert all((rows == expected).all() for rows in found)
    assert list(tmp_path.iterdir()) == []
