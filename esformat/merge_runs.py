"""Merges sorted runs: many rows at a time, in bounded memory, events of equal keys and times in order of the runs.

Each step reads a few chunks of every run, finds the last event up to which all runs are known, takes what lies before
it from each of them, and leaves the sorting of those pieces to NumPy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from esformat.block_encoder import SortedRows, slice_rows
from esformat.order import I64
from esformat.ordered_rows import OrderedRows, number_parts
from esformat.schema import EventSchema
from esformat.sorted_runs import Run


class _Bound(NamedTuple):
    """The last event that a step takes: key, timestamp, and the run that it is from."""

    key: int
    timestamp: int
    run: int


class _Source:
    """A run as far as it is read: chunks of which some rows are left, their columns only where rows were taken."""

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self.number = number
        self._next = 0
        self.chunks: deque[_Chunk] = deque()
        self._bytes = 0

    @property
    def has_more(self) -> bool:
        """Whether there are chunks that were not read."""
        return self._next < len(self._run)

    def fill(self, wanted_bytes: int) -> None:
        """Read heads of chunks that take so many bytes when their columns are read, too; one at least."""
        while self.has_more and (not self.chunks or self._bytes < wanted_bytes):
            chunk = _Chunk(self._run, self._next)
            self._next += 1
            self.chunks.append(chunk)
            self._bytes += chunk.size_bytes

    def drop_taken(self) -> None:
        """Forget chunks of which no row is left."""
        while self.chunks and not len(self.chunks[0].rows.timestamps):
            self._bytes -= self.chunks.popleft().size_bytes


class _Chunk:
    """A chunk and those of its rows that were not taken."""

    def __init__(self, run: Run, number: int) -> None:
        self._run, self._number = run, number
        self.rows = run.head(number)
        self.size_bytes = run.chunk_bytes(number)
        self._columns: Sequence[pa.Array] | None = None
        self._taken = 0

    def take(self, count: int) -> SortedRows:
        """The next rows, with their columns."""
        if self._columns is None:
            self._columns = self._run.columns(self._number)
        columns = [column.slice(self._taken, count) for column in self._columns]
        total = len(self.rows.timestamps)
        head = slice_rows(self.rows, 0, count)
        taken = SortedRows(head.timestamps, head.run_starts, head.spaces, head.groupings, columns, continues=False)
        self._taken += count
        if count == total:
            self.rows, self._columns = _nothing(self.rows), None
        else:
            self.rows = slice_rows(self.rows, count, total)
        return taken


def _nothing(rows: SortedRows) -> SortedRows:
    return SortedRows(
        rows.timestamps[:0], rows.run_starts[:0], rows.spaces.slice(0, 0), rows.groupings.slice(0, 0), (), False
    )


class RunMerge:
    """Merges runs of one schema; those that are given first come first among equals."""

    def __init__(self, runs: Sequence[Run], schema: EventSchema, step_bytes: int) -> None:
        """`step_bytes`: about how much is read and merged at once."""
        self._sources = [_Source(run, number) for number, run in enumerate(runs)]
        self._schema = schema
        self._share = step_bytes // max(1, len(runs))
        self.done = not any(len(run) for run in runs)

    def step(self, before: SortedRows | None = None) -> OrderedRows:
        """The next events, at least one; `before` are earlier ones, with their columns, to be put in front of them."""
        for source in self._sources:
            source.fill(self._share)
        self._sources = [source for source in self._sources if source.chunks]
        chunks = [(source, chunk) for source in self._sources for chunk in source.chunks]
        heads = [chunk.rows for _, chunk in chunks]
        keys, numbers = number_parts(heads if before is None else [before, *heads])
        parts, taken = ([], []) if before is None else ([before], [numbers.pop(0)])
        bound = self._bound(chunks, numbers)
        for (source, chunk), runs in zip(chunks, numbers, strict=True):
            count = len(chunk.rows.timestamps) if bound is None else _rows_up_to(bound, source.number, chunk.rows, runs)
            if count:
                taken.append(runs[: np.searchsorted(chunk.rows.run_starts, count)])
                parts.append(chunk.take(count))
        for source in self._sources:
            source.drop_taken()
        self.done = not any(source.chunks or source.has_more for source in self._sources)
        return OrderedRows.of_parts(parts, self._schema, (keys, taken))

    @staticmethod
    def _bound(chunks: Sequence[tuple[_Source, _Chunk]], numbers: Sequence[I64]) -> _Bound | None:
        """The least of the last events known of those runs that have more; None where none has."""
        lasts: dict[int, _Bound] = {}
        for (source, chunk), runs in zip(chunks, numbers, strict=True):
            if source.has_more:
                lasts[source.number] = _Bound(int(runs[-1]), int(chunk.rows.timestamps[-1]), source.number)
        return min(lasts.values(), default=None)

    def steps(self) -> Iterator[OrderedRows]:
        """All events, many at a time."""
        while not self.done:
            yield self.step()


def _rows_up_to(bound: _Bound, run: int, rows: SortedRows, keys: I64) -> int:
    """How many of the rows come no later than `bound`; `keys`: those of their runs of equal keys."""
    at = int(np.searchsorted(keys, bound.key))
    if at == len(keys):
        return len(rows.timestamps)
    first = int(rows.run_starts[at])
    if keys[at] != bound.key:
        return first
    last = int(rows.run_starts[at + 1]) if at + 1 < len(keys) else len(rows.timestamps)
    times = rows.timestamps[first:last]
    return first + int(np.searchsorted(times, bound.timestamp, side="right" if run <= bound.run else "left"))
