"""Replay the log into a catalog's state at opening: every acknowledged event once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from aggregator.errors import CorruptLogError, UnknownVersionError
from aggregator.model import PartitionInfo, ProducerEntry, SchemaInfo, TopicInfo
from aggregator.policy import Retention, Roll
from aggregator.storage.log.file import Frame, list_files, read_file, read_frames
from aggregator.storage.log.frame import EventsPrefix, FrameKind
from aggregator.storage.log.recovery import Recovered, recover
from aggregator.storage.manifest import Manifest
from aggregator.storage.manifest.facts import stored_magnitudes
from aggregator.storage.memtable.batch import make_batch
from aggregator.storage.state.state import CatalogState
from esformat.parts import EventSchema


class Replay:
    """Applies frames of the log. Restores topics and partitions that the manifest has lost from definitions."""

    def __init__(self, state: CatalogState, manifest: Manifest | None, clock: Callable[[], int]) -> None:
        """manifest: receives lost definitions. None: only read them, as the log of a copy may be ahead of its
        manifest.
        """
        self._state, self._manifest, self._clock = state, manifest, clock
        self.events = 0
        self.size_bytes = 0
        self.unreadable: list[tuple[Frame, str]] = []
        self.missing: list[tuple[int, int, int]] = []
        """Lost events: partition number and record indexes [first, end) that are in no segment and no frame."""
        self._adopted: set[int] = set()  # partitions whose sealed index is unknown

    def run(self, directory: Path) -> Recovered:
        """Replay the log of a directory."""
        return recover(directory, self.take)

    def take(self, frame: Frame) -> None:
        """Apply one frame."""
        try:
            if frame.head.kind == FrameKind.DEFINITION:
                self._define(json.loads(bytes(frame.body)))
            elif frame.head.kind == FrameKind.EVENTS:
                self._take_events(frame)
            else:
                raise CorruptLogError(f"frames of kind {frame.head.kind} are unknown")
        except (CorruptLogError, ValueError, KeyError, TypeError) as error:
            self.unreadable.append((frame, str(error)))
            if frame.head.kind == FrameKind.EVENTS and frame.head.partition in self._state.partitions:
                partition = self._state.partitions[frame.head.partition][1]
                partition.unreadable_end = max(partition.unreadable_end, frame.head.first_index + frame.head.count)

    def _take_events(self, frame: Frame) -> None:
        head = frame.head
        prefix, start = EventsPrefix.decode(frame.body)
        topic, partition = self._state.partitions[head.partition]
        if topic.info.deleted:
            return
        schema = topic.schemas[prefix.schema]
        partition.next_index = max(partition.next_index, head.first_index + head.count)
        if prefix.producer:
            key = (head.partition, prefix.producer, prefix.sequence, prefix.fingerprint)
            partition.keep_producer(ProducerEntry(*key, head.first_index, head.count, prefix.note))
        if head.first_index + head.count <= partition.visible_end:  # sealed, or applied before
            return
        if self._manifest is not None and head.partition not in self._adopted:
            lost = partition.outside_holes(partition.visible_end, head.first_index)
            self.missing += ((head.partition, *span) for span in lost)
        message = pa.py_buffer(frame.body[start:])
        events = _batch(message, schema.schema.arrow)
        if len(events) != head.count:
            raise CorruptLogError(f"a frame of {head.count} events has {len(events)}")
        batch = make_batch(head.first_index, schema, events, message.size, self._clock())
        if head.first_index < partition.visible_end:  # a segment has it, except for erased events at its end
            batch = batch.from_index(partition.visible_end)
        self._state.publish(partition, batch)
        self._state.put_together(partition)
        self.events += batch.rows
        self.size_bytes += batch.size_bytes

    def _define(self, facts: dict[str, Any]) -> None:
        if self._state.is_deleted(facts["topic_number"]):
            return
        topic = adopt_topic(self._state, self._manifest, facts)
        adopt_schema(self._state, self._manifest, topic, facts)
        if facts["partition"] not in self._state.partitions:
            self._adopted.add(facts["partition"])
            adopt_partition(self._state, self._manifest, topic, facts)


def adopt_definitions(
    directory: Path, state: CatalogState, manifest: Manifest, clock: Callable[[], int]
) -> dict[int, tuple[int, int]]:
    """Adopt the topics, schemas and partitions that the log of a directory defines. Return for each partition the
    record index of its first event in the log, and the one after its last. Raises OSError.
    """
    spans: dict[int, tuple[int, int]] = {}
    replay = Replay(state, manifest, clock)
    for start, path in list_files(directory):
        try:
            data = read_file(path, start)
        except CorruptLogError:  # frames record their positions: they can be read without the header
            data = memoryview(path.read_bytes())
        except UnknownVersionError:  # the next opening reports it
            continue
        for item in read_frames(data, path, start):
            if not isinstance(item, Frame):
                continue
            if item.head.kind == FrameKind.DEFINITION:
                replay.take(item)
            elif item.head.kind == FrameKind.EVENTS:
                first, _ = spans.get(item.head.partition, (item.head.first_index, 0))
                spans[item.head.partition] = (first, item.head.first_index + item.head.count)
    return spans


def _batch(message: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The events of a frame, with every offset and text checked. Raises CorruptLogError."""
    try:
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise CorruptLogError(f"a frame's events cannot be read: {error}") from None
    return batch


def adopt_topic(state: CatalogState, manifest: Manifest | None, facts: dict[str, Any]) -> TopicInfo:
    """The topic that a definition or a segment describes, added to the manifest if that has lost it."""
    number, name = facts["topic_number"], facts["topic"]
    if state.has_topic(number):  # perhaps under another name: it was renamed since
        return state.topic_of(number).info
    if name in state.topics:  # it was deleted or renamed, and the record of that is lost
        name = f"{name} ({number})"
    info = TopicInfo(
        number,
        name,
        facts["keys"],
        tuple(facts["indexes"]),
        Roll(**facts["roll"]),
        Retention(**facts["retention"]),
        facts["topic_created_us"],
    )
    state.add_topic(info if manifest is None else manifest.add_topic(info))
    return info


def adopt_schema(state: CatalogState, manifest: Manifest | None, topic: TopicInfo, facts: dict[str, Any]) -> None:
    """Add the schema that a definition or a segment describes to the manifest, if that has lost it."""
    if facts["schema"] not in state.topic_of(topic.number).schemas:
        schema = EventSchema.from_json(facts["columns"])
        found = stored_magnitudes(facts["magnitudes"], schema)
        info = SchemaInfo(facts["schema"], topic.number, facts["family"], schema, found)
        state.add_schema(info if manifest is None else manifest.add_schema(info))


def adopt_partition(state: CatalogState, manifest: Manifest | None, topic: TopicInfo, facts: dict[str, Any]) -> None:
    """Add the partition that a definition or a segment describes to the manifest, if that has lost it."""
    if facts["partition"] not in state.partitions:
        number, name = facts["partition"], facts["name"]
        known = None if manifest is None else manifest.add_partition(topic.number, name, number)
        state.add_partition(known or PartitionInfo(number, topic.number, name, 0))
