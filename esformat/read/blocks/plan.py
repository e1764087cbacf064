"""Find the rows and blocks that can contain the events of a query. Reads the directory and indexes, but no events."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from esformat.core.cached_segment import RowSpan
from esformat.core.leaves import BlockSlice
from esformat.format.data_block import I64
from esformat.format.postings import CHUNKED, Posting
from esformat.read.ask.question import Query
from esformat.read.blocks.index import Index
from esformat.read.blocks.reader import Reader

MANY_CONDITIONS = 1000  # maximum conditions remembered as occurring in every data block
FEW_BLOCKS = 4  # up to this many blocks are searched without reading a long posting list


class IndexMatches(NamedTuple):
    """The index matches of a query's conditions in rows [low, high): see `match_indexes`."""

    rows: I64 | None
    """Rows that satisfy the conditions that have row lists; None if no condition has one."""
    blocks: I64 | None
    """Data blocks that can contain matching rows; None for all."""
    unmet: tuple[tuple[str, Any], ...]
    """Conditions that must still be checked against the blocks' columns."""
    nothing: bool = False
    """Whether no row can satisfy the conditions."""
    repeated: bool = False
    """Whether the query was asked before, so that the data it reads is worth caching."""

    @property
    def unconditional(self) -> bool:
        """Whether the indexes exclude nothing and no condition is left to check."""
        return self.rows is None and self.blocks is None and not self.unmet


UNCONDITIONAL = IndexMatches(None, None, ())
NOTHING = IndexMatches(None, None, (), nothing=True)


def match_indexes(reader: Reader, query: Query, low: int, high: int, listed: I64 | None = None) -> IndexMatches:
    """Look up the query's conditions in the indexes, for rows [low, high), or only the `listed` ones."""
    if low >= high or query.limit == 0:
        return NOTHING
    known: IndexMatches | None = reader.everywhere.get(query.conditions)
    if known is not None and listed is None:
        return known
    found = UNCONDITIONAL if listed is None else _index_matches(listed, None)
    for name, value in query.conditions:
        if found.nothing:
            break
        several = isinstance(value, frozenset)
        met = _one_of(reader, name, value, low, high) if several else _equal(reader, name, value, low, high)
        found = _both(found, met)
    return found


def _equal(reader: Reader, name: str, value: Any, low: int, high: int) -> IndexMatches:
    """The index matches, among rows [low, high), of a column with one value."""
    itself = ((name, value),)
    known: IndexMatches | None = reader.everywhere.get(itself)
    if known is not None:
        return known
    index = Index(reader, name)
    posting = index.find(value)
    if posting is None:
        return NOTHING
    if _is_everywhere(reader, index, value, posting):
        return IndexMatches(None, None, itself)
    if posting.form & CHUNKED and _are_few_blocks(reader, low, high):
        return IndexMatches(None, None, itself)  # reading the blocks' column costs less than the list
    if not posting.names_blocks:
        return _index_matches(index.numbers(value, posting, low, high), None)
    return _index_matches(None, index.numbers(value, posting, *block_span(reader, low, high)), itself)


def _is_everywhere(reader: Reader, index: Index, value: Any, posting: Posting) -> bool:
    """Whether every data block contains a value. If so, that is remembered."""
    itself = ((index.name, value),)
    if itself in reader.everywhere:
        return True
    if not posting.names_blocks or not index.everywhere(value, posting):
        return False
    if len(reader.everywhere) < MANY_CONDITIONS:
        reader.everywhere[itself] = IndexMatches(None, None, itself)
    return True


def _are_few_blocks(reader: Reader, low: int, high: int) -> bool:
    """Whether only a few blocks contain rows [low, high)."""
    if reader.root.leaf_of_row(high - 1) - reader.root.leaf_of_row(low) > 1:
        return False
    first, last = block_span(reader, low, high)
    return last - first <= FEW_BLOCKS


def _one_of(reader: Reader, name: str, values: frozenset[Any], low: int, high: int) -> IndexMatches:
    """The index matches of a column with one of several values; the blocks may also contain rows with other values."""
    index = Index(reader, name)
    rows: list[I64] = []
    blocks: list[I64] = []
    for value in values:
        posting = index.find(value)
        if posting is None:
            continue
        if not posting.names_blocks:
            rows.append(index.numbers(value, posting, low, high))
        elif _is_everywhere(reader, index, value, posting):
            return UNCONDITIONAL
        else:
            blocks.append(index.numbers(value, posting, *block_span(reader, low, high)))
    listed = np.sort(np.concatenate(rows)) if any(map(len, rows)) else None
    if not blocks:
        return NOTHING if listed is None else IndexMatches(listed, None, ())
    if listed is not None:
        blocks.append(_blocks_of(reader, listed))
    return _index_matches(None, np.unique(np.concatenate(blocks)))


