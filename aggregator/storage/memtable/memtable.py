"""Unsealed events of a partition, in memory, as the batches that were appended.

Appending costs nothing per event. A lookup of a space compares all keys, until lookups are frequent enough for an
index.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from aggregator.storage.memtable.lookup import Lookup
from aggregator.storage.memtable.piece import Piece

SMALL_BYTES = 32 << 10
"""Batches up to this size are merged, MERGED at a time, so that many tiny appends do not slow down reads."""
MERGED = 64


@dataclass(slots=True)
class Unsealed:
    """The unsealed events of a partition, in order. Changed only under the catalog's view lock."""

    pieces: list[Piece]
    rows: int = 0
    size_bytes: int = 0
    lookups: tuple[Lookup, ...] = ()
    alike: int = 0  # at least this many of the last pieces can be merged with each other

    @classmethod
    def empty(cls) -> Unsealed:
        """An instance without events."""
        return cls([])

    def add(self, piece: Piece) -> None:
        """Append the next batch."""
        goes_on = self.pieces and piece.goes_with(self.pieces[-1], SMALL_BYTES)
        self.alike = self.alike + 1 if goes_on else 1
        self.pieces.append(piece)
        self.rows += piece.rows
        self.size_bytes += piece.size_bytes

    def small_ones(self, end: int | None = None) -> list[Piece] | None:
        """The next MERGED adjacent small pieces to merge: the first of the similar ones before `end`, or before the end
        of all. None if there are too few.
        """
        return (self._alike_before(end) if end else None) or self._alike_before(len(self.pieces))

    def _alike_before(self, end: int) -> list[Piece] | None:
        if not MERGED <= end <= len(self.pieces) or not self.pieces[end - MERGED].goes_with(
            self.pieces[end - 1], SMALL_BYTES
        ):
            return None
        first = end - 1
        while first and self.pieces[first - 1].goes_with(self.pieces[end - 1], SMALL_BYTES):
            first -= 1
        return self.pieces[first : first + MERGED] if end - first >= MERGED else None

    def replace(self, few: Sequence[Piece], whole: Piece) -> int | None:
        """Replace pieces by the one merged from them; return the position after it, or None if they are gone."""
        try:
            first = self.pieces.index(few[0])
        except ValueError:
            return None
        if self.pieces[first + len(few) - 1 : first + len(few)] != [few[-1]]:
            return None
        self.pieces[first : first + len(few)] = [whole]
        self.alike = min(self.alike, len(self.pieces) - first - 1)
        return first + 1

    def after(self, index: int) -> Unsealed:
        """The events from a record index on. Batches are sealed whole, even if they were merged."""
        left = Unsealed.empty()
        for piece in self.pieces:
            if piece.first_index >= index:
                left.add(piece)
            elif piece.end_index > index:
                left.add(piece.from_index(index))
        return left

    def split(self, size_bytes: int) -> tuple[Unsealed, Unsealed]:
        """Split off the first batches, of about `size_bytes` and at least one; the rest may be empty."""
        sizes = list(accumulate(piece.size_bytes for piece in self.pieces))
        count = 1 + bisect_left(sizes, size_bytes)
        first, others = self.pieces[:count], self.pieces[count:]
        if first and sizes[len(first) - 1] > size_bytes:
            last = first[-1]
            cut = last.cut_at(size_bytes - (sizes[len(first) - 1] - last.size_bytes))
            if cut is not None:
                first[-1], others = cut[0], [cut[1], *others]
        if not others:
            return self, Unsealed.empty()
        size, rows = sum(piece.size_bytes for piece in first), sum(piece.rows for piece in first)
        return (
            Unsealed(first, rows, size, self.lookups),
            Unsealed(others, self.rows - rows, self.size_bytes - size),
        )

    @property
    def end_index(self) -> int:
        """The record index after the last event; there must be one."""
        return self.pieces[-1].end_index

    @property
    def oldest_us(self) -> int | None:
        """When the oldest event arrived; None without events."""
        return self.pieces[0].arrived_us if self.pieces else None
