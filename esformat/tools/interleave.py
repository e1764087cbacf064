"""Read several originals as one sequence in the order of segments: blocks that stand alone unchanged, others as rows.

A block stands alone if no other original has a row between its first and its last row. The other blocks are decoded and
merged, about one of each original at a time, however far the originals interleave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from esformat.format.data_block import I64
from esformat.tools.original import Original, decode_block_rows
from esformat.tools.rows import Bound, Rows, join, merge_rows
from esformat.tools.selection import Kept, KeptLeaf, Selection, single_blocks

LEAST_COPIED_ROWS = 512
LEAST_COPIED_BYTES = 16 << 10
"""Blocks below both are not copied but re-encoded together: a merge of many tiny files would stay fragmented."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A block of an original to copy unchanged."""

    origin: int
    kept: Kept


@dataclass(frozen=True, slots=True)
class CopiedLeaf:
    """A leaf of an original to copy unchanged, with its blocks."""

    origin: int
    kept: KeptLeaf


@dataclass(frozen=True, slots=True)
class Merged:
    """Rows to encode; `origins`: the original of each."""

    rows: Rows
    origins: I64


Piece = CopiedLeaf | Copied | Merged


class _Lane:
    """The position in one original: the next block to decode, and decoded rows that were not yielded yet."""

    def __init__(self, place: int, original: Original, selection: Selection) -> None:
        self.place = place
        self.original = original
        self._kept = single_blocks(selection(original))
        self.head = next(self._kept, None)
        self.buffer: Rows | None = None

    def advance(self) -> Kept:
        head = self.head
        assert head is not None
        self.head = next(self._kept, None)
        return head

    def decode(self) -> None:
        """Decode the next block into the buffer."""
        kept = self.advance()
        ((_, block),) = self.original.read([kept.ref])
        rows = decode_block_rows(self.original, kept.ref, block)
        if kept.choose is not None:
            places = kept.choose(rows)
            if not len(places):
                return
            rows = rows if len(places) == len(rows) else rows.take(places)
        self.buffer = rows if self.buffer is None else join([self.buffer, rows])

    def take_before(self, bound: tuple[Bound, int] | None) -> Rows | None:
        """Remove and return the decoded rows before a bound; None: all."""
        rows = self.buffer
        if rows is None:
            return None
        count = len(rows) if bound is None else rows.count_before(bound[0], ties=self.place <= bound[1])
        if count == len(rows):
            self.buffer = None
            return rows
        if not count:
            return None
        self.buffer = rows.slice(count, len(rows))
        return rows.slice(0, count)

    @property
    def frontier(self) -> tuple[Bound, int]:
        """A lower bound of the rows still to be decoded."""
        assert self.head is not None
        low = self.head.ref.low  # may be too low: the directory has no timestamps of single rows
        return (low if self.buffer is None else max(low, self.buffer.last)), self.place

    def begins_after(self, bound: tuple[Bound, int]) -> bool:
        """Whether all remaining rows of this lane come after a bound."""
        if self.buffer is not None and (self.buffer.first, self.place) < bound:
            return False
        return self.head is None or self.frontier > bound


def interleave(
    originals: Sequence[Original], selections: Sequence[Selection], copied: Sequence[bool]
) -> Iterator[Piece]:
    """The kept parts of the originals in the order of segments, ties in the order of `originals`.

    copied: for each original, whether to copy blocks that stand alone; otherwise all its blocks are decoded.
    Raises CorruptSegmentError.
    """
    if len(originals) == 1 and copied[0]:
        yield from _only(originals[0], selections[0])
        return
    lanes = [_Lane(place, *pair) for place, pair in enumerate(zip(originals, selections, strict=True))]
    while True:
        waiting = [lane for lane in lanes if lane.head is not None]
        if not waiting:
            yield from _merged(lanes, None)
            return
        nearest = min(waiting, key=lambda lane: lane.frontier)
        yield from _merged(lanes, nearest.frontier)
        if copied[nearest.place] and _is_disjoint(nearest, lanes):
            yield Copied(nearest.place, nearest.advance())
        else:
            nearest.decode()


def _only(original: Original, selection: Selection) -> Iterator[Piece]:
    """The kept parts of a single original; leaves and blocks that are kept whole are copied."""
    for kept in selection(original):
        if isinstance(kept, KeptLeaf):
            yield CopiedLeaf(0, kept)
        elif kept.choose is None:
            yield Copied(0, kept)
        else:
            lane = _Lane(0, original, lambda _, kept=kept: iter([kept]))  # type: ignore[misc]
            lane.decode()
            yield from _merged([lane], None)


def _is_disjoint(lane: _Lane, lanes: Sequence[_Lane]) -> bool:
    assert lane.head is not None
    ref = lane.head.ref
    if lane.head.choose is not None or lane.buffer is not None:
        return False
    if ref.rows < LEAST_COPIED_ROWS and ref.handle.length < LEAST_COPIED_BYTES:
        return False
    return all(other is lane or other.begins_after((ref.high, lane.place)) for other in lanes)


def _merged(lanes: Sequence[_Lane], bound: tuple[Bound, int] | None) -> Iterator[Merged]:
    taken = [(lane.place, rows) for lane in lanes if (rows := lane.take_before(bound)) is not None]
    if taken:
        rows, origins = merge_rows([rows for _, rows in taken])
        yield Merged(rows, np.array([place for place, _ in taken])[origins])
