"""Write a segment file from a table, and describe it as a SegmentInfo."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import esformat
from aggregator.model import RECORD_INDEX, ProducerEntry, SchemaInfo, SegmentInfo, TopicInfo
from aggregator.storage.files.checksum import hasher64
from aggregator.storage.files.layout import make_directory
from aggregator.storage.files.modes import settle_file
from aggregator.storage.segments.records import FIELDS
from aggregator.storage.segments.signature import MAX_SPACES, signature_of_spaces
from esformat.parts import EventSchema, make_schema

PROPERTY = "aggregator"
STREAM_FRAME_BYTES = 64 << 10
"""Records of streams are searched more often than looked up: see docs/decisions/0030-frames-of-streams.md."""
LEAST_TEMPLATED_BYTES, LEAST_SEARCHED_BYTES = 1 << 20, 8 << 20
"""A segment with fewer bytes of events than the first number is sealed without templates, and one with fewer than the
second only with known ones, because finding templates takes as long as writing. A merge finds templates for segments
written without.
"""
MOST_KNOWN = 256
"""Number of (topic, schema) pairs whose templates are remembered."""
_READ_BYTES = 1 << 20


def arrow_schema(schema: EventSchema) -> pa.Schema:
    """The columns of a segment: those of the schema, and the record index."""
    return schema.arrow.append(pa.field(RECORD_INDEX, pa.int64(), nullable=False))


def frame_bytes(topic: TopicInfo, schema: SchemaInfo) -> int | None:
    """The approximate payload bytes in a frame of the topic's segments; None: the format's default."""
    of_streams = STREAM_FRAME_BYTES if FIELDS in schema.schema.positions else None
    return topic.roll.frame_bytes or of_streams


def write_segment(
    path: Path,
    tables: Iterable[pa.Table],
    *,
    number: int,
    topic: TopicInfo,
    partition: tuple[int, str],
    schema: SchemaInfo,
    producers: Iterable[ProducerEntry] = (),
    level: int = 0,
    now_us: int,
    threads: int | None = None,
    replaces: Sequence[int] = (),
    templates: bool | esformat.KnownTemplates = False,
) -> SegmentInfo:
    """Write events to a segment. On return it is complete, synced and has its final name.

    tables: the events, with the columns of `arrow_schema`, in the order of their record indexes. replaces: segments
    that the events come from. templates: whether to store text as templates, as in `esformat.create`, which saves a
    third.
    Raises OSError, esformat.UsageError if the file exists; in this case nothing is written.
    """
    make_directory(path.parent.parent)
    make_directory(path.parent)
    spans = _Spans()
    properties = segment_properties(
        number=number,
        topic=topic,
        partition=partition,
        schema=schema,
        producers=producers,
        level=level,
        created_us=now_us,
        replaces=replaces,
    )
    writer = esformat.create(
        path,
        indexes=schema.schema.indexes,
        schema=arrow_schema(schema.schema),
        keys=topic.keys,
        frame_bytes=frame_bytes(topic, schema),
        templates=templates,
        properties=properties,
        threads=threads,
    )
    with writer:
        for table in tables:
            spans.add(table)
            writer.add_table(table)
    settle_file(path)
    with esformat.open(path, cache_bytes=0) as written:
        min_ahead, max_ahead = ahead_of_rows(written)
    return SegmentInfo(
        number=number, partition=partition[0], schema=schema.number, first_index=spans.first_index,
        last_index=spans.last_index, min_timestamp=spans.min_timestamp, max_timestamp=spans.max_timestamp,
        min_space=spans.min_space, max_space=spans.max_space, rows=spans.rows, size_bytes=path.stat().st_size,
        checksum=file_checksum(path), level=level, created_us=now_us, signature=spans.signature,
        min_ahead=min_ahead, max_ahead=max_ahead,
    )  # fmt: skip


class TopicTemplates:
    """The templates of each topic's segments, for sealing the next ones. Thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], esformat.KnownTemplates] = OrderedDict()
        self._lock = Lock()

    def of(self, topic: TopicInfo, schema: SchemaInfo, size_bytes: int) -> esformat.KnownTemplates | bool:
        """How to write this many bytes of events: with the known templates of their schema, or False if they are better
        written without. Templates of the least recently used schemas are forgotten.
        """
        if size_bytes < LEAST_TEMPLATED_BYTES:
            return False
        key = topic.number, schema.number
        with self._lock:
            known = self._known.get(key) or esformat.KnownTemplates(LEAST_TEMPLATED_BYTES)
            self._known[key] = known
            self._known.move_to_end(key)
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return known if size_bytes >= LEAST_SEARCHED_BYTES or known.any_known else False


