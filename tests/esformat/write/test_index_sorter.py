"""Rows of an index by value are the same from spill files on disk as from one sort in memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import Pieces, cut_small

from esformat.format.order import Ranked, rank
from esformat.write.index_builder import IndexRows
from esformat.write.index_sorter import IndexSorter, group_rows

KINDS = {
    "text": (pa.string(), ["", "a", "ab", "é", "z\U0010ffff", "v" * 40, "￿"]),
    "numbers": (pa.int64(), [-(1 << 63), -1, 0, 5, (1 << 63) - 1, 7, 8]),
    "unsigned": (pa.uint64(), [0, 1, (1 << 64) - 1, 3, 4, 5, 6]),
    "booleans": (pa.bool_(), [False, True, True, False, True, False, True]),
}


def whole(chunks: list[IndexRows]) -> list[tuple[object, list[int]]]:
    """Chunks as values with their rows, joined if a value spans several."""
    found: list[tuple[object, list[int]]] = []
    for chunk in chunks:
        assert (chunk.counts > 0).all()
        edges = np.cumsum(np.append(0, chunk.counts)).tolist()
        assert edges[-1] == len(chunk.rows)
        for place, value in enumerate(chunk.values.to_pylist()):
            rows = chunk.rows[edges[place] : edges[place + 1]].tolist()
            if place == 0 and found and found[-1][0] == value:
                found[-1][1].extend(rows)
            else:
                found.append((value, rows))
    return found


def expected(column: pa.Array) -> list[tuple[object, list[int]]]:
    """The same from a plain dictionary."""
    rows: dict[object, list[int]] = {}
    for row, value in enumerate(column.to_pylist()):
        if value is not None:
            rows.setdefault(value, []).append(row)
    return sorted(rows.items(), key=lambda item: item[0].encode() if isinstance(item[0], str) else item[0])


@examples(150)
@given(st.sampled_from(sorted(KINDS)), st.lists(st.integers(-1, 6), max_size=120), st.data())
def test_runs_are_one_sort(tmp_path_factory, kind, codes, data):
    """Runs of any size, in small chunks and through any number of merges, equal one sort."""
    arrow, pool = KINDS[kind]
    column = pa.array([None if code < 0 else pool[code] for code in codes], arrow)
    step = data.draw(st.sampled_from([1, 7, 50]))
    sizes = Pieces(fan_in=data.draw(st.sampled_from([2, 3])), index_chunk_rows=data.draw(st.sampled_from([1, 3, 20])))
    directory = tmp_path_factory.mktemp("sorter")
    with cut_small(sizes):
        sorter = IndexSorter(directory, data.draw(st.sampled_from([1, 500, 5000, 1 << 20])))
        for first in range(0, len(column), step):
            sorter.add(rank(pa.chunked_array([column.slice(first, step)])), first)
        found = whole(list(sorter.chunks()))
        sorter.close()
    assert found == expected(column)
    assert list(directory.iterdir()) == []


def test_long_values_are_cut_by_bytes(tmp_path):
    """A chunk has fewer values if they are long."""
    column = pa.array([f"{n % 30:02}" + "x" * 20_000 for n in range(300)])
    sorter = IndexSorter(tmp_path, 400_000)
    for first in range(0, 300, 20):
        sorter.add(rank(pa.chunked_array([column.slice(first, 20)])), first)
    chunks = list(sorter.chunks())
    sorter.close()
    assert whole(chunks) == expected(column)
    assert max(chunk.values.nbytes for chunk in chunks) < 2_000_000


@pytest.mark.parametrize("values", [3, 70_000])
def test_rows_of_values(values):
    """Nulls and absent values are left out, with few and many values."""
    ranks = np.array([2, -1, 0, 2, -1, 0])
    part = group_rows(Ranked(ranks, pa.array(range(values))), 100)
    assert part.values.to_pylist() == [0, 2]
    assert part.counts.tolist() == [2, 2]
    assert part.rows.tolist() == [102, 105, 100, 103]
