"""The order of a segment agrees with Python's sort."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from event_strategies import HIGHEST, LOWEST
from hypothesis import given
from hypothesis import strategies as st

from esformat.format.order import merge_order, rank, sort_order

COLUMNS = [
    (pa.string(), st.text(max_size=3)),
    (pa.large_string(), st.text(max_size=3)),
    (pa.binary(), st.binary(max_size=3)),
    (pa.int64(), st.integers(LOWEST, HIGHEST)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.bool_(), st.booleans()),
]


@pytest.mark.parametrize(("kind", "values"), COLUMNS, ids=lambda x: str(x) if isinstance(x, pa.DataType) else "")
@examples(40)
@given(data=st.data())
def test_ranks_of_values(kind, values, data):
    """Values are distinct and ascending (text by its bytes); each row has the rank of its value, null has -1."""
    chunks = data.draw(st.lists(st.lists(st.none() | values, max_size=8), max_size=4))
    ranked = rank(pa.chunked_array(chunks, kind))
    rows = [value for chunk in chunks for value in chunk]
    distinct = sorted({v for v in rows if v is not None}, key=lambda v: v.encode() if isinstance(v, str) else v)
    assert ranked.values.to_pylist() == distinct
    assert ranked.values.type == kind
    assert ranked.ranks.tolist() == [-1 if value is None else distinct.index(value) for value in rows]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_ranks_of_nothing_but_empty_values(kind):
    """Only empty values, as in an unused grouping, have one rank; a slice with other values is ranked as usual."""
    some = pa.array(["", "", "a", "", ""]).cast(kind)
    for chunks in ([some[:2]], [some[3:], some[:0], some[:1]], [some[1:3]], [some[:2], pa.nulls(1, kind)]):
        ranked = rank(pa.chunked_array(chunks, kind))
        rows = [value for chunk in chunks for value in chunk.to_pylist()]
        expected = sorted({value for value in rows if value is not None})
        assert ranked.values.to_pylist() == expected
        assert ranked.values.type == kind
        assert ranked.ranks.tolist() == [-1 if value is None else expected.index(value) for value in rows]


@pytest.mark.parametrize("sort", [sort_order, merge_order])
@examples(150)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3) | st.integers(0, 1 << 40), st.integers(-2, 2) | st.integers(LOWEST, HIGHEST)),
        max_size=40,
    )
)
def test_order_is_stable(sort, rows):
    """Rows are ordered by key, time and arrival; None means that they already are."""
    keys = np.array([key for key, _ in rows], np.int64)
    times = np.array([time for _, time in rows], np.int64)
    expected = sorted(range(len(rows)), key=lambda row: rows[row])
    order = sort(keys, times)
    if order is None:
        assert expected == list(range(len(rows)))
    else:
        assert order.tolist() == expected


def test_sorted_rows_are_recognised():
    """Sorted rows, including ties, are recognised, so that they are not moved."""
    keys, times = np.array([0, 0, 0, 1]), np.array([5, 5, 6, -1])
    assert sort_order(keys, times) is None
    order = sort_order(keys[::-1], times)
    assert order is not None
    assert order.tolist() == [3, 1, 2, 0]