def _blocks_of(reader: Reader, rows: I64) -> I64:
    """The data blocks that contain some rows; the rows must be ascending."""
    leaves = np.searchsorted(reader.root.rows, rows, side="right") - 1
    parts = []
    for number in np.unique(leaves).tolist():
        leaf = reader.leaf(number, keys=False)
        first, last = np.searchsorted(leaves, (number, number + 1)).tolist()
        parts.append(np.searchsorted(leaf.block_rows, rows[first:last], side="right") - 1 + leaf.first_block)
    return np.concatenate(parts)


def _both(one: IndexMatches, two: IndexMatches) -> IndexMatches:
    """The index matches of both conditions together."""
    if one is UNCONDITIONAL or two.nothing:
        return two
    return _index_matches(_common(one.rows, two.rows), _common(one.blocks, two.blocks), one.unmet + two.unmet)


def _common(one: I64 | None, two: I64 | None) -> I64 | None:
    if one is None or two is None:
        return two if one is None else one
    return np.intersect1d(one, two, assume_unique=True)


def _index_matches(rows: I64 | None, blocks: I64 | None, unmet: tuple[tuple[str, Any], ...] = ()) -> IndexMatches:
    """The matches with some rows and blocks; `NOTHING` if either list is empty."""
    empty = (rows is not None and not len(rows)) or (blocks is not None and not len(blocks))
    return NOTHING if empty else IndexMatches(_int64(rows), _int64(blocks), unmet)


def _int64(numbers: npt.NDArray[np.integer] | None) -> I64 | None:
    return None if numbers is None else np.ascontiguousarray(numbers, np.int64)


def block_span(reader: Reader, low: int, high: int) -> tuple[int, int]:
    """Data blocks [first, last) that contain rows [low, high) of the segment."""
    root = reader.root
    if high - low == root.events:
        return 0, root.data_blocks
    first, last = root.leaf_of_row(low), root.leaf_of_row(high - 1)
    leaf = reader.leaf(first, keys=False)
    begin = leaf.first_block + leaf.block_of(low)
    leaf = leaf if last == first else reader.leaf(last, keys=False)
    return begin, leaf.first_block + leaf.block_of(high - 1) + 1


def slices(reader: Reader, query: Query, row_span: RowSpan, index_matches: IndexMatches) -> list[BlockSlice]:
    """The block slices of a row span that can contain matching events, in the query's direction."""
    leaf = reader.leaf(row_span.leaf, keys=False)
    first, last, run_start = row_span.first, row_span.last, row_span.run_start
    found: list[BlockSlice] = leaf.slices(
        first, last, run_start, index_matches.blocks, index_matches.rows, query.start, query.end
    )
    return found[::-1] if query.reverse else found


def leaves_with(reader: Reader, rows: I64) -> list[RowSpan]:
    """The leaves that contain some rows of the segment, as row spans; the rows must be ascending."""
    edges = reader.root.rows
    numbers = np.diff(np.searchsorted(rows, edges)).nonzero()[0].tolist()
    return [RowSpan(number, edges[number], edges[number + 1], -1) for number in numbers]


def touched(reader: Reader, row_spans: Iterable[RowSpan], index_matches: IndexMatches) -> Iterable[RowSpan]:
    """The row spans that contain index matches. Not even the leaves of the others are read."""
    if index_matches.rows is None and index_matches.blocks is None:
        return row_spans
    rows, blocks = (None if some is None else some.data for some in (index_matches.rows, index_matches.blocks))
    blocks_of = reader.root.blocks_of
    return (
        row_span
        for row_span in row_spans
        if (rows is None or _any_within(rows, row_span.first, row_span.last))
        and (blocks is None or _any_within(blocks, *blocks_of(row_span.leaf)))
    )


def _any_within(numbers: Sequence[int], first: int, last: int) -> bool:
    place = bisect_left(numbers, first)
    return place < len(numbers) and numbers[place] < last


def block_slices(
    reader: Reader, query: Query, row_spans: Iterable[RowSpan], index_matches: IndexMatches
) -> Iterator[BlockSlice]:
    """The block slices of row spans in the query's direction: one per block, however many row spans it contains."""
    held: list[BlockSlice] = []  # of one block
    for row_span in row_spans:
        parts = slices(reader, query, row_span, index_matches)
        if held and parts and parts[0].number != held[0].number:
            yield _one_slice(held)
            held = []
        if len(parts) > 1:
            yield _one_slice([*held, parts[0]])
            yield from parts[1:-1]
            held = parts[-1:]
        else:
            held += parts
    if held:
        yield _one_slice(held)


def _one_slice(parts: list[BlockSlice]) -> BlockSlice:
    """Join slices of one block into a slice that lists their rows."""
    if len(parts) == 1:
        return parts[0]
    parts = sorted(parts, key=lambda part: part.first)
    rows = [np.arange(part.first, part.last) if part.rows is None else part.rows for part in parts]
    return BlockSlice(parts[0].leaf, parts[0].block, parts[0].first, parts[-1].last, np.concatenate(rows), -1)
