"""Read a few scattered rows that an index lists, each from its block, the way a history is read.

For one row, the setup of a group of blocks, and decoding whole columns of a block, would be most of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from esformat.core.leaves import BlockSlice, Leaf
from esformat.read.ask.question import Query
from esformat.read.blocks.plan import IndexMatches
from esformat.read.blocks.reader import Reader
from esformat.read.decode.block_events import find_rows
from esformat.read.decode.run_events import Made, Maker

MOST_FEW = 8
"""Maximum number of rows read one by one. For tables, more rows of different blocks are read faster as a group."""

MakerOf = Callable[[str | bytes, str | bytes], Maker[Made]]
"""Returns the maker of results for rows of a space and a grouping."""


def few_rows(
    reader: Reader, query: Query, index_matches: IndexMatches, found: Iterable[BlockSlice], maker_of: MakerOf[Made]
) -> Iterator[Made]:
    """The makers' results for the rows that match the query, among those listed in block slices, in its direction."""
    for whole in found:
        block = reader.data_block(whole.leaf, whole.block)
        for part, run in _by_run(whole, reverse=query.reverse):
            with reader.named:
                rows = find_rows(reader, query, part, block, index_matches)
            if rows:
                yield maker_of(*_keys(reader, part.leaf, run)).picked(block, part.run_row, rows)


def _by_run(part: BlockSlice, *, reverse: bool) -> Iterator[tuple[BlockSlice, int]]:
    """The listed rows of a slice, split by run: for each run of its leaf, a slice and the run."""
    assert part.rows is not None
    edges = np.asarray(part.leaf.run_rows)
    run_of = np.searchsorted(edges, part.rows, side="right") - 1
    for run in sorted(set(run_of.tolist()), reverse=reverse):
        start, end = part.leaf.run_rows[run], part.leaf.run_rows[run + 1]
        first, last = max(start, part.first), min(end, part.last)
        yield BlockSlice(part.leaf, part.block, first, last, part.rows[run_of == run], start), run


def _keys(reader: Reader, leaf: Leaf, run: int) -> tuple[str | bytes, str | bytes]:
    leaf = reader.with_keys(leaf)
    grouping = leaf.groupings[run] if leaf.has_groupings else b""
    return reader.shown(leaf.spaces[run]), reader.shown(grouping)