class Merged(NamedTuple):
    """Facts of a segment that was merged from others."""

    rows: int
    size_bytes: int
    checksum: int
    min_ahead: int
    max_ahead: int


def merge_segments(
    sources: Sequence[str | esformat.Source],
    out: Path,
    properties: Mapping[str, str],
    progress: Callable[[int, int], None] | None = None,
) -> Merged:
    """Merge several segments of one schema into one. progress: as for `esformat.tools.merge`.

    Raises the same errors; in this case no file is written.
    """
    from esformat import tools  # here: slow to import

    made = tools.merge(list(sources), out, templates=True, properties=dict(properties), progress=progress)
    with esformat.open(out, cache_bytes=0) as merged:
        ahead = ahead_of_rows(merged)
    return Merged(made.statistics.events, out.stat().st_size, file_checksum(out), *ahead)


def segment_properties(
    *,
    number: int,
    topic: TopicInfo,
    partition: tuple[int, str],
    schema: SchemaInfo,
    producers: Iterable[ProducerEntry],
    level: int,
    created_us: int,
    replaces: Sequence[int] = (),
) -> dict[str, str]:
    """The facts stored in a segment file, so that a manifest can be rebuilt. replaces: segments it was merged from."""
    facts = {
        "topic": topic.name, "topic_number": topic.number, "keys": topic.keys, "indexes": list(topic.indexes),
        "roll": topic.roll.to_json(), "retention": topic.retention.to_json(), "topic_created_us": topic.created_us,
        "partition": partition[0], "name": partition[1], "schema": schema.number, "family": schema.family,
        "magnitudes": dict(schema.magnitudes),
        "number": number, "level": level, "created_us": created_us, "replaces": list(replaces),
        "producers": [asdict(entry) for entry in producers],
    }  # fmt: skip
    return {PROPERTY: json.dumps(facts)}


class _Spans:
    """The bounds of the events in the added tables; there is at least one event."""

    def __init__(self) -> None:
        self.rows = 0
        self.first_index = self.last_index = self.min_timestamp = self.max_timestamp = 0
        self.min_space = self.max_space = b""
        self._spaces: set[bytes] | None = set()  # None: too many for a signature

    def add(self, table: pa.Table) -> None:
        if not len(table):
            return
        indexes = _bounds(table[RECORD_INDEX])
        times = _bounds(table["timestamp"].cast(pa.int64()))
        spaces = _bounds(table["space"])
        low, high = (key if isinstance(key, bytes) else key.encode() for key in spaces)
        first = not self.rows
        self.first_index = indexes[0] if first else min(indexes[0], self.first_index)
        self.last_index = indexes[1] if first else max(indexes[1], self.last_index)
        self.min_timestamp = times[0] if first else min(times[0], self.min_timestamp)
        self.max_timestamp = times[1] if first else max(times[1], self.max_timestamp)
        self.min_space = low if first else min(low, self.min_space)
        self.max_space = high if first else max(high, self.max_space)
        self.rows += len(table)
        if self._spaces is not None:
            found = pc.unique(table["space"]) if low != high else table["space"].slice(0, 1)
            if len(found) <= MAX_SPACES:
                self._spaces |= set(found.cast(pa.binary()).to_pylist())
            if len(found) > MAX_SPACES or len(self._spaces) > MAX_SPACES:
                self._spaces = None

    @property
    def signature(self) -> bytes:
        """The signature of the spaces; empty if there are too many."""
        return b"" if self._spaces is None else signature_of_spaces(self._spaces)


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def ahead_of_rows(segment: esformat.Segment) -> tuple[int, int]:
    """The minimum and maximum difference between a record index and its row number, in a segment that has events."""
    row = 0
    low, high = 2**63 - 1, -(2**63)
    for batch in segment.scan(columns=[RECORD_INDEX]).batches():
        ahead = batch.column(RECORD_INDEX).to_numpy(zero_copy_only=False) - np.arange(row, row + len(batch))
        low, high = min(low, int(ahead.min(initial=low))), max(high, int(ahead.max(initial=high)))
        row += len(batch)
    return low, high


