"""The blocks that a query needs are found without a check of each block."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pytest

import esformat
from esformat.core.cached_segment import RowSpan
from esformat.read.ask.question import Query
from esformat.read.blocks.plan import IndexMatches, slices


@pytest.fixture
def leaf(tmp_path):
    """The reader of a file, and a leaf of it with many blocks."""
    with esformat.create(tmp_path / "a.esdb") as writer:
        times = pa.array(range(70_000), pa.timestamp("us", "UTC"))
        writer.add_table(pa.table({"space": ["s"] * len(times), "timestamp": times}))
    with esformat.open(tmp_path / "a.esdb") as segment:
        reader = segment._reader
        assert len(reader.leaf(0).block_rows) > 30
        yield reader, reader.leaf(0)


def asked(leaf, rows: list[int] | None, first: int, last: int, **query: object) -> list[tuple[int, int, int, object]]:
    reader, _ = leaf
    index_matches = IndexMatches(None if rows is None else np.array(rows), None, ())
    found = slices(reader, Query(**query), RowSpan(0, first, last, -1), index_matches)
    return [(p.block, p.first, p.last, None if p.rows is None else p.rows.tolist()) for p in found]


def test_blocks_of_listed_rows(leaf):
    """Each block has its own rows, within the row span, in both directions."""
    edges = leaf[1].block_rows
    first, last = edges[2] + 5, edges[9] - 5
    rows = [edges[2] + 4, edges[2] + 5, edges[3] - 1, edges[3], edges[8], edges[9] - 6, edges[9] - 5, edges[20]]
    expected = [
        (2, first, edges[3], [edges[2] + 5, edges[3] - 1]),
        (3, edges[3], edges[4], [edges[3]]),
        (8, edges[8], last, [edges[8], edges[9] - 6]),
    ]
    assert asked(leaf, rows, first, last) == expected
    assert asked(leaf, rows, first, last, reverse=True) == expected[::-1]
    assert asked(leaf, rows, first, last, start=edges[3], end=edges[4]) == expected[1:2]
    assert asked(leaf, None, first, last) == [
        (n, max(first, edges[n]), min(last, edges[n + 1]), None) for n in range(2, 9)
    ]


def test_one_row_costs_no_look_at_each_block(leaf):
    """A single row, as of a unique value, is located without a check of each block."""
    edges = leaf[1].block_rows
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(event) if event in ("call", "c_call") else None)
    try:
        found = asked(leaf, [edges[7]], edges[0], edges[-1])
    finally:
        sys.setprofile(None)
    assert [block for block, *_ in found] == [7]
    assert len(calls) < 2 * len(edges)
