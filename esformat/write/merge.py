"""Merge sorted runs, many rows at a time, in bounded memory. Events with equal keys and times stay in the order of the
sorted runs.

Each step reads a few chunks of every sorted run, finds the last event up to which all of them have been read, takes
everything up to it from each of them, and has NumPy sort those parts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from esformat.format.schema import EventSchema
from esformat.write.block_encoder import SortedRows, slice_rows
from esformat.write.rows import OrderedRows, SortKey
from esformat.write.spill import SortedRun


class _Bound(NamedTuple):
    """The last event that a step takes: its sort key, and the number of its sorted run."""

    key: SortKey
    sorted_run: int


class _Source:
    """A sorted run that is being read: its chunks that have rows left."""

    def __init__(self, sorted_run: SortedRun, number: int) -> None:
        self._sorted_run = sorted_run
        self.number = number
        self._next = 0
        self.chunks: deque[_Chunk] = deque()
        self._bytes = 0

    @property
    def has_more(self) -> bool:
        """Whether there are chunks that have not been read."""
        return self._next < len(self._sorted_run)

    def fill(self, wanted_bytes: int) -> None:
        """Read the heads of chunks until the chunks, with their columns, take `wanted_bytes`; at least one."""
        while self.has_more and (not self.chunks or self._bytes < wanted_bytes):
            chunk = _Chunk(self._sorted_run, self._next)
            self._next += 1
            self.chunks.append(chunk)
            self._bytes += chunk.size_bytes

    def take(self, bound: _Bound | None) -> list[SortedRows]:
        """Remove and return the rows up to a bound, or all that were read if it is None."""
        parts = []
        while self.chunks:
            chunk = self.chunks[0]
            count = (
                chunk.row_count if bound is None else chunk.rows_up_to(bound.key, ties=self.number <= bound.sorted_run)
            )
            whole = count == chunk.row_count
            if count:
                parts.append(chunk.take(count))
            if not whole:
                break
            self._bytes -= self.chunks.popleft().size_bytes
        return parts


class _Chunk:
    """A chunk and its remaining rows. Its columns are read when the first row is taken."""

    def __init__(self, sorted_run: SortedRun, number: int) -> None:
        self._sorted_run, self._number = sorted_run, number
        self._rows = sorted_run.head(number)
        self.size_bytes = sorted_run.chunk_bytes(number)
        self.last = self._key(len(self._rows.run_starts) - 1, -1)
        self._columns: Sequence[pa.Array] | None = None
        self._taken = 0

    @property
    def row_count(self) -> int:
        """Number of rows left."""
        return len(self._rows.timestamps)

    def _key(self, run: int, row: int) -> SortKey:
        rows = self._rows
        return rows.spaces[run].as_py(), rows.groupings[run].as_py(), int(rows.timestamps[row])

    def rows_up_to(self, key: SortKey, *, ties: bool) -> int:
        """The number of rows before a sort key, including equal ones if `ties`."""
        if self.last < key or (ties and self.last == key):
            return self.row_count
        rows = self._rows
        runs = range(len(rows.run_starts))
        at = bisect_left(runs, key[:2], key=lambda run: (rows.spaces[run].as_py(), rows.groupings[run].as_py()))
        first = int(rows.run_starts[at])  # there is one: the last run is not before the key
        last = int(rows.run_starts[at + 1]) if at + 1 < len(rows.run_starts) else self.row_count
        if (rows.spaces[at].as_py(), rows.groupings[at].as_py()) != key[:2]:
            return first
        times = rows.timestamps[first:last]
        return first + int(times.searchsorted(key[2], side="right" if ties else "left"))

    def take(self, count: int) -> SortedRows:
        """Remove and return the next rows, with their columns."""
        if self._columns is None:
            self._columns = self._sorted_run.columns(self._number)
        columns = [column.slice(self._taken, count) for column in self._columns]
        taken = replace(slice_rows(self._rows, 0, count), columns=columns)
        self._taken += count
        if count < self.row_count:
            self._rows = slice_rows(self._rows, count, self.row_count)
        return taken


class SortedRunMerge:
    """Merges sorted runs of one schema; among equal events, those of earlier ones come first."""

    def __init__(self, sorted_runs: Sequence[SortedRun], schema: EventSchema, step_bytes: int) -> None:
        """`step_bytes`: approximate size of what is read and merged at a time."""
        self._sources = [
            _Source(sorted_run, number) for number, sorted_run in enumerate(sorted_runs) if len(sorted_run)
        ]
        self._schema = schema
        self._share = step_bytes // max(1, len(sorted_runs))

    @property
    def done(self) -> bool:
        """Whether all events were returned."""
        return not self._sources

    def step(self, before: SortedRows | None = None) -> OrderedRows:
        """Return the next events, at least one. `before`: earlier ones, with their columns, to prepend."""
        for source in self._sources:
            source.fill(self._share)
        ends = (_Bound(source.chunks[-1].last, source.number) for source in self._sources if source.has_more)
        bound = min(ends, default=None)
        parts = [] if before is None else [before]
        for source in self._sources:
            parts += source.take(bound)
        self._sources = [source for source in self._sources if source.chunks or source.has_more]
        return OrderedRows.of_parts(parts, self._schema)
