"""Unsealed events of a partition, in memory, as the batches that were appended.

Appending costs nothing per event. A lookup of a space compares all keys, until lookups are frequent enough for an
index.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from aggregator.storage.memtable.batch import MemtableBatch
from aggregator.storage.memtable.lookup import Lookup

MERGED = 64
"""So many adjacent small batches are merged at a time, so that many tiny appends do not slow down reads."""


@dataclass(slots=True)
class Memtable:
    """The unsealed events of a partition, in order. Changed only under the catalog's view lock."""

    batches: list[MemtableBatch]
    rows: int = 0
    size_bytes: int = 0
    lookups: tuple[Lookup, ...] = ()
    alike: int = 0  # at least this many of the last batches can be merged with each other

    @classmethod
    def empty(cls) -> Memtable:
        """An instance without events."""
        return cls([])

    def add(self, batch: MemtableBatch) -> None:
        """Append the next batch."""
        goes_on = self.batches and batch.goes_with(self.batches[-1])
        self.alike = self.alike + 1 if goes_on else 1
        self.batches.append(batch)
        self.rows += batch.rows
        self.size_bytes += batch.size_bytes

    def small_ones(self, end: int | None = None) -> list[MemtableBatch] | None:
        """The next MERGED adjacent small batches to merge: the first of the similar ones before `end`, or before the
        end of all. None if there are too few.
        """
        return (self._alike_before(end) if end else None) or self._alike_before(len(self.batches))

    def _alike_before(self, end: int) -> list[MemtableBatch] | None:
        if not MERGED <= end <= len(self.batches) or not self.batches[end - MERGED].goes_with(self.batches[end - 1]):
            return None
        first = end - 1
        while first and self.batches[first - 1].goes_with(self.batches[end - 1]):
            first -= 1
        return self.batches[first : first + MERGED] if end - first >= MERGED else None

    def replace(self, few: Sequence[MemtableBatch], whole: MemtableBatch) -> int | None:
        """Replace batches by the one merged from them; return the position after it, or None if they are gone."""
        try:
            first = self.batches.index(few[0])
        except ValueError:
            return None
        if self.batches[first + len(few) - 1 : first + len(few)] != [few[-1]]:
            return None
        self.batches[first : first + len(few)] = [whole]
        self.alike = min(self.alike, len(self.batches) - first - 1)
        return first + 1

    def after(self, index: int) -> Memtable:
        """The events from a record index on. Batches are sealed whole, even if they were merged."""
        left = Memtable.empty()
        for batch in self.batches:
            if batch.first_index >= index:
                left.add(batch)
            elif batch.end_index > index:
                left.add(batch.from_index(index))
        return left

    def split(self, size_bytes: int) -> tuple[Memtable, Memtable]:
        """Split off the first batches, of about `size_bytes` and at least one; the rest may be empty."""
        sizes = list(accumulate(batch.size_bytes for batch in self.batches))
        count = 1 + bisect_left(sizes, size_bytes)
        first, others = self.batches[:count], self.batches[count:]
        if first and sizes[len(first) - 1] > size_bytes:
            last = first[-1]
            cut = last.cut_at(size_bytes - (sizes[len(first) - 1] - last.size_bytes))
            if cut is not None:
                first[-1], others = cut[0], [cut[1], *others]
        if not others:
            return self, Memtable.empty()
        size, rows = sum(batch.size_bytes for batch in first), sum(batch.rows for batch in first)
        return (
            Memtable(first, rows, size, self.lookups),
            Memtable(others, self.rows - rows, self.size_bytes - size),
        )

    @property
    def end_index(self) -> int:
        """The record index after the last event; there must be one."""
        return self.batches[-1].end_index

    @property
    def oldest_us(self) -> int | None:
        """When the oldest event arrived; None without events."""
        return self.batches[0].arrived_us if self.batches else None
