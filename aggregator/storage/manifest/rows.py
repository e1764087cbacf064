"""Convert rows of the manifest's tables to values and back, within the caller's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from functools import lru_cache
from typing import Any

from aggregator.model import (
    PartitionInfo,
    ProducerEntry,
    QuarantinedBatch,
    SchemaInfo,
    SegmentInfo,
    Tombstone,
    TopicInfo,
)
from aggregator.policy import Retention, Roll
from esformat.parts import EventSchema

CACHED_SETTINGS = 256
"""Cache size: this many different schemas and topic settings are created only once, however many topics share them."""
_SEGMENTS = """
    SELECT number, partition, schema, first_index, last_index, min_timestamp, max_timestamp, min_space, max_space, rows,
        size_bytes, checksum, level, created_us, signature, min_ahead, max_ahead
    FROM segments WHERE change > ? ORDER BY number
"""
_ADD_SEGMENT = """
    INSERT INTO segments (number, partition, schema, first_index, last_index, min_timestamp, max_timestamp, min_space,
        max_space, rows, size_bytes, checksum, level, created_us, signature, min_ahead, max_ahead, change)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD_TOPIC = """
    INSERT INTO topics (number, name, keys, indexes, roll, retention, created_us, deleted)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_SCHEMAS = "SELECT number, topic, family, base, columns, magnitudes FROM schemas"


def topics(db: sqlite3.Connection) -> list[TopicInfo]:
    """Every topic, including deleted ones, in order of creation."""
    return [topic_of(row) for row in topic_rows(db)]


def topic_rows(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """The rows of `topics`, unconverted."""
    return db.execute(
        "SELECT number, name, keys, indexes, roll, retention, created_us, deleted FROM topics ORDER BY number"
    ).fetchall()


def topic_of(row: tuple[Any, ...]) -> TopicInfo:
    """Convert one of these rows."""
    number, name, keys, indexes, roll, retention, created_us, deleted = row
    return TopicInfo(number, name, keys, *_decoded_settings(indexes, roll, retention), created_us, bool(deleted))


@lru_cache(CACHED_SETTINGS)
def _decoded_settings(indexes: str, roll: str, retention: str) -> tuple[tuple[str, ...], Roll, Retention]:
    return tuple(json.loads(indexes)), Roll(**json.loads(roll)), Retention(**json.loads(retention))


def put_topic(db: sqlite3.Connection, topic: TopicInfo) -> int:
    """Add a topic; return its number."""
    given = db.execute(
        _ADD_TOPIC,
        (
            topic.number or None,
            topic.name,
            topic.keys,
            json.dumps(topic.indexes),
            json.dumps(topic.roll.to_json()),
            json.dumps(topic.retention.to_json()),
            topic.created_us,
            topic.deleted,
        ),
    ).lastrowid
    assert given is not None
    return given


def schemas(db: sqlite3.Connection) -> list[SchemaInfo]:
    """Every schema, in the order of their numbers."""
    found: dict[int, SchemaInfo] = {}
    for row in db.execute(f"{_SCHEMAS} ORDER BY number"):
        found[row[0]] = _schema_of(row, found)
    return list(found.values())


def newest_schema_rows(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """The newest schema of each family, by number, as unconverted rows."""
    newest = "number IN (SELECT max(number) FROM schemas GROUP BY family)"
    return db.execute(f"{_SCHEMAS} WHERE {newest} ORDER BY number").fetchall()


def schema_of(db: sqlite3.Connection, row: tuple[Any, ...]) -> SchemaInfo:
    """Convert one of these rows."""
    chain = [row]
    while chain[-1][3] is not None:
        chain.append(db.execute(f"{_SCHEMAS} WHERE number = ?", (chain[-1][3],)).fetchone())
    found: dict[int, SchemaInfo] = {}
    for row in reversed(chain):
        found[row[0]] = _schema_of(row, found)
    return found[row[0]]


def _schema_of(row: tuple[Any, ...], known: Mapping[int, SchemaInfo]) -> SchemaInfo:
    """Convert a row. known: includes the schema that this one extends."""
    number, topic, family, base, columns, magnitudes = row
    schema = _columns_of(columns)
    if base is not None:
        schema = EventSchema((*known[base].schema.fields, *schema.fields), schema.binary_keys)
    return SchemaInfo(number, topic, family, schema, _magnitudes(magnitudes))


@lru_cache(CACHED_SETTINGS)
def _columns_of(columns: str) -> EventSchema:
    return EventSchema.from_json(json.loads(columns))


@lru_cache(CACHED_SETTINGS)
def _magnitudes(stored: str) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(json.loads(stored).items()))


def delete_topic(db: sqlite3.Connection, number: int, sealed: Mapping[int, int], change: int) -> None:
    """Retire a topic's segments, and delete everything else of it except its number and those of its partitions.

    sealed: for each partition, the record index that its next event would have had.
    """
    mine = "partition IN (SELECT number FROM partitions WHERE topic = ?)"
    db.execute(
        f"INSERT INTO retired SELECT number, size_bytes, 'deleted', ? FROM segments WHERE {mine}",  # noqa: S608
        (change, number),
    )
    for table in ("segments", "quarantine", "producers", "tombstones", "stream_marks", "holes"):
        db.execute(f"DELETE FROM {table} WHERE {mine}", (number,))  # noqa: S608  constant
    for table in ("streams", "schemas"):
        db.execute(f"DELETE FROM {table} WHERE topic = ?", (number,))  # noqa: S608  constant
    for name in ("CAST(x'ff' AS TEXT) || number", "CAST(number AS TEXT)"):  # first one that no other partition can have
        db.execute(f"UPDATE partitions SET name = {name}, reserved_index = 0 WHERE topic = ?", (number,))  # noqa: S608
    db.executemany("UPDATE partitions SET sealed_index = ? WHERE number = ?", [(end, n) for n, end in sealed.items()])
    db.execute(
        "UPDATE topics SET name = '', indexes = '[]', roll = ?, retention = ?, deleted = 1 WHERE number = ?",
        (json.dumps(Roll().to_json()), json.dumps(Retention().to_json()), number),
    )


def put_schema(db: sqlite3.Connection, info: SchemaInfo, base: SchemaInfo | None = None) -> SchemaInfo:
    """Add a schema. Family 0 begins a new family; number 0 assigns the next number.

    base: an added schema whose columns this one begins with: only the other columns are stored.
    """
    added = info.schema
    if base is not None:
        count = len(base.schema.fields)
        if added.fields[:count] != base.schema.fields:
            raise ValueError(f"the columns do not begin with those of schema {base.number}")
        added = EventSchema(added.fields[count:], added.binary_keys)
    given = db.execute(
        "INSERT INTO schemas (number, topic, family, base, columns, magnitudes) VALUES (?, ?, ?, ?, ?, ?)",
        (
            info.number or None,
            info.topic,
            info.family,
            None if base is None else base.number,
            json.dumps(added.to_json()),
            json.dumps(dict(info.magnitudes)),
        ),
    ).lastrowid
    assert given is not None
    if not info.family:
        db.execute("UPDATE schemas SET family = number WHERE number = ?", (given,))
    return replace(info, number=given, family=info.family or given)


def partitions(db: sqlite3.Connection) -> list[PartitionInfo]:
    """Every partition, in order of creation."""
    return [PartitionInfo(*row) for row in partition_rows(db)]


def partition_rows(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """The rows of `partitions`, unconverted."""
    holes: dict[int, list[tuple[int, int]]] = {}
    for number, first, end in db.execute("SELECT * FROM holes ORDER BY partition, first_index"):
        holes.setdefault(number, []).append((first, end))
    found = db.execute("SELECT number, topic, name, sealed_index, reserved_index FROM partitions ORDER BY number")
    return [(*row, tuple(holes.get(row[0], ()))) for row in found]


def segments(db: sqlite3.Connection, since: int) -> list[SegmentInfo]:
    """Segments added after the change `since`."""
    return [_segment(row) for row in db.execute(_SEGMENTS, (since,))]


def _segment(row: Sequence[Any]) -> SegmentInfo:
    return SegmentInfo._make((*row[:11], int.from_bytes(row[11], "little"), *row[12:]))


def put_segment(db: sqlite3.Connection, segment: SegmentInfo, change: int) -> None:
    """Add a segment."""
    checksum = segment.checksum.to_bytes(8, "little")
    db.execute(_ADD_SEGMENT, (*segment[:11], checksum, *segment[12:], change))


def quarantined(db: sqlite3.Connection) -> list[QuarantinedBatch]:
    """Batches that could not be sealed, by number."""
    found = db.execute(
        "SELECT number, partition, schema, first_index, last_index, min_timestamp, max_timestamp, rows, size_bytes, "
        "checksum, created_us, reason FROM quarantine ORDER BY number"
    )
    facts = ([*row[:9], int.from_bytes(row[9], "little"), *row[10:]] for row in found)
    return [QuarantinedBatch(*values) for values in facts]


def put_quarantined(db: sqlite3.Connection, batches: Sequence[QuarantinedBatch]) -> None:
    """Add batches, replacing those with the same events: record indexes are never assigned twice."""
    for batch in batches:
        db.execute(
            "DELETE FROM quarantine WHERE partition = ? AND first_index <= ? AND last_index >= ?",
            (batch.partition, batch.last_index, batch.first_index),
        )
        values = list(astuple(batch))
        values[9] = batch.checksum.to_bytes(8, "little")
        db.execute("INSERT INTO quarantine VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def tombstones(db: sqlite3.Connection) -> list[Tombstone]:
    """Everything that is hidden and not yet gone from disk."""
    rows = db.execute("SELECT partition, space, end_index, created_us, time_us, tie_index FROM tombstones")
    return [Tombstone(*row) for row in rows]


def put_tombstones(db: sqlite3.Connection, stones: Sequence[Tombstone], change: int) -> None:
    """Add tombstones, replacing those that they cover."""
    db.executemany(
        "DELETE FROM tombstones WHERE partition = ? AND space = ? AND end_index <= ? "
        "AND (time_us, tie_index) <= (?, ?)",
        [(stone.partition, stone.space, *astuple(stone.cut)) for stone in stones],
    )
    db.executemany(
        "INSERT INTO tombstones (partition, space, end_index, created_us, time_us, tie_index, change) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*astuple(stone), change) for stone in stones],
    )


def producers(db: sqlite3.Connection) -> list[ProducerEntry]:
    """Batches of producers that are in segments."""
    found = db.execute(
        "SELECT partition, producer, sequence, fingerprint, first_index, count, note FROM producers "
        "ORDER BY partition, producer, sequence"
    )
    return [
        ProducerEntry(partition, producer, sequence, int.from_bytes(check, "little"), first, count, note)
        for partition, producer, sequence, check, first, count, note in found
    ]


def put_producers(db: sqlite3.Connection, entries: Sequence[ProducerEntry]) -> None:
    """Store the newest batches of each producer in `entries`; delete its older ones."""
    db.executemany(
        "INSERT OR REPLACE INTO producers VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (e.partition, e.producer, e.sequence, e.fingerprint.to_bytes(8, "little"), e.first_index, e.count, e.note)
            for e in entries
        ],
    )
    oldest: dict[tuple[int, str], int] = {}
    for entry in entries:
        key = (entry.partition, entry.producer)
        oldest[key] = min(entry.sequence, oldest.get(key, entry.sequence))
    db.executemany(
        "DELETE FROM producers WHERE partition = ? AND producer = ? AND sequence < ?",
        [(*key, sequence) for key, sequence in oldest.items()],
    )
