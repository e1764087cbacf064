"""Announce what a scan will read next, for sources that can prefetch; other sources read on demand.

A source that can prefetch has a method `will_read(start, stop)`. Items (leaves, stretches, block slices) are taken from
their iterator some megabytes before they are used. Their byte ranges are joined, split into requests and announced.
A small answer is thus fetched in one request, and a long one by several threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from esformat.core.leaves import BlockSlice
from esformat.core.opened import Stretch, part_of
from esformat.io.ranges import Range, cut, join
from esformat.read.ask.question import Query
from esformat.read.blocks.plan import Narrowed, block_slices, touched
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


def stretches_ahead(
    reader: Reader, query: Query, stretches: Iterable[Stretch], narrowed: Narrowed | None = None
) -> Iterable[Stretch]:
    """Yield stretches that are read in order, announcing all their bytes if all are needed, else their leaves only."""
    announce = reader.announce
    if announce is None:
        return stretches
    if _reads_all(query, narrowed):
        return _announced(stretches, lambda stretch: _stretch(reader, stretch), announce, GAP_BYTES)
    few = query.limit is not None
    return _announced(stretches, lambda stretch: _leaf(reader, stretch.leaf), announce, LEAF_GAP_BYTES, few=few)


def announce_groups(reader: Reader, query: Query, groups: Iterable[list[list[Stretch]]]) -> None:
    """Announce the bytes of groups of runs that are read together; of a single run, only those up to the limit."""
    announce = reader.announce
    if announce is None or query.filtered:
        return
    places: list[Range] = []
    for runs in groups:
        stretches = [stretch for run in runs for stretch in run]
        if query.limit is not None and len(runs) == 1:
            stretches = [_end_of(reader, stretches[-1 if query.reverse else 0], query.limit, query.reverse)]
        places += join([_stretch(reader, stretch) for stretch in stretches], 0)
    for start, stop in cut(join(places, GAP_BYTES), REQUEST_BYTES):
        announce(start, stop)
    again = getattr(reader.source, "will_read_again", None)
    for (_, before), (start, stop) in pairwise(sorted(places)):
        if again is not None and start < before:  # the block in which one group ends and the next begins
            again(start, min(before, stop))


def at_hand(reader: Reader, stretches: Sequence[Stretch]) -> bool:
    """Whether stretches can be read without waiting for a remote source."""
    if reader.announce is None:
        return True
    look = getattr(reader.source, "has", None)
    if look is None:
        return False
    first, last = _stretch(reader, stretches[0]), _stretch(reader, stretches[-1])
    return bool(look(first[0], last[1]))


def announce_stretches(reader: Reader, stretches: Iterable[Stretch], most_bytes: int) -> None:
    """Announce all bytes of stretches that are not cached, unless they exceed `most_bytes`: a scan reads them first."""
    missing = [stretch for stretch in stretches if not _is_at_hand(reader, stretch)]
    places = join((_stretch(reader, stretch) for stretch in missing), GAP_BYTES)
    if reader.announce is not None and sum(stop - start for start, stop in places) <= most_bytes:
        for start, stop in places:
            reader.announce(start, stop)


def _is_at_hand(reader: Reader, stretch: Stretch) -> bool:
    """Whether a stretch is within one block, and the block is cached."""
    leaf = reader.known_leaf(stretch.leaf)
    if leaf is None:
        return False
    first = leaf.block_of(stretch.first)
    return first == leaf.block_of(stretch.last - 1) and reader.is_at_hand(leaf.first_block + first)


def _end_of(reader: Reader, stretch: Stretch, limit: int, reverse: bool) -> Stretch:
    """The rows of a run that a merge needs for `limit` rows, and the next block, which the merge checks for ties."""
    leaf = reader.leaf(stretch.leaf, keys=False)
    if reverse:
        first = leaf.block_rows[leaf.block_of(max(stretch.first, stretch.last - limit - 1))] - 1
        return part_of(stretch, first, stretch.last)
    last = leaf.block_rows[leaf.block_of(min(stretch.last - 1, stretch.first + limit)) + 1] + 1
    return part_of(stretch, stretch.first, last)


def _reads_all(query: Query, narrowed: Narrowed | None) -> bool:
    """Whether a query reads every block of its stretches."""
    listed = narrowed is not None and (narrowed.rows is not None or narrowed.blocks is not None)
    return query.limit is None and not query.timed and not listed


def slices_ahead(
    reader: Reader,
    query: Query,
    stretches: Iterable[Stretch],
    narrowed: Narrowed,
    needed: Callable[[BlockSlice], bool] = lambda part: True,
) -> Iterator[BlockSlice]:
    """The slices of `block_slices`. Announces the bytes of the next slices that are `needed`."""
    stretches = touched(reader, stretches, narrowed)
    if reader.announce is None:
        return block_slices(reader, query, stretches, narrowed)
    known = stretches_ahead(reader, query, stretches, narrowed)
    return each_ahead(reader, query, block_slices(reader, query, known, narrowed), needed)


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
    if reader.known_leaf(number) is not None:
        return None
    handle = reader.root.handle(number)
    return handle.offset, handle.end


def _stretch(reader: Reader, stretch: Stretch) -> Range:
    root, leaf = reader.root, reader.known_leaf(stretch.leaf)
    handle, data_offset = root.place(stretch.leaf)
    if leaf is not None:
        first, last = leaf.block_of(stretch.first), leaf.block_of(stretch.last - 1)
        return leaf.block_offsets[first], leaf.block_offsets[last + 1]
    if (stretch.first, stretch.last) == root.rows_of(stretch.leaf):
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
