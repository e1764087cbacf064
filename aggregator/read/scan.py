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
from aggregator.read.ahead import begin_ahead
from aggregator.read.history import Opened, merge_history
from aggregator.read.memtable_source import Group, lookup_groups, most_of_space, unsealed_batches
from aggregator.read.query import Question, check_columns, check_conditions
from aggregator.read.segment_source import count_segment, segment_batches, segment_history
from aggregator.read.time_counts import histogram_of
from aggregator.read.view import View
from aggregator.read.waves import MAX_OVERLAP, Waves
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.state.state import Snapshot
from aggregator.storage.state.tombstones import hidden_in
from esformat import Event
from esformat.parts import KEY_COLUMNS, EventSchema


class Held(Protocol):
    """Keeps the files of a snapshot: a `Pin`, or an object that keeps one for longer."""

    def release(self) -> None:
        """Release the files. A second call does nothing."""


Snap = Callable[[str | None], tuple[Snapshot, Held]]
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
    """The events that match a question, read on demand: an `Answer`."""

    def __init__(self, snap: Snap, pool: SegmentPool, question: Question, partition: str | None = None) -> None:
        """Created by the methods of Topic. partition: only that one. Raises UsageError for a column that the topic
        lacks, and for a value that an index cannot contain.
        """
        self._snap = snap
        self._pool = pool
        self._question = question
        self._partition = partition
        if question.columns is not None or question.conditions:
            snapshot, pin = snap(partition)
            pin.release()
            check_conditions(question.conditions, [info.schema for info in snapshot.schemas])
            if question.columns is not None:
                check_columns(question.columns, snapshot.schema_set.union.arrow.names)

    def __repr__(self) -> str:
        question = self._question
        names = ("space", "grouping", "start", "end", "limit", "first_index", "end_index")
        facts = [(name, getattr(question, name)) for name in names]
        facts = [*facts[:5], ("partition", self._partition), *facts[5:]]
        parts = [f"{name}={value!r}" for name, value in facts if value is not None]
        parts += [f"{name}={value!r}" for name, value in question.conditions] + ["reverse"] * question.reverse
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
        question = self._question
        snapshot, pin = self._snap(self._partition)
        if question.by_index or snapshot.tombstones:
            _, batches = self._read(snapshot, pin, _counting(snapshot, question))
            return sum(map(len, batches))
        try:
            count = sum(
                count_segment(self._pool, info, question) if question.filtered else info.rows
                for info in self._segments(snapshot)
            )
            view = View(question, pa.schema([snapshot.schema_set.union.arrow.field("timestamp")]), {})
            for group in lookup_groups(snapshot, question):
                count += sum(map(len, unsealed_batches(group, view, ""))) if question.filtered else group.rows
        finally:
            pin.release()
        return count if question.limit is None else min(count, question.limit)

    def histogram(self, buckets: int = 60) -> Histogram:
        """Count the events by time, in at most `buckets` equal spans between `start` and `end`, or around all events.

        Segments within one span are not read. Raises InvalidRequestError for a scan with a limit or by record index.
        """
        question = self._question
        if question.by_index or question.limit is not None:
            raise InvalidRequestError("a histogram is of all events by time", hint="leave the limit out")
        snapshot, pin = self._snap(self._partition)
        try:
            segments = self._segments(snapshot)
            return histogram_of(snapshot, self._pool, question, segments, check_buckets(buckets))
        finally:
            pin.release()

    # ------------------------------------------------------------ events

    def __iter__(self) -> Iterator[Event]:
        snapshot, pin = self._snap(self._partition)
        schema = snapshot.schema_set.union
        asked = self._target(snapshot)
        try:
            events = self._history(snapshot, tuple(asked.names))
        except BaseException:
            pin.release()
            raise
        if events is not None:
            return _pinned(events, pin)
        wanted = [field for field in schema.arrow if field.name in KEY_COLUMNS or field.name in asked.names]
        wanted += [asked.field(name) for name in (RECORD_INDEX, PARTITION) if name in asked.names]
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
        question = self._question
        if question.space is None or question.by_index or not snapshot.schemas:
            return None
        if any(info.schema != snapshot.schemas[0].schema for info in snapshot.schemas[1:]):
            return None
        if any(space == question.space for _, space in snapshot.tombstones):
            return None
        if RECORD_INDEX in names or PARTITION in names:
            return None
        segments = self._segments(snapshot)
        if few is not None and question.limit is not None and len(segments) > MAX_OVERLAP:
            return None  # they may overlap, and `Waves` opens the fewest then
        begin_ahead(self._pool, segments, question)
        pool, schema = self._pool, snapshot.schema_set.union

        def opened(part: SegmentInfo | Group, at_once: bool) -> list[Event] | Opened | None:
            if isinstance(part, SegmentInfo):
                return segment_history(pool.get(part), question, names, at_once)
            return _unsealed_history(part, question, schema, names)

        parts: list[SegmentInfo | Group] = [*segments, *lookup_groups(snapshot, question)]
        return merge_history(parts, opened, reverse=question.reverse, limit=question.limit, few=few)

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
        known, wanted = snapshot.schema_set.given, self._question.columns
        if wanted is None:
            return known.remove(len(known) - 1) if self._question.by_index else snapshot.schema_set.union.arrow
        return pa.schema([known.field(name) for name in wanted])

    def _batches(self, snapshot: Snapshot, pin: Held) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        return self._read(snapshot, pin, self._target(snapshot))

    def _read(self, snapshot: Snapshot, pin: Held, target: pa.Schema) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        return target, _pinned(self._answers(snapshot, target), pin)

    def _answers(self, snapshot: Snapshot, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        few = self._few(snapshot, target)
        if few is None:
            given, inner = snapshot.schema_set.given, target
            for name in ("timestamp", RECORD_INDEX):
                if name not in inner.names:
                    inner = inner.append(given.field(name))
            yield from _first_rows(self._merged(snapshot, inner), self._question.limit, target.names)
        elif len(few):
            yield few

    def _merged(self, snapshot: Snapshot, target: pa.Schema) -> Iterator[pa.RecordBatch]:
        question = self._question
        if question.limit == 0:
            return
        segments, reverse, sparing = self._segments(snapshot), question.reverse, question.limit is not None
        if question.by_index:
            sources = self._sources(snapshot, target, segments, question)
            yield from merge(sources, by=RECORD_INDEX, reverse=reverse, sparing=sparing)
            return

        def sources_of(start: int | None, end: int | None, unordered: bool) -> Iterator[Source]:
            asked = replace(question, start=start, end=end)
            within = [info for info in segments if asked.overlap(_times(info), _indexes(info))]
            return self._sources(snapshot, target, within, asked, unordered=unordered)

        waves = Waves(sources_of, self._pool.windows, reverse, sparing)
        yield from waves.read(segments, (question.start, question.end), question.limit)

    def _segments(self, snapshot: Snapshot) -> list[SegmentInfo]:
        """Segments that may contain matching events."""
        question = self._question
        if self._partition is not None:
            number = snapshot.partitions[0][0] if snapshot.partitions else NO_PARTITION
            question = replace(question, partition=number)
        return snapshot.segments.select(question)

    def _sources(
        self,
        snapshot: Snapshot,
        target: pa.Schema,
        segments: list[SegmentInfo],
        question: Question,
        *,
        unordered: bool = False,
    ) -> Iterator[Source]:
        """The sources to merge. segments: those that may have matching events. unordered: rows may be in any order."""
        pool = self._pool
        names = dict(snapshot.partitions)
        merged = len({info.partition for info in segments})
        views = {number: View(question, target, hidden_in(snapshot.tombstones, number), merged) for number in names}
        kept = frozenset(target.names) if unordered else None
        begin_ahead(pool, segments, question)
        for info in segments:
            low, high = _indexes(info) if question.by_index else _times(info)

            def batches(info: SegmentInfo = info) -> Iterator[pa.RecordBatch]:
                return segment_batches(pool, info, views[info.partition], names[info.partition], unordered=kept)

            yield Source(~high if question.reverse else low, info.partition, batches)
        for group in lookup_groups(snapshot, question, together=True):
            number = group.partition

            def found(group: Group = group, number: int | None = number) -> Iterator[pa.RecordBatch]:
                if number is None:
                    return unsealed_batches(group, View(question, target, {}), names)
                return unsealed_batches(group, views[number], names[number])

            yield Source(group.bound(question), number, found)


def _unsealed_history(group: Group, question: Question, schema: EventSchema, names: tuple[str, ...]) -> Opened:
    """The part of unsealed batches in the history of the question's space, as events with some columns."""
    assert question.space is not None
    target = pa.schema([field for field in schema.arrow if field.name in KEY_COLUMNS or field.name in names])
    view = View(question, target, {})

    def events() -> Iterator[Event]:
        rows = (esformat.parts.rows_of_batch(batch, schema.indexes) for batch in unsealed_batches(group, view, ""))
        return chain.from_iterable(chain.from_iterable(row.iterators() for row in rows))

    most = group.rows if question.limit is not None else most_of_space(group, question.space)
    return Opened(True, most, events)


def _times(info: SegmentInfo) -> tuple[int, int]:
    return info.min_timestamp, info.max_timestamp


def _indexes(info: SegmentInfo) -> tuple[int, int]:
    return info.first_index, info.last_index


def _is_plain(field: pa.Field) -> bool:
    """Whether a column's values survive conversion to Python values and back."""
    kind = field.type
    return bool(field.name == "timestamp" or any(test(kind) for test in _PLAIN))


def _counting(snapshot: Snapshot, question: Question) -> pa.Schema:
    return pa.schema([snapshot.schema_set.union.arrow.field("timestamp")])


def _pinned(batches: Iterator[T], pin: Held) -> Iterator[T]:
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
