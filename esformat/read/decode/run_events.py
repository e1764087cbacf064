"""Read the rows of one run, block by block, as most queries of a space do; a `Maker` converts them to results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Protocol, TypeVar

from esformat.core.cached_segment import RowSpan
from esformat.core.leaves import BlockSlice
from esformat.format.data_block import DataBlock
from esformat.read.ask.question import Query
from esformat.read.blocks.plan import match_indexes, slices
from esformat.read.blocks.prefetch import each_ahead, row_spans_ahead
from esformat.read.blocks.reader import Reader
from esformat.read.decode.block_events import find_rows

POINT_BLOCKS = 8  # data blocks that are read together

Made = TypeVar("Made", covariant=True)


class Maker(Protocol[Made]):
    """Converts rows of one run, in one direction, to results."""

    def consecutive(self, block: DataBlock, run_start: int, low: int, high: int) -> Made:
        """The result for rows [low, high) of a block; their run begins at its row `run_start`."""
        ...

    def picked(self, block: DataBlock, run_start: int, places: list[int]) -> Made:
        """The result for some rows of a block."""
        ...


def run_parts(
    reader: Reader,
    query: Query,
    row_spans: Callable[[], Iterable[RowSpan]],
    span: tuple[int, int],
    maker: Maker[Made],
) -> Iterable[Made]:
    """The maker's results for the matching rows of each block that has any. If the query filters rows, its limit is not
    applied.

    row_spans: returns the rows of a run, in row order. span: the rows [low, high) of the run.
    """
    known = [*row_spans()]
    if query.filtered:
        return _filtered(reader, query, known[::-1] if query.reverse else known, span, maker)
    return _every(reader, query, known[::-1] if query.reverse else known, maker)


def _every(reader: Reader, query: Query, row_spans: Sequence[RowSpan], maker: Maker[Made]) -> Iterator[Made]:
    """Every event, or the first `limit`; which rows these are is known before anything is read."""
    reverse, left = query.reverse, query.limit
    for row_span in row_spans_ahead(reader, query, row_spans):
        first, last = row_span.first, row_span.last
        if left is not None:
            if not left:
                return
            first, last = (max(first, last - left), last) if reverse else (first, min(last, first + left))
            left -= last - first
        found = reader.leaf(row_span.leaf, keys=False).slices(first, last, row_span.run_start)
        for part, block in _opened(reader, found[::-1] if reverse else found):
            yield maker.consecutive(block, part.run_row, part.first - part.origin, part.last - part.origin)


def _opened(reader: Reader, parts: Sequence[BlockSlice]) -> Iterator[tuple[BlockSlice, DataBlock]]:
    """Slices with their blocks, a few of which are read together, because they are near each other."""
    rest = iter(parts)
    while few := list(islice(rest, POINT_BLOCKS)):
        yield from zip(few, reader.few_data_blocks(few), strict=True)


def _filtered(
    reader: Reader, query: Query, row_spans: Sequence[RowSpan], span: tuple[int, int], maker: Maker[Made]
) -> Iterator[Made]:
    """The rows that satisfy the query's time range and conditions."""
    index_matches = match_indexes(reader, query, *span)
    if index_matches.nothing:
        return
    found = chain.from_iterable(slices(reader, query, row_span, index_matches) for row_span in row_spans)
    for part in each_ahead(reader, query, found):
        block = reader.data_block(part.leaf, part.block)
        with reader.named:
            rows = find_rows(reader, query, part, block, index_matches)
        if rows is None:
            yield maker.consecutive(block, part.run_row, part.first - part.origin, part.last - part.origin)
        elif rows:
            yield maker.picked(block, part.run_row, rows)
