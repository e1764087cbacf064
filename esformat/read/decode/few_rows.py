"""A few rows from all over a segment, as an index lists them: each from its block, in the way that a history is read.

What a group of blocks costs before its first row, and whole columns of a block, would be most of the work for one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from esformat.core.leaves import Leaf
from esformat.read.ask.question import Query
from esformat.read.blocks.plan import Narrowed, Portion
from esformat.read.blocks.reader import Reader
from esformat.read.decode.block_events import find_rows
from esformat.read.decode.run_events import Made, Maker

MOST_FEW = 8
"""Rows that are read one by one. More, each from a block of its own, are quicker as a group as tables."""

MakerOf = Callable[[str | bytes, str | bytes], Maker[Made]]
"""What makes something of rows of a space and a grouping."""


def few_rows(
    reader: Reader, query: Query, narrowed: Narrowed, found: Iterable[Portion], maker_of: MakerOf[Made]
) -> Iterator[Made]:
    """What is made of the rows that answer the query, of those that portions list, in the query's direction."""
    for portion in found:
        leaf, origin = portion.leaf, portion.leaf.block_rows[portion.block]
        block = reader.data_block(leaf, portion.block)
        for part, run in _by_run(portion, reverse=query.reverse):
            with reader.named:
                rows = find_rows(reader, query, part, block, narrowed)
            if rows:
                yield maker_of(*_keys(reader, leaf, run)).picked(block, max(part.run_start - origin, 0), rows)


def _by_run(portion: Portion, *, reverse: bool) -> Iterator[tuple[Portion, int]]:
    """The listed rows of a portion by the run of its leaf that they lie in, and that run."""
    assert portion.rows is not None
    edges = np.asarray(portion.leaf.run_rows)
    run_of = np.searchsorted(edges, portion.rows, side="right") - 1
    for run in sorted(set(run_of.tolist()), reverse=reverse):
        start, end = portion.leaf.run_rows[run], portion.leaf.run_rows[run + 1]
        first, last = max(start, portion.first), min(end, portion.last)
        yield Portion(portion.leaf, portion.block, first, last, portion.rows[run_of == run], start), run


def _keys(reader: Reader, leaf: Leaf, run: int) -> tuple[str | bytes, str | bytes]:
    grouping = leaf.groupings[run] if leaf.has_groupings else b""
    return reader.shown(leaf.spaces[run]), reader.shown(grouping)
