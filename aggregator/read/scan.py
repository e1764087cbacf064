"""`Scan`: the lazy result of a query on a topic, over segments, partitions and unsealed events.

It has the methods of a scan of a file. Each use takes a snapshot when it begins: later events do not appear in it, and
retention and compaction do not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any, Protocol, TypeVar

import pyarrow as pa

import esformat.parts
from aggregator.base.allowance import check
from aggregator.base.histogram import Histogram, check_buckets
from aggregator.base.merge import Source, merge
from aggregator.base.result import Answer
from aggregator.base.window_budget import LEAST_OF_SPACE_BYTES
from aggregator.errors import InvalidRequestError
from aggregator.model import PARTITION, RECORD_INDEX, SegmentInfo
from aggregator.read.history import Opened, merge_history
from aggregator.read.memtable_source import Group, lookup_groups, most_of_space, unsealed_batches
from aggregator.read.prefetch import prefetch
from aggregator.read.query import Query, check_columns, check_conditions
from aggregator.read.segment_source import count_segment, segment_batches, segment_history
from aggregator.read.time_counts import histogram_of
from aggregator.read.view import View
from aggregator.read.waves import MAX_OVERLAP, Waves
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.state.state import Snapshot
from aggregator.storage.state.tombstones import hidden_in
from esformat import Event
from esformat.parts import KEY_COLUMNS, EventSchema


class FileHolder(Protocol):
    """Keeps the files of a snapshot: a `Pin`, or an object that keeps one for longer."""

    def release(self) -> None:
        """Release the files. A second call does nothing."""


TakeSnapshot = Callable[[str | None], tuple[Snapshot, FileHolder]]
T = TypeVar("T")
NO_PARTITION = -1
"""A number that no partition has."""
FEW_VALUES = 1 << 10
"""A history of at most this many rows times columns is read as events, which are then converted to columns."""
EVENT_COLUMNS = (*KEY_COLUMNS, "data")
_PLAIN = (
    pa.types.is_string, pa.types.is_binary, pa.types.is_integer, pa.types.is_boolean, pa.types.is_float64,
)  # fmt: skip


class Scan(Answer):
    """The events that match a query, read on demand: an `Answer`."""

    def __init__(self, snap: TakeSnapshot, pool: SegmentPool, query: Query, partition: str | None = None) -> None:
        """Created by the methods of Topic. partition: only that one. Raises UsageError for a column that the topic
        lacks, and for a value that an index cannot contain.
        """
        self._snap = snap
        self._pool = pool
        self._query = query
        self._partition = partition
        if query.columns is not None or query.conditions:
            snapshot, pin = snap(partition)
            pin.release()
            known = snapshot.schema_set.union.arrow
            check_conditions(query.conditions, [info.schema for info in snapshot.schemas], known)
            if query.columns is not None:
                check_columns(query.columns, known.names)

    def __repr__(self) -> str:
        query = self._query
        names = ("space", "grouping", "start", "end", "limit", "first_index", "end_index")
        facts = [(name, getattr(query, name)) for name in names]
        facts = [*facts[:5], ("partition", self._partition), *facts[5:]]
        parts = [f"{name}={value!r}" for name, value in facts if value is not None]
        parts += [f"{name}={value!r}" for name, value in query.conditions] + ["reverse"] * query.reverse
        return f"<aggregator.Scan {', '.join(parts)}>"

    # ------------------------------------------------------------ columns

    @property
    def schema(self) -> pa.Schema:
        """The current Arrow schema of the batches: a topic may gain columns."""
        snapshot, pin = self._snap(self._partition)
        pin.release()
        return self._target(snapshot)

    def _open(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        return self._batches(*self._snap(self._partition))

    def count(self) -> int:
        """Number of events, from metadata if possible: then it includes segments whose files are missing."""
        query = self._query
        snapshot, pin = self._snap(self._partition)
        if query.by_index or snapshot.tombstones:
            _, batches = self._read(snapshot, pin, _counting(snapshot, query))
            return sum(map(len, batches))
        try:
            count = sum(
                count_segment(self._pool, info, query) if query.filtered else info.rows
                for info in self._segments(snapshot)
            )
            view = View(query, pa.schema([snapshot.schema_set.union.arrow.field("timestamp")]), {})
            for group in lookup_groups(snapshot, query):
                count += sum(map(len, unsealed_batches(group, view, ""))) if query.filtered else group.rows
        finally:
            pin.release()
        return count if query.limit is None else min(count, query.limit)

    def histogram(self, buckets: int = 60) -> Histogram:
        """Count the events by time, in at most `buckets` equal spans between `start` and `end`, or around all events.

        Segments within one span are not read. Raises InvalidRequestError for a scan with a limit or by record index.
        """
        query = self._query
        if query.by_index or query.limit is not None:
            raise InvalidRequestError("a histogram counts all events by time", hint="remove the limit")
        snapshot, pin = self._snap(self._partition)
        try:
            segments = self._segments(snapshot)
            return histogram_of(snapshot, self._pool, query, segments, check_buckets(buckets))
        finally:
            pin.release()

    # ------------------------------------------------------------ events

    def __iter__(self) -> Iterator[Event]:
        snapshot, pin = self._snap(self._partition)
        schema = snapshot.schema_set.union
        target = self._target(snapshot)
        try:
            events = self._history(snapshot, tuple(target.names))
        except BaseException:
            pin.release()
            raise
        if events is not None:
            return _pinned(events, pin)
        wanted = [field for field in schema.arrow if field.name in KEY_COLUMNS or field.name in target.names]
        wanted += [target.field(name) for name in (RECORD_INDEX, PARTITION) if name in target.names]
        _, batches = self._read(snapshot, pin, pa.schema(wanted))
        rows = (esformat.parts.rows_of_batch(batch, schema.indexes) for batch in batches)
        return chain.from_iterable(chain.from_iterable(row.iterators() for row in rows))

    def _history(
        self, snapshot: Snapshot, names: tuple[str, ...], few: tuple[int, int] | None = None
    ) -> Iterator[Event] | None:
        """The events of one space with some columns, if the fast path is possible: every segment has the same columns,
        none of the space is hidden, and ties are in order; else None. few: None also if there may be more rows or bytes
        than this.
        """
        query = self._query
        if query.space is None or query.by_index or not snapshot.schemas:
            return None
        if any(info.schema != snapshot.schemas[0].schema for info in snapshot.schemas[1:]):
            return None
        if any(space == query.space for _, space in snapshot.tombstones):
            return None
        if RECORD_INDEX in names or PARTITION in names:
            return None
        segments = self._segments(snapshot)
        if few is not None and query.limit is not None and len(segments) > MAX_OVERLAP:
            return None  # they may overlap, and `Waves` opens the fewest then
        prefetch(self._pool, segments, query)
        pool, schema = self._pool, snapshot.schema_set.union

        def opened(part: SegmentInfo | Group, at_once: bool) -> list[Event] | Opened | None:
            if isinstance(part, SegmentInfo):
                return segment_history(pool.get(part), query, names, at_once)
            return _unsealed_history(part, query, schema, names)

        parts: list[SegmentInfo | Group] = [*segments, *lookup_groups(snapshot, query)]
        return merge_history(parts, opened, reverse=query.reverse, limit=query.limit, few=few)

    def _few(self, snapshot: Snapshot, target: pa.Schema) -> pa.RecordBatch | None:
        """The result as one batch, built from events, if it is a short history: this takes a tenth of the work of
        decoding columns segment by segment. None if it may be longer, or has columns whose values Python changes.
        """
        if not all(_is_plain(field) for field in target):
            return None
        few = FEW_VALUES // max(1, len(target)), LEAST_OF_SPACE_BYTES
        events = self._history(snapshot, tuple(target.names), few)
        if events is None:
            return None
        check()
        rows = list(events)
        indexes = snapshot.schema_set.union.indexes
        held: dict[bool, list[Mapping[str, Any]]] = {}  # by whether indexed: those columns of each event
        arrays = []
        for field in target:
            if field.name in EVENT_COLUMNS:
                values: list[Any] = list(map(attrgetter(field.name), rows))
            else:
                indexed = field.name in indexes
                if indexed not in held:
                    held[indexed] = list(map(attrgetter("indexes" if indexed else "columns"), rows))
                values = [each.get(field.name) for each in held[indexed]]
            arrays.append(esformat.parts.short_array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=target)

    # ------------------------------------------------------------ reading

    def _target(self, snapshot: Snapshot) -> pa.Schema:
        """The requested columns."""
        known, wanted = snapshot.schema_set.given, self._query.columns
        if wanted is None:
            return known.remove(len(known) - 1) if self._query.by_index else snapshot.schema_set.union.arrow
        return pa.schema([known.field(name) for name in wanted])

    def _batches(self, snapshot: Snapshot, pin: FileHolder) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        return self._read(snapshot, pin, self._target(snapshot))

    def _read(
        self, snapshot: Snapshot, pin: FileHolder, target: pa.Schema
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        return target, _pinned(self._answers(snapshot, target), pin)

    def _answers(self, snapshot: Snapshot, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        few = self._few(snapshot, target)
        if few is None:
            given, inner = snapshot.schema_set.given, target
            for name in ("timestamp", RECORD_INDEX):
                if name not in inner.names:
                    inner = inner.append(given.field(name))
            yield from _first_rows(self._merged(snapshot, inner), self._query.limit, target.names)
        elif len(few):
            yield few

    def _merged(self, snapshot: Snapshot, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        query = self._query
        if query.limit == 0:
            return
        segments, reverse, sparing = self._segments(snapshot), query.reverse, query.limit is not None
        if query.by_index:
            sources = self._sources(snapshot, target, segments, query)
            yield from merge(sources, by=RECORD_INDEX, reverse=reverse, sparing=sparing)
            return

        def sources_of(start: int | None, end: int | None, unordered: bool) -> Iterator[Source]:
            part = replace(query, start=start, end=end)
            within = [info for info in segments if part.overlap(_times(info), _indexes(info))]
            return self._sources(snapshot, target, within, part, unordered=unordered)

        waves = Waves(sources_of, self._pool.windows, reverse, sparing)
        yield from waves.read(segments, (query.start, query.end), query.limit)

    def _segments(self, snapshot: Snapshot) -> list[SegmentInfo]:
        """Segments that may contain matching events."""
        query = self._query
        if self._partition is not None:
            number = snapshot.partitions[0][0] if snapshot.partitions else NO_PARTITION
            query = replace(query, partition=number)
        return snapshot.segments.select(query)

    def _sources(
        self,
        snapshot: Snapshot,
        target: pa.Schema,
        segments: list[SegmentInfo],
        query: Query,
        *,
        unordered: bool = False,
    ) -> Iterator[Source]:
        """The sources to merge. segments: those that may have matching events. unordered: rows may be in any order."""
        pool = self._pool
        names = dict(snapshot.partitions)
        merged = len({info.partition for info in segments})
        views = {number: View(query, target, hidden_in(snapshot.tombstones, number), merged) for number in names}
        kept = frozenset(target.names) if unordered else None
        prefetch(pool, segments, query)
        for info in segments:
            low, high = _indexes(info) if query.by_index else _times(info)

            def batches(info: SegmentInfo = info) -> Iterator[pa.RecordBatch]:
                return segment_batches(pool, info, views[info.partition], names[info.partition], unordered=kept)

            yield Source(~high if query.reverse else low, info.partition, batches)
        for group in lookup_groups(snapshot, query, together=True):
            number = group.partition

            def found(group: Group = group, number: int | None = number) -> Iterator[pa.RecordBatch]:
                if number is None:
                    return unsealed_batches(group, View(query, target, {}), names)
                return unsealed_batches(group, views[number], names[number])

            yield Source(group.bound(query), number, found)


def _unsealed_history(group: Group, query: Query, schema: EventSchema, names: tuple[str, ...]) -> Opened:
    """The part of unsealed batches in the history of the query's space, as events with some columns."""
    assert query.space is not None
    target = pa.schema([field for field in schema.arrow if field.name in KEY_COLUMNS or field.name in names])
    view = View(query, target, {})

    def events() -> Iterator[Event]:
        rows = (esformat.parts.rows_of_batch(batch, schema.indexes) for batch in unsealed_batches(group, view, ""))
        return chain.from_iterable(chain.from_iterable(row.iterators() for row in rows))

    most = group.rows if query.limit is not None else most_of_space(group, query.space)
    return Opened(True, most, events)


def _times(info: SegmentInfo) -> tuple[int, int]:
    return info.min_timestamp, info.max_timestamp


def _indexes(info: SegmentInfo) -> tuple[int, int]:
    return info.first_index, info.last_index


def _is_plain(field: pa.Field) -> bool:
    """Whether a column's values survive conversion to Python values and back."""
    kind = field.type
    return bool(field.name == "timestamp" or any(test(kind) for test in _PLAIN))


def _counting(snapshot: Snapshot, query: Query) -> pa.Schema:
    return pa.schema([snapshot.schema_set.union.arrow.field("timestamp")])


def _pinned(batches: Iterator[T], pin: FileHolder) -> Iterator[T]:
    """Yield batches or events. Their files are kept until the last one, or until the iterator is closed."""
    try:
        yield from batches
    finally:
        pin.release()


def _first_rows(batches: Iterator[pa.RecordBatch], limit: int | None, names: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        few = batch if limit is None else batch.slice(0, limit)
        yield few if few.schema.names == names else few.select(names)
        if limit is not None:
            limit -= len(few)
            if not limit:
                return
