"""Unsealed events of a partition, in memory, as the batches that were appended.

Appending costs nothing per event. Who asks for a space compares the keys of all of them, until it is asked often.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate

from aggregator.storage.memtable.lookup import Lookup
from aggregator.storage.memtable.piece import Piece, join

SMALL_BYTES = 32 << 10
"""Batches up to this size are put together, MERGED at a time, so that tiny appends do not cost later."""
MERGED = 64


@dataclass(slots=True)
class Unsealed:
    """The unsealed events of a partition, in order. Changed under the catalog's view lock only."""

    pieces: list[Piece]
    rows: int = 0
    size_bytes: int = 0
    lookups: tuple[Lookup, ...] = ()

    @classmethod
    def empty(cls) -> Unsealed:
        """None yet."""
        return cls([])

    def add(self, piece: Piece) -> None:
        """Take in the next batch."""
        self.pieces.append(piece)
        self.rows += piece.rows
        self.size_bytes += piece.size_bytes
        while self._put_together():
            pass

    def _put_together(self) -> bool:
        last = self.pieces[-1]
        if last.size_bytes > SMALL_BYTES or len(self.pieces) < MERGED:
            return False
        few = self.pieces[-MERGED:]
        if any(p.joined != last.joined or p.schema is not last.schema or p.size_bytes > SMALL_BYTES for p in few):
            return False
        self.pieces[-MERGED:] = [join(few)]
        return True

    def after(self, index: int) -> Unsealed:
        """The events from a record index on. Batches are sealed whole, and so are those that were put together."""
        left = Unsealed.empty()
        for piece in self.pieces:
            if piece.first_index >= index:
                left.add(piece)
            elif piece.end_index > index:
                left.add(piece.from_index(index))
        return left

    def split(self, size_bytes: int) -> tuple[Unsealed, Unsealed]:
        """The first batches, of about so many bytes, at least one, and the others; there may be none of these."""
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
