"""Write checked events, added in any order, to a segment in bounded memory.

    few        all events are held in memory, sorted and written at the end
    many       whenever events in memory reach the budget, they are sorted and spilled as a run; runs are merged
    in order   once the first events have decided the format, events are written directly, and nothing is spilled

The bytes do not depend on which of these happened. If a late event ends the third mode, the blocks already written are
read back as a run.
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
from esformat.write.merge import RunMerge
from esformat.write.rows import OrderedRows, SortKey
from esformat.write.segment_writer import SegmentWriting
from esformat.write.spill import Run, SpilledRun
from esformat.write.stored_run import StoredRun

FAN_IN = 128
"""Most runs that are merged at a time."""


@dataclass(slots=True)
class _Mark:
    """A state to which `undo` returns. Events added later are never mixed with those that were in memory."""

    choice: FormatChoice
    events: int
    table_count: int
    run_count: int
    last: SortKey | None
    ascending: bool


@dataclass(slots=True)
class _Levelled:
    """A run and how many times its events were merged."""

    run: Run
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
        self._runs: list[_Levelled] = []
        self._writing: SegmentWriting | None = None
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
        self._choice.see(table)
        self._tables.append(table)
        self._events += len(table)
        self._held_bytes += self._cost(table)
        if self._held_bytes > (self._budget.held if self._writing is None else self._budget.step):
            self._let_go()

    def _cost(self, table: pa.Table) -> int:
        """Approximate memory that a table takes until it is sorted, in bytes."""
        size = int(table.nbytes) * 7 // 4  # tables are concatenated one column after another
        return size + ROW_OVERHEAD * len(table) + COLUMN_OVERHEAD * int(table.num_columns)

    def mark(self) -> None:
        """Remember this state until `keep` or `undo`, so that all or none of the events added in between are taken."""
        self._mark = _Mark(
            self._choice.copy(), self._events, len(self._tables), len(self._runs), self._last, self._ascending
        )

    def keep(self) -> None:
        """Keep the events added since the mark."""
        self._mark = None

    def undo(self) -> None:
        """Return to the mark."""
        mark, self._mark = self._mark, None
        assert mark is not None
        if self._writing is not None and self._streamed > mark.events:
            self._stop_streaming(mark.events)
            mark.run_count = len(self._runs)
        self._drop_runs(mark.run_count)
        del self._tables[mark.table_count :]
        self._held_bytes = sum(map(self._cost, self._tables))
        self._choice, self._events, self._last, self._ascending = mark.choice, mark.events, mark.last, mark.ascending

    def _let_go(self) -> None:
        """Write or spill the events in memory; those from before the mark separately from later ones."""
        if self._mark is not None and self._mark.table_count:
            count, self._mark.table_count = self._mark.table_count, 0
            before, self._tables = self._tables[:count], self._tables[count:]
            self._held_bytes = sum(map(self._cost, self._tables))
            self._mark.choice.see_all_values(before)
            self._hand_over(before)
            self._mark.run_count, self._mark.last, self._mark.ascending = len(self._runs), self._last, self._ascending
        else:
            self._hand_over(self._take_tables())

    def _take_tables(self) -> list[pa.Table]:
        tables, self._tables, self._held_bytes = self._tables, [], 0
        return tables

    def _hand_over(self, tables: list[pa.Table]) -> None:
        """Write or spill tables. Empties the list, so that their columns are released one after another."""
        held = sum(table.nbytes for table in tables)
        self._choice.see_all_values(tables)
        ordered = OrderedRows.of_tables(tables, self._schema)
        follows = self._last is None or ordered.key(0) >= self._last
        self._ascending = self._ascending and ordered.order is None and follows
        self._last = ordered.key(ordered.count - 1)
        if self._ascending and self._choice.in_order and self._can_stream:
            self._stream(ordered, held)
            return
        if self._writing is not None:
            self._stop_streaming(self._streamed)
        self._spill(ordered)

    # ------------------------------------------------------------ runs

    def _spill(self, ordered: OrderedRows) -> None:
        run = SpilledRun(self._temp_dir)
        self._runs.append(_Levelled(run))
        run.add(ordered, self._budget.chunk, self._pool, self._threads)
        release_unused()
        first = 0 if self._mark is None else self._mark.run_count
        while len(self._runs) - first >= FAN_IN and self._runs[-FAN_IN].level == self._runs[-1].level:
            self._compact(FAN_IN)

    def _compact(self, count: int) -> None:
        """Merge the last `count` runs into one."""
        last = self._runs[-count:]
        run = SpilledRun(self._temp_dir)
        self._runs.append(_Levelled(run, max(each.level for each in last) + 1))
        merge = RunMerge([each.run for each in last], self._schema, self._budget.step)
        while not merge.done:
            run.add(merge.step(), self._budget.chunk, self._pool, self._threads)
            release_unused()
        for each in last:
            each.run.close()
        del self._runs[-count - 1 : -1]

    def _drop_runs(self, kept: int) -> None:
        for each in self._runs[kept:]:
            each.run.close()
        del self._runs[kept:]

    def _merge(self) -> RunMerge:
        while len(self._runs) > FAN_IN:
            self._compact(min(FAN_IN, len(self._runs) - FAN_IN + 1))
        return RunMerge([each.run for each in self._runs], self._schema, self._budget.step)

    # ------------------------------------------------------------ writing before all events are known

    @property
    def _streamed(self) -> int:
        """The number of events that were written, or wait for more events to complete a task."""
        if self._writing is None:
            return 0
        carry = self._writing.carry
        return self._writing.rows + (0 if carry is None else len(carry.timestamps))

    def _stream(self, ordered: OrderedRows, held_bytes: int) -> None:
        if self._writing is None:
            self._writing = writing = self._begin()
            merge = self._merge()
            while not merge.done:
                writing.add(merge.step(writing.carry))
            self._drop_runs(0)
        rows = max(1, ordered.count * self._budget.step // max(1, held_bytes))
        for first in range(0, ordered.count, rows):
            part = ordered.rows(first, min(first + rows, ordered.count), plain=True)
            before = [] if self._writing.carry is None else [self._writing.carry]
            self._writing.add(OrderedRows.of_parts([*before, part], self._schema))
            release_unused()

    def _stop_streaming(self, count: int) -> None:
        """Turn the first `count` written events into runs, those before a mark apart, and restart the segment."""
        writing, self._writing = self._writing, None
        assert writing is not None
        writing.settle()
        self._sink.flush()
        marked = 0 if self._mark is None else min(self._mark.events, count)
        if self._mark is not None:
            self._mark.run_count = 0
        self._read_back(writing, 0, marked)
        if self._mark is not None:
            self._mark.run_count = len(self._runs)
        self._read_back(writing, marked, count)
        self._sink.seek(0)
        self._sink.truncate()
        writing.close()

    def _read_back(self, writing: SegmentWriting, first: int, last: int) -> None:
        """Turn events [first, last) of those written or waiting in the carry into runs."""
        if first < min(last, writing.rows):
            blocks = SpillFile(self._temp_dir)
            run = StoredRun(blocks, self._schema, writing.dictionaries)
            self._runs.append(_Levelled(run))
            at = 0
            for offset, length, rows in writing.spans:
                if first < at + rows and at < last:
                    self._sink.seek(offset)
                    run.add(self._sink.read(length), max(first - at, 0), min(last - at, rows))
                at += rows
        first, last = max(first - writing.rows, 0), last - writing.rows
        if writing.carry is not None and first < last:
            part = slice_rows(writing.carry, first, last)
            self._spill(OrderedRows.of_parts([part], self._schema))

    def _begin(self) -> SegmentWriting:
        return SegmentWriting(
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
        if not self._runs and self._writing is None:
            return self._finish_held()
        if self._tables:
            self._hand_over(self._take_tables())
        if self._writing is not None:
            assert self._writing.carry is not None
            return self._writing.finish(OrderedRows.of_parts([self._writing.carry], self._schema))
        self._writing = writing = self._begin()
        merge = self._merge()
        while True:
            step = merge.step(writing.carry)
            if merge.done:
                return writing.finish(step)
            writing.add(step)
            release_unused()

    def _finish_held(self) -> Statistics:
        tables = self._take_tables() or [self._schema.arrow.empty_table()]
        ordered = OrderedRows.of_tables(tables, self._schema)
        self._choice.see_all_columns(ordered)
        self._writing = self._begin()
        return self._writing.finish(ordered)

    def close(self) -> None:
        """Stop the threads and free temporary space."""
        self._pool.shutdown(cancel_futures=True)
        if self._writing is not None:
            self._writing.close()
        self._tables = []
        self._drop_runs(0)
