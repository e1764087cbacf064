"""The events of a topic at one moment, as datasets read them: sealed and unsealed, unordered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.model import RECORD_INDEX, SegmentInfo
from aggregator.read.memtable_source import lookup_groups, unsealed_batches
from aggregator.read.query import Query
from aggregator.read.scan import Scan
from aggregator.read.view import View
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.state.state import Snapshot
from aggregator.storage.state.tombstones import hidden_in
from esformat.parts import (
    KEY_COLUMNS,
    Bounds,
    EventSchema,
    TextForm,
    admits_nothing,
    in_dictionaries,
    scan_rows,
    span_of_times,
)

I64 = npt.NDArray[np.int64]
READING_THREADS = 2
"""Number of threads that decode a segment. Several statements may run at the same time."""


class AlreadyHeld:
    """A `FileHolder` for scans whose files are kept by something else."""

    def release(self) -> None:
        """Do nothing."""


class TopicEvents:
    """The events of a topic, as `EventDataset` reads them."""

    def __init__(self, snapshot: Snapshot, pool: SegmentPool) -> None:
        self._snapshot = snapshot
        self._pool = pool
        self.schema: EventSchema = snapshot.schema_set.union
        self._coded: list[str] = []
        self._required_texts: Mapping[str, Sequence[Sequence[bytes]]] = {}
        self._texts = TextForm.PLAIN

    @property
    def arrow(self) -> pa.Schema:
        """The columns of the batches."""
        return in_dictionaries(self.schema.arrow, self._coded)

    def with_dictionaries(self) -> Self:
        """The same, with indexed text as Arrow dictionaries if the first segment has codes for it."""
        first = next(iter(self._snapshot.segments), None)
        given = copy(self)
        if first is not None:
            columns = self._pool.get(first).dataset(dictionaries=True).schema
            given._coded = [column.name for column in columns if pa.types.is_dictionary(column.type)]
            given._texts = TextForm.DICTIONARIES
        return given

    @property
    def num_events(self) -> int:
        """Number of events."""
        return self._asked().count()

    @property
    def most_events(self) -> int:
        """Number of events, including hidden ones."""
        sealed = sum(info.rows for info in self._snapshot.segments)
        return sealed + sum(len(batch.events) for part in self._snapshot.memtables for batch in part.batches)

    def _asked(self, **options: Any) -> Scan:
        return Scan(lambda partition: (self._snapshot, AlreadyHeld()), self._pool, Query(**options))

    def batches(self, bounds: Bounds, columns: Sequence[str], *, lazily: bool) -> Iterator[pa.RecordBatch]:
        """Batches with at least the events within bounds: from segments, then from memory. lazily: block by block."""
        if admits_nothing(bounds):
            return
        names = dict(self._snapshot.partitions)
        views = {number: self._view(number, bounds, columns) for number in names}
        for info, kept in self._segments(bounds):
            view = views[info.partition]
            scan = self._scan(info, kept, self._needed(info, view), 1 if lazily else READING_THREADS)
            if not view.hidden:  # finding hidden events needs plain text
                scan = scan.with_texts(self._texts)
            for batch in scan.candidates(self._required_texts):
                yield view.shape(batch, names[info.partition])
        for group in lookup_groups(self._snapshot, self._query(bounds)):
            assert group.partition is not None, "they are not together"
            yield from unsealed_batches(group, views[group.partition], names[group.partition])

    def requiring(self, required_texts: Mapping[str, Sequence[Sequence[bytes]]]) -> Self:
        """The same events, perhaps without some that lack the texts."""
        given = copy(self)
        given._required_texts = required_texts
        return given

    def gives_exactly(self, bounds: Bounds) -> bool:
        """Whether `batches` returns only events within bounds: never, as unsealed events are hardly filtered."""
        return False

    def blocks(self, bounds: Bounds) -> tuple[int, int]:
        """Number of data blocks of segments that are read for the events within bounds, and of all."""
        blocks = sum(self._scan(info, {}, ["timestamp"]).blocks()[1] for info in self._snapshot.segments)
        if admits_nothing(bounds):
            return 0, blocks
        found = (self._scan(info, kept, ["timestamp"]).blocks()[0] for info, kept in self._segments(bounds))
        return sum(map(len, found)), blocks

    def extreme_times(self, count: int, *, newest: bool) -> I64:
        """The `count` latest timestamps, or the earliest, µs."""
        scan = self._asked(reverse=newest, limit=count, columns=("timestamp",))
        return np.asarray(scan.to_table().column("timestamp").cast(pa.int64()).to_numpy())

    def tally(self, names: Sequence[str], count_name: str, *, timed: bool) -> pa.Table | None:
        """Combinations of values, each with its number of events: from segments, then one by one for events in memory.

        None if metadata cannot answer this.
        """
        if self._snapshot.tombstones or not all(self._has(names, info.schema) for info in self._snapshot.schemas):
            return None
        tables = []
        for info in self._snapshot.segments:
            found = self._pool.get(info).dataset().tally(names, count_name, timed=timed)
            if found is None:
                return None
            tables.append(found)
        columns = [*names, "timestamp"] if timed else list(names)
        for part in self._snapshot.memtables:
            for batch in part.batches:
                rows = pa.Table.from_batches([batch.events]).select(columns)
                tables.append(rows.append_column(count_name, pa.array(np.ones(len(rows), np.int64))))
        return pa.concat_tables(tables) if tables else None

    def _has(self, names: Sequence[str], held: EventSchema) -> bool:
        return all(name in held.positions and self._is_same(held, name) for name in names)

    # ------------------------------------------------------------ segments

    def _segments(self, bounds: Bounds) -> Iterator[tuple[SegmentInfo, Bounds]]:
        """Segments that may contain events within bounds, each with the bounds that it can apply."""
        schemas = {info.number: info.schema for info in self._snapshot.schemas}
        for info in self._snapshot.segments.select(self._query(bounds)):
            held = schemas[info.schema]
            if any(name not in KEY_COLUMNS and name not in held.positions for name in bounds):
                continue  # a column that it lacks is null, which no bound admits
            yield info, {name: domain for name, domain in bounds.items() if self._is_same(held, name)}

    def _is_same(self, held: EventSchema, name: str) -> bool:
        return name in KEY_COLUMNS or held.arrow.field(name).type == self.schema.arrow.field(name).type

    def _scan(self, info: SegmentInfo, bounds: Bounds, columns: Sequence[str], threads: int = 1) -> Any:
        segment = self._pool.get(info)
        return scan_rows(segment, 0, segment.num_events, columns=columns, bounds=bounds, threads=threads)

    def _needed(self, info: SegmentInfo, view: View) -> list[str]:
        """The columns to read of a segment."""
        wanted = set(view.target.names)
        if view.hidden:
            wanted |= {"space", "timestamp", RECORD_INDEX}
        return [name for name in self._pool.get(info).schema.names if name in wanted] or ["timestamp"]

    def _view(self, partition: int, bounds: Bounds, columns: Sequence[str]) -> View:
        arrow = self.arrow
        target = pa.schema([arrow.field(name) for name in columns])
        return View(self._query(bounds), target, hidden_in(self._snapshot.tombstones, partition))

    def _query(self, bounds: Bounds) -> Query:
        """The query for bounds: their times, and their space if it is the only one."""
        start, end = span_of_times(bounds)
        spaces = bounds["space"].listed if "space" in bounds else None
        return Query(start=start, end=end, space=next(iter(spaces)) if spaces and len(spaces) == 1 else None)
