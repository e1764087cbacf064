"""The state of an open catalog: topics, partitions, unsealed events, segments; and snapshots of it.

The view lock guards it. It is held for a few steps when batches are published, segments change, or a scan takes its
snapshot. No thread waits for a disk while holding it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any

import pyarrow as pa

from aggregator.errors import SequenceForgottenError, TopicNotFoundError
from aggregator.model import (
    PARTITION,
    RECORD_INDEX,
    Cut,
    PartitionInfo,
    ProducerEntry,
    SchemaInfo,
    SegmentInfo,
    Tombstone,
    TopicInfo,
    with_cut,
)
from aggregator.storage.files.pins import Pin, Pins
from aggregator.storage.manifest import Contents
from aggregator.storage.manifest.lineage import Lineage
from aggregator.storage.memtable.batch import MemtableBatch, join
from aggregator.storage.memtable.lookup import Lookup, look_up
from aggregator.storage.memtable.memtable import MERGED, Memtable
from aggregator.storage.segments.table import SegmentTable, SegmentView
from aggregator.storage.state.arrivals import Arrivals
from aggregator.storage.state.schema import union_schema
from esformat.parts import EventSchema, default_schema

PRODUCER_WINDOW = 64
"""Batches of each producer remembered in each partition."""


@dataclass(slots=True, eq=False)
class Partition:
    """The in-memory state of a partition."""

    number: int
    name: str
    next_index: int = 0  # only the log's leader changes it
    sealed_index: int = 0
    reserved_index: int = 0  # see `reserve`
    holes: tuple[tuple[int, int], ...] = ()  # see PartitionInfo
    memtable: Memtable = field(default_factory=Memtable.empty)
    unreadable_end: int = 0  # the record index after the last unreadable event of the log
    sealing: Memtable | None = None  # being written to a segment, but still visible to readers
    producers: dict[str, dict[int, ProducerEntry]] = field(default_factory=dict)
    seal_lock: Lock = field(default_factory=Lock)  # held while the partition is being sealed
    join_lock: Lock = field(default_factory=Lock)  # held while small batches are merged

    @property
    def visible_end(self) -> int:
        """The record index after the last event that scans see. Read under the view lock."""
        for memtable in (self.memtable, self.sealing):
            if memtable is not None and memtable.batches:
                return memtable.end_index
        return self.sealed_index

    @property
    def unsealed_bytes(self) -> int:
        """Bytes of its events in memory, including those being written to a segment."""
        return sum(part.size_bytes for part in (self.memtable, self.sealing) if part is not None)

    def skip_indexes(self, holes: tuple[tuple[int, int], ...]) -> None:
        """Set the record indexes that are never assigned. holes: all of them, including the known ones."""
        if len(holes) and holes != self.holes:
            self.holes = holes
            self.next_index = max(self.next_index, holes[-1][1])

    def outside_holes(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of the record indexes [first, end) that are outside holes, as spans."""
        found = []
        for low, high in self.holes:
            if first < low < end:
                found.append((first, low))
            if low < end:
                first = max(first, high)
        return [*found, (first, end)] if first < end else found

    def remembered(self, producer: str, sequence: int) -> ProducerEntry | None:
        """The batch of a producer with a sequence; None if there was none. Raises SequenceForgottenError."""
        window = self.producers.get(producer, {})
        found = window.get(sequence)
        if found is None and len(window) >= PRODUCER_WINDOW and sequence < min(window):
            raise SequenceForgottenError(
                f"sequence {sequence} of producer {producer!r} is older than the {PRODUCER_WINDOW} that are remembered",
                hint="use a higher sequence for each new batch",
            )
        return found

    def keep_producer(self, entry: ProducerEntry) -> None:
        """Remember a batch of a producer, and forget its oldest if there are too many."""
        window = self.producers.setdefault(entry.producer, {})
        window[entry.sequence] = entry
        if len(window) > PRODUCER_WINDOW:
            del window[min(window)]


@dataclass(frozen=True, eq=False)
class SchemaSet:
    """The schemas of a topic at one moment."""

    schemas: tuple[SchemaInfo, ...]
    indexes: tuple[str, ...]
    binary_keys: bool

    @cached_property
    def union(self) -> EventSchema:
        """The schema for reading events of all schemas. Cached, because topics may have thousands of columns."""
        if not self.schemas:  # nothing was appended yet
            return default_schema(self.indexes, binary_keys=self.binary_keys)
        return union_schema(self.schemas, binary_keys=self.binary_keys)

    @cached_property
    def given(self) -> pa.Schema:
        """The columns that can be requested: those of `union`, the record index, the partition."""
        known = self.union.arrow.append(pa.field(RECORD_INDEX, pa.int64(), nullable=False))
        return known.append(pa.field(PARTITION, pa.string(), nullable=False))