def index_spans(place: Path | esformat.Source, info: SegmentInfo) -> list[tuple[int, int]]:
    """The record indexes [first, end) of a segment's events, in as few spans as possible; segments of one schema family
    can have gaps. Reads the file only if necessary. Raises CorruptSegmentError, OSError.
    """
    if info.rows == info.last_index + 1 - info.first_index:
        return [(info.first_index, info.last_index + 1)]
    with esformat.open(place, cache_bytes=0) as segment:
        indexes = np.sort(segment.scan(columns=[RECORD_INDEX]).to_table()[RECORD_INDEX].to_numpy())
    edges = np.flatnonzero(np.diff(indexes) > 1)
    firsts, ends = indexes[np.concatenate([[0], edges + 1])], indexes[np.concatenate([edges, [-1]])] + 1
    return list(zip(firsts.tolist(), ends.tolist(), strict=True))


def file_checksum(path: Path) -> int:
    """The xxh3-64 of a file's bytes."""
    hasher = hasher64()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            hasher.update(data)
    return int(hasher.intdigest())


def stored_facts(properties: Mapping[str, str]) -> dict[str, Any] | None:
    """The facts about topic and partition in a segment's properties; None if the aggregator did not write the file."""
    try:
        facts = json.loads(properties[PROPERTY])
    except (KeyError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None


def stored_producers(facts: Mapping[str, Any]) -> list[ProducerEntry]:
    """The batches of producers recorded in a segment. Raises KeyError, TypeError if the facts are incomplete."""
    return [ProducerEntry(**entry) for entry in facts["producers"]]


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A segment as described by its own file: the manifest's entry for it, its facts and its schema."""

    info: SegmentInfo
    facts: dict[str, Any]
    schema: EventSchema

    @property
    def replaces(self) -> list[int]:
        """Numbers of the segments that it was merged from."""
        return list(self.facts.get("replaces", ()))


def describe_segment(path: Path, number: int) -> FoundSegment:
    """Read a segment file completely and describe it.

    Raises CorruptSegmentError if it is damaged, or the aggregator did not write it under that number; OSError.
    """
    with esformat.open(path, cache_bytes=0) as segment:
        facts = stored_facts(segment.properties)
        if facts is None or facts.get("number") != number or RECORD_INDEX not in segment.schema.names:
            raise esformat.CorruptSegmentError("this segment was not written by the aggregator under this name")
        report = esformat.verify(path)
        if not report.ok:
            raise esformat.CorruptSegmentError(str(report.problems[0]), path=str(path))
        spans = _Spans()
        for batch in segment.scan(columns=["space", "timestamp", RECORD_INDEX]).batches():
            spans.add(pa.Table.from_batches([batch]))
        payload = pa.schema([field for field in segment.schema if field.name != RECORD_INDEX])
        try:
            schema = make_schema(payload, segment.indexes, binary_keys=facts["keys"] == "binary")
            stored_producers(facts)
            min_ahead, max_ahead = ahead_of_rows(segment)
            info = SegmentInfo(
                number=number, partition=facts["partition"], schema=facts["schema"], level=facts["level"],
                created_us=facts["created_us"], first_index=spans.first_index, last_index=spans.last_index,
                min_timestamp=spans.min_timestamp, max_timestamp=spans.max_timestamp, min_space=spans.min_space,
                max_space=spans.max_space, rows=spans.rows, size_bytes=segment.size_bytes,
                checksum=file_checksum(path), signature=spans.signature, min_ahead=min_ahead, max_ahead=max_ahead,
            )  # fmt: skip
        except (KeyError, TypeError) as error:
            raise esformat.CorruptSegmentError(f"its properties are incomplete: {error!r}") from None
    return FoundSegment(info, facts, schema)
