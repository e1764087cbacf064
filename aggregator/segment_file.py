"""One sealed segment file: written from a table, and told about in a SegmentInfo and in properties of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import esformat
from aggregator.checksum import hasher64
from aggregator.files import make_directory
from aggregator.model import RECORD_INDEX, ProducerEntry, SchemaInfo, SegmentInfo, TopicInfo
from esformat.parts import EventSchema

PROPERTY = "aggregator"
_READ_BYTES = 1 << 20


def arrow_schema(schema: EventSchema) -> pa.Schema:
    """The columns of a segment: those of the schema, and the record index."""
    return schema.arrow.append(pa.field(RECORD_INDEX, pa.int64(), nullable=False))


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
) -> SegmentInfo:
    """Write events to a segment that is complete, synced and under its name when this returns.

    tables: the events, with the columns of `arrow_schema`, in the order of their record indexes.
    Raises OSError, esformat.UsageError if the file exists; then there is no file.
    """
    make_directory(path.parent.parent)
    make_directory(path.parent)
    spans = _Spans()
    facts = {
        "topic": topic.name, "topic_number": topic.number, "keys": topic.keys, "indexes": list(topic.indexes),
        "roll": topic.roll.to_json(), "retention": topic.retention.to_json(), "topic_created_us": topic.created_us,
        "partition": partition[0], "name": partition[1], "schema": schema.number, "family": schema.family,
        "number": number, "level": level, "created_us": now_us, "producers": [asdict(entry) for entry in producers],
    }  # fmt: skip
    writer = esformat.create(
        path, indexes=schema.schema.indexes, schema=arrow_schema(schema.schema), keys=topic.keys,
        properties={PROPERTY: json.dumps(facts)}, threads=threads,
    )  # fmt: skip
    with writer:
        for table in tables:
            spans.add(table)
            writer.add_table(table)
    return SegmentInfo(
        number=number, partition=partition[0], schema=schema.number, first_index=spans.first_index,
        last_index=spans.last_index, min_timestamp=spans.min_timestamp, max_timestamp=spans.max_timestamp,
        min_space=spans.min_space, max_space=spans.max_space, rows=spans.rows, size_bytes=path.stat().st_size,
        checksum=file_checksum(path), level=level, created_us=now_us,
    )  # fmt: skip


class _Spans:
    """What lies between which bounds in the tables that were added; there is at least one event."""

    def __init__(self) -> None:
        self.rows = 0
        self.first_index = self.last_index = self.min_timestamp = self.max_timestamp = 0
        self.min_space = self.max_space = b""

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


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def file_checksum(path: Path) -> int:
    """The xxh3-64 of a file's bytes."""
    hasher = hasher64()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            hasher.update(data)
    return int(hasher.intdigest())


def stored_facts(properties: Mapping[str, str]) -> dict[str, Any] | None:
    """What a segment's properties say of its topic and partition; None for a file that is not the aggregator's."""
    try:
        facts = json.loads(properties[PROPERTY])
    except (KeyError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None