@dataclass(slots=True, eq=False)
class Topic:
    """The in-memory state of a topic."""

    info: TopicInfo
    schemas: dict[int, SchemaInfo] = field(default_factory=dict)
    partitions: dict[str, Partition] = field(default_factory=dict)
    segments: SegmentTable = field(default_factory=SegmentTable)
    tombstones: dict[tuple[int, bytes], tuple[Cut, ...]] = field(default_factory=dict)  # by partition and space
    leaving: bool = False  # it is deleted, or about to be: it accepts no more data
    rewriting: set[int] = field(default_factory=set)  # numbers of segments that are being rewritten
    _schema_set: SchemaSet | None = None

    def check_there(self) -> None:
        """Raises TopicNotFoundError if the topic is deleted, or about to be."""
        if self.leaving:
            raise TopicNotFoundError("the topic was deleted", hint="create it again")

    @property
    def binary_keys(self) -> bool:
        """Whether spaces and groupings are bytes."""
        return self.info.keys == "binary"

    def schema_set(self) -> SchemaSet:
        """All current schemas, with the cached results of earlier readers. Called under the view lock."""
        if self._schema_set is None or len(self._schema_set.schemas) != len(self.schemas):
            self._schema_set = SchemaSet(tuple(self.schemas.values()), self.info.indexes, self.binary_keys)
        return self._schema_set

    def definition(self, partition: Partition, schema: SchemaInfo) -> dict[str, Any]:
        """The definition of a partition and a schema, as JSON values, for the log and for quarantined batches."""
        info = self.info
        return {
            "partition": partition.number, "name": partition.name, "topic": info.name, "topic_number": info.number,
            "topic_created_us": info.created_us, "keys": info.keys, "indexes": list(info.indexes),
            "roll": info.roll.to_json(), "retention": info.retention.to_json(), "schema": schema.number,
            "family": schema.family, "columns": schema.schema.to_json(), "magnitudes": dict(schema.magnitudes),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemtableView:
    """Unsealed events of a snapshot. `lookups` reuses lookups that earlier readers built and builds the rest."""

    partition: int
    batches: tuple[MemtableBatch, ...]
    owner: Memtable

    def lookups(self) -> tuple[Lookup, ...]:
        """Lookups over all batches, cached for the next reader. If two threads build them, either result is good."""
        made = look_up(self.batches, self.owner.lookups)
        self.owner.lookups = made
        return made


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The contents of a topic at one moment. Scans read from it and from nothing else."""

    topic: TopicInfo
    schema_set: SchemaSet
    partitions: tuple[tuple[int, str], ...]
    segments: SegmentView
    memtables: tuple[MemtableView, ...]
    tombstones: dict[tuple[int, bytes], tuple[Cut, ...]]
    holes: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)  # by partition; see PartitionInfo

    @property
    def schemas(self) -> tuple[SchemaInfo, ...]:
        """The topic's schemas."""
        return self.schema_set.schemas

    @property
    def binary_keys(self) -> bool:
        """Whether spaces and groupings are bytes."""
        return self.topic.keys == "binary"


class CatalogState:
    """The state of all topics of a catalog."""

    def __init__(self, contents: Contents) -> None:
        self.view_lock = Lock()
        self.arrivals = Arrivals()
        """Notified of every batch that becomes visible."""
        self.lineage = Lineage(b"", (), {})
        """The openings that assigned the record indexes; set when the catalog is opened."""
        self.edit_lock = Lock()
        """Held while segments change, from the manifest's transaction until the view shows it. So a scan that pins a
        change sees all earlier changes. Taken before the view lock."""
        self.change = contents.change
        """The manifest's change that the segments here show."""
        self.topics: dict[str, Topic] = {}
        """By name, without deleted topics, whose numbers and partition numbers stay in use."""
        self._by_number: dict[int, Topic] = {}
        self.partitions: dict[int, tuple[Topic, Partition]] = {}
        self.segment_bytes = 0
        """Size of the files of all segments on disk; maintained in a writer only."""
        self.evicted: dict[int, int] = {}
        """Segments that are only in the store, and their bytes; maintained in a writer only."""
        for info in contents.topics:
            self.add_topic(info)
        for schema in contents.schemas:
            self.add_schema(schema)
        for partition in contents.partitions:
            topic = self._by_number[partition.topic]
            topic.partitions[partition.name] = self._made_partition(topic, partition)  # nobody reads it yet
        grouped: dict[int, list[SegmentInfo]] = {}
        for segment in contents.segments:
            topic, known = self.partitions[segment.partition]
            grouped.setdefault(topic.info.number, []).append(segment)
            known.next_index = max(known.next_index, segment.last_index + 1)
        for number, segments in grouped.items():
            self._by_number[number].segments.add(segments)
            self.segment_bytes += self._by_number[number].segments.size_bytes
        self.add_tombstones(contents.tombstones)

    def add_topic(self, info: TopicInfo) -> Topic:
        """Add a topic, or update a known one."""
        known = self._by_number.get(info.number)
        if known is not None:
            before, known.info = known.info, info
            if (before.name, before.deleted) != (info.name, info.deleted):
                known.leaving = info.deleted
                named = [topic for topic in self._by_number.values() if not topic.info.deleted]
                self.topics = {topic.info.name: topic for topic in named}
            return known
        topic = self._by_number[info.number] = Topic(info, leaving=info.deleted)
        if not info.deleted:
            self.topics[info.name] = topic
        return topic

    def delete_topic(self, topic: Topic, change: int) -> int:
        """Make a topic's deletion visible, with everything in it; return the bytes of its unsealed events."""
        with self.view_lock:
            self.change = max(self.change, change)
            self.segment_bytes -= topic.segments.size_bytes
            self.segment_bytes += sum(self.evicted.pop(info.number, 0) for info in topic.segments.view())
            topic.segments, topic.schemas, topic.tombstones = SegmentTable(), {}, {}
            size = 0
            for partition in topic.partitions.values():
                size += sum(held.size_bytes for held in (partition.sealing, partition.memtable) if held is not None)
                partition.sealing, partition.memtable = None, Memtable.empty()
                partition.sealed_index = partition.next_index
                partition.producers, partition.holes = {}, ()
            self.add_topic(topic.info.as_deleted())
            self.arrivals.notify()
            return size

    def has_topic(self, number: int) -> bool:
        """Whether a topic with that number exists or existed."""
        return number in self._by_number

    def is_deleted(self, number: int) -> bool:
        """Whether a topic with that number existed and was deleted."""
        return number in self._by_number and self._by_number[number].info.deleted

    def add_schema(self, info: SchemaInfo) -> None:
        """Add a schema of a known topic."""
        self._by_number[info.topic].schemas.setdefault(info.number, info)

    def add_partition(self, info: PartitionInfo) -> Partition:
        """Add a partition of a known topic, or update its holes."""
        if info.number not in self.partitions:
            topic = self._by_number[info.topic]
            topic.partitions = topic.partitions | {info.name: self._made_partition(topic, info)}
        known = self.partitions[info.number][1]
        known.skip_indexes(info.holes)
        return known

    def _made_partition(self, topic: Topic, info: PartitionInfo) -> Partition:
        made = Partition(info.number, info.name, info.sealed_index, info.sealed_index, info.reserved_index)
        made.skip_indexes(info.holes)
        self.partitions[info.number] = (topic, made)
        return made

    def add_tombstones(self, stones: Iterable[Tombstone]) -> None:
        """Hide events of spaces of partitions."""
        changed: dict[int, dict[tuple[int, bytes], tuple[Cut, ...]]] = {}
        for stone in stones:
            topic = self.partitions[stone.partition][0]
            mine = changed.setdefault(topic.info.number, dict(topic.tombstones))
            key = (stone.partition, stone.space)
            mine[key] = with_cut(mine.get(key, ()), stone.cut)
        for number, tombstones in changed.items():  # a new mapping: snapshots keep the old one
            self._by_number[number].tombstones = tombstones

    def keep_tombstones(self, stones: Iterable[Tombstone]) -> None:
        """Forget all tombstones except these."""
        for topic in self._by_number.values():
            if topic.tombstones:
                topic.tombstones = {}
        self.add_tombstones(stones)

    def topic_of(self, number: int) -> Topic:
        """The topic with that number."""
        return self._by_number[number]

    # ------------------------------------------------------------ events and segments

    def publish(self, partition: Partition, batch: MemtableBatch) -> tuple[int, int]:
        """Make a batch visible; return the rows and bytes that were unsealed before."""
        with self.view_lock:
            memtable = partition.memtable
            before = memtable.rows, memtable.size_bytes
            memtable.add(batch)
            self.arrivals.notify()
            return before

    def put_together(self, partition: Partition) -> None:
        """Merge small batches if there are enough of them. Called by the thread that appended the last of them, not by
        the log's leader, for whom others wait. If another thread is merging, this does nothing.
        """
        if partition.memtable.alike < MERGED or not partition.join_lock.acquire(blocking=False):
            return
        try:
            end: int | None = None
            while True:
                with self.view_lock:
                    few = partition.memtable.small_ones(end)
                if few is None:
                    return
                whole = join(few)
                with self.view_lock:
                    end = partition.memtable.replace(few, whole)
                if end is None:  # they are being sealed
                    return
        finally:
            partition.join_lock.release()

    def freeze(self, partition: Partition, size_bytes: int) -> Memtable | None:
        """Set the first unsealed events, of about `size_bytes`, aside for sealing.

        None if there are none, or the previous ones are still being sealed.
        """
        with self.view_lock:
            if partition.sealing is not None or not partition.memtable.batches:
                return None
            partition.sealing, partition.memtable = partition.memtable.split(size_bytes)
            return partition.sealing

    def change_segments(
        self, topic: Topic, change: int, added: Sequence[SegmentInfo], retired: Iterable[int], sealed: dict[int, int]
    ) -> None:
        """Show a change of the manifest: new segments replace the events they were sealed from, or other segments."""
        with self.view_lock:
            self.change = max(self.change, change)
            before = topic.segments.size_bytes
            retired = tuple(retired)
            topic.segments.remove(retired)
            topic.segments.add(added)
            self.segment_bytes += topic.segments.size_bytes - before
            self.segment_bytes += sum(self.evicted.pop(number, 0) for number in retired)
            for number, index in sealed.items():
                partition = self.partitions[number][1]
                partition.sealed_index = index
                partition.sealing = None

    def set_evicted(self, info: SegmentInfo, *, evicted: bool) -> None:
        """Record whether a segment's file is gone from disk. Retired segments do not count."""
        with self.view_lock:
            if info.number not in self.partitions[info.partition][0].segments:
                return
            if evicted and info.number not in self.evicted:
                self.evicted[info.number] = info.size_bytes
                self.segment_bytes -= info.size_bytes
            elif not evicted:
                self.segment_bytes += self.evicted.pop(info.number, 0)

    def take_over(
        self, added: dict[int, list[SegmentInfo]], retired: Iterable[int], sealed: dict[int, int], change: int
    ) -> None:
        """Show the changes of another process: segments by topic, without unsealed events that are now in one."""
        with self.view_lock:
            self.change = change
            for topic in self._by_number.values():
                topic.segments.remove(retired)
                topic.segments.add(added.get(topic.info.number, ()))
            for number, index in sealed.items():
                partition = self.partitions[number][1]
                if index > partition.sealed_index:
                    partition.sealed_index = index
                    partition.memtable = partition.memtable.after(index)

    def reopen(self, partitions: Iterable[PartitionInfo]) -> bool:
        """If a partition's sealed index went back, because an older manifest was restored, forget its unsealed events;
        the log contains them and those that were sealed. Returns whether there is such a partition.
        """
        with self.view_lock:
            known = [info for info in partitions if info.number in self.partitions]
            less = [info for info in known if info.sealed_index < self.partitions[info.number][1].sealed_index]
            for info in less:
                partition = self.partitions[info.number][1]
                partition.sealed_index, partition.memtable = info.sealed_index, Memtable.empty()
            return bool(less)

    def sealed(self) -> dict[int, int]:
        """For each partition, the record index below which every event is in a segment."""
        return {number: partition.sealed_index for number, (_, partition) in list(self.partitions.items())}

    def snapshot(self, topic: Topic, pins: Pins, partition: str | None = None) -> tuple[Snapshot, Pin]:
        """A snapshot of a topic, or of one of its partitions; its files are kept until the pin is released."""
        with self.view_lock:
            pin = pins.take(self.change)
            chosen = [p for p in topic.partitions.values() if partition in (None, p.name)]
            memtables = [
                MemtableView(p.number, tuple(part.batches), part)
                for p in chosen
                for part in (p.sealing, p.memtable)
                if part is not None and part.batches
            ]
            snapshot = Snapshot(
                topic.info,
                topic.schema_set(),
                tuple((p.number, p.name) for p in chosen),
                topic.segments.view(),
                tuple(memtables),
                topic.tombstones,
                {p.number: p.holes for p in chosen if p.holes},
            )
            return snapshot, pin
