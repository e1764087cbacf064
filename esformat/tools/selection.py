"""Select the events of an original that a tool keeps: whole leaves and blocks, or rows of blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from esformat.format.data_block import I64, DataBlock
from esformat.tools.original import BlockRef, OpenOriginal, Original, decode_block_rows, leaf_blocks, open_data_block
from esformat.tools.rows import Rows


@dataclass(frozen=True, slots=True)
class Kept:
    """A block that is kept: all of its rows, or those that `choose` picks once it is decoded."""

    ref: BlockRef
    choose: Callable[[Rows], I64] | None = None
    """Returns the ascending places of the decoded rows to keep; None keeps all."""

    @property
    def stored_bytes(self) -> int:
        """The block's size in the original, in bytes."""
        return self.ref.handle.length


@dataclass(frozen=True, slots=True)
class KeptLeaf:
    """A leaf of an open segment whose blocks are all kept whole."""

    original: OpenOriginal
    number: int

    @property
    def stored_bytes(self) -> int:
        """Size of the leaf and its blocks in the original, in bytes."""
        handle, data_offset = self.original.reader.root.place(self.number)
        return int(handle.end - data_offset)

    def blocks(self) -> Iterator[Kept]:
        """The blocks of the leaf."""
        return (Kept(ref) for ref in leaf_blocks(self.original.reader.leaf(self.number)))


AnyKept: TypeAlias = Kept | KeptLeaf
Selection = Callable[[Original], Iterator[AnyKept]]
"""Returns the parts of an original to keep, in order."""


def everything(original: Original) -> Iterator[AnyKept]:
    """Select every event."""
    if isinstance(original, OpenOriginal):
        return (KeptLeaf(original, number) for number in range(len(original.reader.root)))
    return (Kept(ref) for ref in original.blocks())


def single_blocks(kept: Iterator[AnyKept]) -> Iterator[Kept]:
    """The same parts, with each leaf replaced by its blocks."""
    for each in kept:
        if isinstance(each, KeptLeaf):
            yield from each.blocks()
        else:
            yield each


def kept_data(original: OpenOriginal, selection: Selection) -> Iterator[tuple[DataBlock, I64 | None]]:
    """The blocks of an open segment with kept rows, and the places of these rows; None if all are kept."""
    for kept in selection(original):
        if isinstance(kept, KeptLeaf):
            yield from ((block, None) for block in original.leaf_data(kept.number))
            continue
        ((_, stored),) = original.read([kept.ref])
        chosen = None if kept.choose is None else kept.choose(decode_block_rows(original, kept.ref, stored))
        yield open_data_block(original, kept.ref, stored), chosen


def rows_in(ranges: Sequence[tuple[int, int]]) -> Selection:
    """Select rows of an open segment in ranges [first, last), which ascend and do not touch."""
    firsts = [first for first, _ in ranges]

    def overlaps(first: int, last: int) -> list[tuple[int, int]]:
        """The parts of the range [first, last) that are kept."""
        place = max(0, bisect_right(firsts, first) - 1)
        found = []
        for a, b in ranges[place:]:
            if a >= last:
                break
            if b > first:
                found.append((max(a, first), min(b, last)))
        return found

    def select(original: Original) -> Iterator[AnyKept]:
        assert isinstance(original, OpenOriginal)
        root = original.reader.root
        for number in range(len(root)):
            span = root.rows_of(number)
            inside = overlaps(*span)
            if inside == [span]:
                yield KeptLeaf(original, number)
                continue
            for ref in leaf_blocks(original.reader.leaf(number)) if inside else ():
                kept = overlaps(ref.first_row, ref.first_row + ref.rows)
                if kept == [(ref.first_row, ref.first_row + ref.rows)]:
                    yield Kept(ref)
                elif kept:
                    yield Kept(ref, _fixed(np.concatenate([np.arange(a, b) for a, b in kept]) - ref.first_row))

    return select


def _fixed(places: I64) -> Callable[[Rows], I64]:
    return lambda _: places


def rows_outside(ranges: Sequence[tuple[int, int]], row_count: int) -> Selection:
    """Select all rows except those in ascending ranges [first, last)."""
    edges = [0, *(edge for pair in ranges for edge in pair), row_count]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return rows_in([(first, last) for first, last in pairs if first < last])


def times_between(start: int | None, end: int | None) -> Selection:
    """Select events with timestamps in [start, end), µs; None is no bound."""

    def inside(rows: Rows) -> I64:
        chosen = np.ones(len(rows), dtype=np.bool_)
        if start is not None:
            chosen &= rows.timestamps >= start
        if end is not None:
            chosen &= rows.timestamps < end
        return np.nonzero(chosen)[0]

    def select(original: Original) -> Iterator[AnyKept]:
        for kept in single_blocks(everything(original)):
            low, high = kept.ref.min_timestamp, kept.ref.max_timestamp
            if (end is not None and low >= end) or (start is not None and high < start):
                continue
            whole = (start is None or low >= start) and (end is None or high < end)
            yield kept if whole else Kept(kept.ref, inside)

    return select
