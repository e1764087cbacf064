"""Announce what a scan will read next, for sources that can prefetch; other sources read on demand.

A source that can prefetch has a method `will_read(start, stop)`. Items (leaves, row spans, block slices) are taken from
their iterator some megabytes before they are used. Their byte ranges are joined, split into requests and announced.
A small answer is thus fetched in one request, and a long one by several threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from esformat.core.cached_segment import RowSpan, part_of
from esformat.core.leaves import BlockSlice
from esformat.io.ranges import Range, cut, join
from esformat.read.ask.question import Query
from esformat.read.blocks.plan import IndexMatches, block_slices, touched
from esformat.read.blocks.reader import Reader

GAP_BYTES = 512 << 10
"""Ranges at most this far apart are one request: a gap takes about as long to transfer as a round trip."""
LEAF_GAP_BYTES = 64 << 10  # the same if many leaves are read, but not the data between them
REQUEST_BYTES = 4 << 20
MOST_ITEMS = 1024  # maximum items taken before they are used
AHEAD_BYTES = 24 << 20  # bytes announced but not yet used, per scan

T = TypeVar("T")
Announce = Callable[[int, int], None]


def leaves_ahead(reader: Reader, numbers: Iterable[int], *, together: bool = False) -> Iterable[int]:
    """Yield the numbers of leaves that are read in order, announcing them. together: all of a few leaves are needed."""
    announce = reader.announce
    if announce is None:
        return numbers
    gap = GAP_BYTES if together else LEAF_GAP_BYTES
    return _announced(numbers, lambda number: _leaf(reader, number), announce, gap, few=not together)


def row_spans_ahead(
    reader: Reader, query: Query, row_spans: Iterable[RowSpan], index_matches: IndexMatches | None = None
) -> Iterable[RowSpan]:
    """Yield row spans that are read in order, announcing all their bytes if all are needed, else their leaves only."""
    announce = reader.announce
    if announce is None:
        return row_spans
    if _reads_all(query, index_matches):
        return _announced(row_spans, lambda row_span: _byte_range(reader, row_span), announce, GAP_BYTES)
    few = query.limit is not None
    return _announced(row_spans, lambda row_span: _leaf(reader, row_span.leaf), announce, LEAF_GAP_BYTES, few=few)


def announce_groups(reader: Reader, query: Query, groups: Iterable[list[list[RowSpan]]]) -> None:
    """Announce the bytes of groups of runs that are read together; of a single run, only those up to the limit."""
    announce = reader.announce
    if announce is None or query.filtered:
        return
    places: list[Range] = []
    for runs in groups:
        row_spans = [row_span for run in runs for row_span in run]
        if query.limit is not None and len(runs) == 1:
            row_spans = [_end_of(reader, row_spans[-1 if query.reverse else 0], query.limit, query.reverse)]
        places += join([_byte_range(reader, row_span) for row_span in row_spans], 0)
    for start, stop in cut(join(places, GAP_BYTES), REQUEST_BYTES):
        announce(start, stop)
    again = getattr(reader.source, "will_read_again", None)
    for (_, before), (start, stop) in pairwise(sorted(places)):
        if again is not None and start < before:  # the block in which one group ends and the next begins
            again(start, min(before, stop))


def is_local(reader: Reader, row_spans: Sequence[RowSpan]) -> bool:
    """Whether row spans can be read without waiting for a remote source."""
    if reader.announce is None:
        return True
    look = getattr(reader.source, "has", None)
    if look is None:
        return False
    first, last = _byte_range(reader, row_spans[0]), _byte_range(reader, row_spans[-1])
    return bool(look(first[0], last[1]))


def announce_row_spans(reader: Reader, row_spans: Iterable[RowSpan], most_bytes: int) -> None:
    """Announce all bytes of row spans that are not cached, unless they exceed `most_bytes`: a scan reads them first."""
    missing = [row_span for row_span in row_spans if not _is_cached(reader, row_span)]
    places = join((_byte_range(reader, row_span) for row_span in missing), GAP_BYTES)
    if reader.announce is not None and sum(stop - start for start, stop in places) <= most_bytes:
        for start, stop in places:
            reader.announce(start, stop)


def _is_cached(reader: Reader, row_span: RowSpan) -> bool:
    """Whether a row span is within one block, and the block is cached."""
    leaf = reader.cached_leaf(row_span.leaf)
    if leaf is None:
        return False
    first = leaf.block_of(row_span.first)
    return first == leaf.block_of(row_span.last - 1) and reader.is_block_cached(leaf.first_block + first)


def _end_of(reader: Reader, row_span: RowSpan, limit: int, reverse: bool) -> RowSpan:
    """The rows of a run that a merge needs for `limit` rows, and the next block, which the merge checks for ties."""
    leaf = reader.leaf(row_span.leaf, keys=False)
    if reverse:
        first = leaf.block_rows[leaf.block_of(max(row_span.first, row_span.last - limit - 1))] - 1
        return part_of(row_span, first, row_span.last)
    last = leaf.block_rows[leaf.block_of(min(row_span.last - 1, row_span.first + limit)) + 1] + 1
    return part_of(row_span, row_span.first, last)


def _reads_all(query: Query, index_matches: IndexMatches | None) -> bool:
    """Whether a query reads every block of its row spans."""
    listed = index_matches is not None and (index_matches.rows is not None or index_matches.blocks is not None)
    return query.limit is None and not query.timed and not listed


def slices_ahead(
    reader: Reader,
    query: Query,
    row_spans: Iterable[RowSpan],
    index_matches: IndexMatches,
    needed: Callable[[BlockSlice], bool] = lambda part: True,
) -> Iterator[BlockSlice]:
    """The slices of `block_slices`. Announces the bytes of the next slices that are `needed`."""
    row_spans = touched(reader, row_spans, index_matches)
    if reader.announce is None:
        return block_slices(reader, query, row_spans, index_matches)
    known = row_spans_ahead(reader, query, row_spans, index_matches)
    return each_ahead(reader, query, block_slices(reader, query, known, index_matches), needed)


def each_ahead(
    reader: Reader, query: Query, slices: Iterator[BlockSlice], needed: Callable[[BlockSlice], bool] = lambda part: True
) -> Iterator[BlockSlice]:
    """Yield block slices that are read in order, announcing those that are `needed`."""
    announce = reader.announce
    if announce is None:
        return slices

    def range_of(part: BlockSlice) -> Range | None:
        return (part.offset, part.end) if needed(part) else None

    return _announced(slices, range_of, announce, GAP_BYTES, few=query.limit is not None)


def _leaf(reader: Reader, number: int) -> Range | None:
    if reader.cached_leaf(number) is not None:
        return None
    handle = reader.root.handle(number)
    return handle.offset, handle.end


def _byte_range(reader: Reader, row_span: RowSpan) -> Range:
    root, leaf = reader.root, reader.cached_leaf(row_span.leaf)
    handle, data_offset = root.place(row_span.leaf)
    if leaf is not None:
        first, last = leaf.block_of(row_span.first), leaf.block_of(row_span.last - 1)
        return leaf.block_offsets[first], leaf.block_offsets[last + 1]
    if (row_span.first, row_span.last) == root.rows_of(row_span.leaf):
        return data_offset, handle.end
    return handle.offset, handle.end


def _announced(
    items: Iterable[T], range_of: Callable[[T], Range | None], announce: Announce, gap: int, *, few: bool = False
) -> Iterator[T]:
    """Yield the items in order, taking and announcing the next `AHEAD_BYTES` of them before they are used.

    few: the first items may suffice, so at first only one is taken, then two, and so on.
    """
    rest = iter(items)
    waiting: deque[tuple[T, int]] = deque()
    held, most = 0, 1 if few else MOST_ITEMS
    while True:
        if 2 * held <= AHEAD_BYTES and 2 * len(waiting) <= most:
            new: list[Range] = []
            for item in rest:
                place = range_of(item)
                size = 0
                if place is not None:
                    new.append(place)
                    size = place[1] - place[0]
                waiting.append((item, size))
                held += size
                if held >= AHEAD_BYTES or len(waiting) >= most:
                    break
            for start, stop in cut(join(new, gap), REQUEST_BYTES):
                announce(start, stop)
            most = min(2 * most, MOST_ITEMS)
        if not waiting:
            return
        item, size = waiting.popleft()
        held -= size
        yield item
