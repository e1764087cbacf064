"""Write checked events, added in any order, to a segment in bounded memory.

    few        all events are held in memory, sorted and written at the end
    many       whenever events in memory reach the budget, they are sorted and spilled as a sorted run; sorted runs are
    merged in order   once the first events have decided the format, events are written directly, and nothing is spilled

The bytes do not depend on which of these happened. If a late event ends the third mode, the blocks already written are
read back as a sorted run.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from esformat.format.codec import Codec
from esformat.format.metadata import Metadata, Statistics
from esformat.io.temp_file import SpillFile
from esformat.write.allocators import release_unused
from esformat.write.block_encoder import slice_rows
from esformat.write.format_choice import FormatChoice
from esformat.write.known_templates import KnownTemplates
from esformat.write.memory import COLUMN_OVERHEAD, ROW_OVERHEAD, Budget
from esformat.write.merge import SortedRunMerge
from esformat.write.rows import OrderedRows, SortKey
from esformat.write.segment_encoder import SegmentEncoder
from esformat.write.spill import SortedRun, SpilledSortedRun
from esformat.write.stored_sorted_run import StoredSortedRun

FAN_IN = 128
"""Most sorted runs that are merged at a time."""


@dataclass(slots=True)
class _Mark:
    """A state to which `undo` returns. Events added later are never mixed with those that were in memory."""

    choice: FormatChoice
    events: int
    table_count: int
    sorted_run_count: int
    last: SortKey | None
    ascending: bool


@dataclass(slots=True)
class _LevelledRun:
    """A sorted run and how many times its events were merged."""

    sorted_run: SortedRun
    level: int = 0


class EventSorter:
    """Takes checked tables of one schema; `finish` writes the segment. Raises OSError if a disk fails or is full."""

    def __init__(
        self,
        sink: BinaryIO,
        metadata: Metadata,
        codec: Codec,
        budget: Budget,
        threads: int,
        temp_dir: Path,
        known: KnownTemplates | None = None,
    ) -> None:
        """`sink`: an empty file. Events are written to it early only if it can also be read and truncated. known:
        templates of earlier files.
        """
        self._sink = sink
        self._metadata, self._codec = metadata, codec
        self._schema = metadata.schema
        self._budget, self._threads, self._temp_dir = budget, threads, temp_dir
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="esformat-encode")
        self._choice = FormatChoice(
            self._schema, codec, metadata.level, metadata.frame_bytes, templates=metadata.templates, known=known
        )
        self._tables: list[pa.Table] = []
        self._held_bytes = 0
        self._sorted_runs: list[_LevelledRun] = []
        self._encoder: SegmentEncoder | None = None
        self._events = 0
        self._last: SortKey | None = None  # of the events that were spilled or written
        self._ascending = True
        self._mark: _Mark | None = None
        self._can_stream = sink.readable() and sink.seekable()

    # ------------------------------------------------------------ taking events

    def add(self, table: pa.Table) -> None:
        """Add the next events."""
        if not len(table):
            return
        self._choice.observe(table)
        self._tables.append(table)
        self._events += len(table)
        self._held_bytes += self._cost(table)
        if self._held_bytes > (self._budget.held if self._encoder is None else self._budget.step):
            self._flush()

    def _cost(self, table: pa.Table) -> int:
        """Approximate memory that a table takes until it is sorted, in bytes."""
        size = int(table.nbytes) * 7 // 4  # tables are concatenated one column after another
        return size + ROW_OVERHEAD * len(table) + COLUMN_OVERHEAD * int(table.num_columns)

    def mark(self) -> None:
        """Remember this state until `keep` or `undo`, so that all or none of the events added in between are taken."""
        self._mark = _Mark(
            self._choice.copy(), self._events, len(self._tables), len(self._sorted_runs), self._last, self._ascending
        )

    def keep(self) -> None:
        """Keep the events added since the mark."""
        self._mark = None

    def undo(self) -> None:
        """Return to the mark."""
        mark, self._mark = self._mark, None
        assert mark is not None
        if self._encoder is not None and self._streamed > mark.events:
            self._stop_streaming(mark.events)
            mark.sorted_run_count = len(self._sorted_runs)
        self._drop_sorted_runs(mark.sorted_run_count)
        del self._tables[mark.table_count :]
        self._held_bytes = sum(map(self._cost, self._tables))
        self._choice, self._events, self._last, self._ascending = mark.choice, mark.events, mark.last, mark.ascending

    def _flush(self) -> None:
        """Write or spill the events in memory; those from before the mark separately from later ones."""
        if self._mark is not None and self._mark.table_count:
            count, self._mark.table_count = self._mark.table_count, 0
            before, self._tables = self._tables[:count], self._tables[count:]
            self._held_bytes = sum(map(self._cost, self._tables))
            self._mark.choice.observe_all_values(before)
            self._write_or_spill(before)
            self._mark.sorted_run_count, self._mark.last, self._mark.ascending = (
                len(self._sorted_runs),
                self._last,
                self._ascending,
            )
        else:
            self._write_or_spill(self._take_tables())

    def _take_tables(self) -> list[pa.Table]:
        tables, self._tables, self._held_bytes = self._tables, [], 0
        return tables

    def _write_or_spill(self, tables: list[pa.Table]) -> None:
        """Write or spill tables. Empties the list, so that their columns are released one after another."""
        held = sum(table.nbytes for table in tables)
        self._choice.observe_all_values(tables)
        ordered = OrderedRows.of_tables(tables, self._schema)
        follows = self._last is None or ordered.key(0) >= self._last
        self._ascending = self._ascending and ordered.order is None and follows
        self._last = ordered.key(ordered.count - 1)
        if self._ascending and self._choice.in_order and self._can_stream:
            self._stream(ordered, held)
            return
        if self._encoder is not None:
            self._stop_streaming(self._streamed)
        self._spill(ordered)

    # ------------------------------------------------------------ sorted runs

    def _spill(self, ordered: OrderedRows) -> None:
        sorted_run = SpilledSortedRun(self._temp_dir)
        self._sorted_runs.append(_LevelledRun(sorted_run))
        sorted_run.add(ordered, self._budget.chunk, self._pool, self._threads)
        release_unused()
        first = 0 if self._mark is None else self._mark.sorted_run_count
        while (
            len(self._sorted_runs) - first >= FAN_IN and self._sorted_runs[-FAN_IN].level == self._sorted_runs[-1].level
        ):
            self._compact(FAN_IN)

    def _compact(self, count: int) -> None:
        """Merge the last `count` sorted runs into one."""
        last = self._sorted_runs[-count:]
        sorted_run = SpilledSortedRun(self._temp_dir)
        self._sorted_runs.append(_LevelledRun(sorted_run, max(each.level for each in last) + 1))
        merge = SortedRunMerge([each.sorted_run for each in last], self._schema, self._budget.step)
        while not merge.done:
            sorted_run.add(merge.step(), self._budget.chunk, self._pool, self._threads)
            release_unused()
        for each in last:
            each.sorted_run.close()
        del self._sorted_runs[-count - 1 : -1]

    def _drop_sorted_runs(self, kept: int) -> None:
        for each in self._sorted_runs[kept:]:
            each.sorted_run.close()
        del self._sorted_runs[kept:]

    def _merge(self) -> SortedRunMerge:
        while len(self._sorted_runs) > FAN_IN:
            self._compact(min(FAN_IN, len(self._sorted_runs) - FAN_IN + 1))
        return SortedRunMerge([each.sorted_run for each in self._sorted_runs], self._schema, self._budget.step)

    # ------------------------------------------------------------ writing before all events are known

    @property
    def _streamed(self) -> int:
        """The number of events that were written, or wait for more events to complete a task."""
        if self._encoder is None:
            return 0
        carry = self._encoder.carry
        return self._encoder.rows + (0 if carry is None else len(carry.timestamps))

    def _stream(self, ordered: OrderedRows, held_bytes: int) -> None:
        if self._encoder is None:
            self._encoder = encoder = self._new_encoder()
            merge = self._merge()
            while not merge.done:
                encoder.add(merge.step(encoder.carry))
            self._drop_sorted_runs(0)
        rows = max(1, ordered.count * self._budget.step // max(1, held_bytes))
        for first in range(0, ordered.count, rows):
            part = ordered.rows(first, min(first + rows, ordered.count), plain=True)
            before = [] if self._encoder.carry is None else [self._encoder.carry]
            self._encoder.add(OrderedRows.of_parts([*before, part], self._schema))
            release_unused()

    def _stop_streaming(self, count: int) -> None:
        """Turn the first `count` written events into sorted runs, those before a mark apart, and restart the
        segment.
        """
        encoder, self._encoder = self._encoder, None
        assert encoder is not None
        encoder.flush()
        self._sink.flush()
        marked = 0 if self._mark is None else min(self._mark.events, count)
        if self._mark is not None:
            self._mark.sorted_run_count = 0
        self._read_back(encoder, 0, marked)
        if self._mark is not None:
            self._mark.sorted_run_count = len(self._sorted_runs)
        self._read_back(encoder, marked, count)
        self._sink.seek(0)
        self._sink.truncate()
        encoder.close()

    def _read_back(self, encoder: SegmentEncoder, first: int, last: int) -> None:
        """Turn events [first, last) of those written or waiting in the carry into sorted runs."""
        if first < min(last, encoder.rows):
            blocks = SpillFile(self._temp_dir)
            sorted_run = StoredSortedRun(blocks, self._schema, encoder.dictionaries)
            self._sorted_runs.append(_LevelledRun(sorted_run))
            at = 0
            for offset, length, rows in encoder.spans:
                if first < at + rows and at < last:
                    self._sink.seek(offset)
                    sorted_run.add(self._sink.read(length), max(first - at, 0), min(last - at, rows))
                at += rows
        first, last = max(first - encoder.rows, 0), last - encoder.rows
        if encoder.carry is not None and first < last:
            part = slice_rows(encoder.carry, first, last)
            self._spill(OrderedRows.of_parts([part], self._schema))

    def _new_encoder(self) -> SegmentEncoder:
        return SegmentEncoder(
            self._sink,
            self._metadata,
            self._codec,
            self._choice.dictionaries(),
            budget=self._budget,
            pool=self._pool,
            threads=self._threads,
            temp_dir=self._temp_dir,
        )

    # ------------------------------------------------------------ finishing

    def finish(self) -> Statistics:
        """Write the segment."""
        if not self._sorted_runs and self._encoder is None:
            return self._finish_held()
        if self._tables:
            self._write_or_spill(self._take_tables())
        if self._encoder is not None:
            assert self._encoder.carry is not None
            return self._encoder.finish(OrderedRows.of_parts([self._encoder.carry], self._schema))
        self._encoder = encoder = self._new_encoder()
        merge = self._merge()
        while True:
            step = merge.step(encoder.carry)
            if merge.done:
                return encoder.finish(step)
            encoder.add(step)
            release_unused()

    def _finish_held(self) -> Statistics:
        tables = self._take_tables() or [self._schema.arrow.empty_table()]
        ordered = OrderedRows.of_tables(tables, self._schema)
        self._choice.observe_all_columns(ordered)
        self._encoder = self._new_encoder()
        return self._encoder.finish(ordered)

    def close(self) -> None:
        """Stop the threads and free temporary space."""
        self._pool.shutdown(cancel_futures=True)
        if self._encoder is not None:
            self._encoder.close()
        self._tables = []
        self._drop_sorted_runs(0)
