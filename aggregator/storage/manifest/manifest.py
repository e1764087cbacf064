"""`Manifest`: queries and changes of the manifest, one transaction each."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import groupby
from operator import itemgetter

from aggregator.errors import TopicExistsError
from aggregator.model import (
    Cut,
    PartitionInfo,
    Problem,
    ProducerEntry,
    QuarantinedBatch,
    SchemaInfo,
    SegmentInfo,
    Tombstone,
    TopicInfo,
)
from aggregator.policy import Retention, Roll
from aggregator.storage.manifest import rows
from aggregator.storage.manifest.transactions import Transactions, count_change, last_change, survives_full_disk
from esformat.parts import EventSchema

LOST = "lost"
"""Of a catalog restored from a store: "1" if acknowledged data may be missing."""
IDENTITY, UNSYNCED, CLOCK, WRITTEN, STORE = "identity", "unsynced", "clock", "written", "store"
"""Facts of the catalog: its distinguishing identity, in hexadecimal; whether data acknowledged by the last run may be
lost, "1" or "0"; the state of the clock, as JSON; where the last run wrote its log, in the format of `reserve`; the
settings of its store, as JSON.
"""
_PARTITION = "SELECT number, topic, name, sealed_index FROM partitions WHERE topic = ? AND name = ?"
_KEYS = (
    "SELECT min_space FROM segments WHERE instr(min_space, ?)",
    "SELECT max_space FROM segments WHERE instr(max_space, ?)",
    "SELECT space FROM tombstones WHERE instr(space, ?)",
    "SELECT CAST(name AS BLOB) FROM topics WHERE instr(CAST(name AS BLOB), ?)",
    "SELECT CAST(name AS BLOB) FROM partitions WHERE instr(CAST(name AS BLOB), ?)",
    "SELECT CAST(producer AS BLOB) FROM producers WHERE instr(CAST(producer AS BLOB), ?)",
    "SELECT CAST(name AS BLOB) FROM streams WHERE instr(CAST(name AS BLOB), ?)",
    "SELECT CAST(value AS BLOB) FROM stream_tags WHERE instr(CAST(value AS BLOB), ?)",
)


@dataclass(slots=True)
class Contents:
    """The contents of the manifest at one moment; `change` is the number of the last transaction on segments.

    count: of all segments. retired: numbers of retired segments.
    """

    change: int
    topics: list[TopicInfo]
    schemas: list[SchemaInfo]
    partitions: list[PartitionInfo]
    segments: list[SegmentInfo]
    tombstones: list[Tombstone]
    retired: list[int]
    count: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A snapshot of the whole manifest, as an SQLite file without side files; and the files that it names."""

    image: bytes
    change: int
    segments: list[SegmentInfo]
    quarantined: list[QuarantinedBatch]


@dataclass(slots=True)
class Edit:
    """An atomic change of segments: added, retired, and what is sealed or set aside with it."""

    added: Sequence[SegmentInfo] = ()
    retired: Sequence[int] = ()
    reason: str = ""
    sealed: Mapping[int, int] = field(default_factory=dict)
    producers: Sequence[ProducerEntry] = ()
    tombstones: Sequence[Tombstone] = ()
    fulfilled: Sequence[tuple[int, bytes, Cut]] = ()
    quarantined: Sequence[QuarantinedBatch] = ()
    unquarantined: Iterable[int] = ()


class Manifest(Transactions):
    """The manifest of a catalog. Thread-safe.

    Every method raises ManifestFailedError if SQLite cannot do it now, CorruptManifestError if the manifest is damaged.
    """

    # ------------------------------------------------------------ facts of the catalog

    def get(self, key: str) -> str | None:
        """A fact of the catalog; None if it is not stored."""
        with self.reading() as db:
            row = db.execute("SELECT value FROM catalog WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    @survives_full_disk
    def put(self, key: str, value: str) -> None:
        """Store a fact of the catalog."""
        with self.writing(*["catalog"] * (key in (IDENTITY, UNSYNCED, STORE))) as db:
            db.execute("INSERT OR REPLACE INTO catalog VALUES (?, ?)", (key, value))

    # ------------------------------------------------------------ reading

    def load(self, since: int = -1) -> Contents:
        """Everything that scans need; for segments and retired ones, only changes after the change `since`."""
        with self.reading() as db:
            return Contents(
                change=last_change(db),
                topics=rows.topics(db),
                schemas=rows.schemas(db),
                partitions=rows.partitions(db),
                segments=rows.segments(db, since),
                retired=[row[0] for row in db.execute("SELECT number FROM retired WHERE change > ?", (since,))],
                count=int(db.execute("SELECT count(*) FROM segments").fetchone()[0]),
                tombstones=rows.tombstones(db),
            )

    def copy(self) -> Copy:
        """A snapshot of all of it, to store elsewhere."""
        with self.reading() as db:
            change = last_change(db)
            image = bytearray(db.serialize())
            image[18:20] = b"\1\1"  # its format versions: a file without a write-ahead log
            return Copy(bytes(image), change, rows.segments(db, -1), rows.quarantined(db))

    def change(self) -> int:
        """The number of the last change of segments, topics or tombstones; cheap, for readers that poll."""
        with self.reading() as db:
            return last_change(db)

    def free(self, partition: int) -> tuple[int, int]:
        """A record index above all sealed ones of a partition, and a number above those of all segments."""
        with self.reading() as db:
            (index,) = db.execute(
                "SELECT max(p.sealed_index, ifnull(max(s.last_index) + 1, 0), "
                "ifnull((SELECT max(end_index) FROM holes WHERE partition = p.number), 0)) "
                "FROM partitions p LEFT JOIN segments s ON s.partition = p.number WHERE p.number = ?",
                (partition,),
            ).fetchone()
            (number,) = db.execute(
                "SELECT ifnull(max(number), 0) + 1 FROM "
                "(SELECT max(number) AS number FROM segments UNION ALL SELECT max(number) FROM retired)"
            ).fetchone()
        return int(index), int(number)

    def producers(self) -> list[ProducerEntry]:
        """Batches of producers that are in segments."""
        with self.reading() as db:
            return rows.producers(db)

    def retired(self) -> list[tuple[int, int, int]]:
        """Retired segments whose files or objects may still exist: number, bytes, change."""
        with self.reading() as db:
            return list(db.execute("SELECT number, size_bytes, change FROM retired ORDER BY change, number"))

    def retired_files(self) -> list[tuple[int, int, int]]:
        """Retired segments whose files may still be on disk: number, bytes, change."""
        with self.reading() as db:
            return list(
                db.execute(
                    "SELECT number, r.size_bytes, change FROM retired r LEFT JOIN stored USING (number) "
                    "WHERE ifnull(local, 1) ORDER BY change, number"
                )
            )

    def quarantined(self) -> list[QuarantinedBatch]:
        """Batches that could not be sealed, in the order in which they were set aside."""
        with self.reading() as db:
            return rows.quarantined(db)

    def keys_with(self, part: bytes) -> set[bytes]:
        """Every key and name that contains these bytes and is longer."""
        with self.reading() as db:
            found = {bytes(row[0]) for query in _KEYS for row in db.execute(query, (part,))}
        return found - {part}

    def problems(self) -> list[Problem]:
        """The recorded problems, oldest first."""
        with self.reading() as db:
            found = db.execute("SELECT subject, message, action, found_us FROM problems ORDER BY number")
            return [Problem(*row) for row in found]

    def streams(self) -> tuple[list[tuple[int, str, tuple[tuple[str, str], ...]]], dict[int, int]]:
        """Topic, name and tags of each stream, in insertion order, tags sorted by name; and `stream_marks`."""
        with self.reading() as db:
            rows = db.execute("SELECT stream, name, value FROM stream_tags ORDER BY stream, name")
            tags = {number: tuple(tag[1:] for tag in mine) for number, mine in groupby(rows, itemgetter(0))}
            streams = db.execute("SELECT number, topic, name FROM streams ORDER BY number")
            return [(topic, name, tags.get(number, ())) for number, topic, name in streams], _stream_marks(db)

    def stream_marks(self) -> dict[int, int]:
        """For each partition, the record index below which all streams are known."""
        with self.reading() as db:
            return _stream_marks(db)

    # ------------------------------------------------------------ writing

    def keep_streams(
        self,
        added: Iterable[tuple[int, str, Mapping[str, str]]],
        removed: Iterable[tuple[int, str]],
        marks: Mapping[int, int],
    ) -> None:
        """Add streams (topic, name, tags), remove others (topic, name), and set marks of partitions."""
        with self.writing() as db:
            db.executemany("DELETE FROM streams WHERE topic = ? AND name = ?", removed)
            for topic, name, tags in added:
                place = db.execute("INSERT OR IGNORE INTO streams (topic, name) VALUES (?, ?)", (topic, name))
                if place.rowcount:
                    db.executemany(
                        "INSERT INTO stream_tags VALUES (?, ?, ?)", [(place.lastrowid, *tag) for tag in tags.items()]
                    )
            db.executemany("INSERT OR REPLACE INTO stream_marks VALUES (?, ?)", marks.items())

    def add_topic(self, topic: TopicInfo) -> TopicInfo:
        """Add a topic and assign its number. Raises TopicExistsError if its name is taken."""
        return self.make_topic(topic, None)[0]

    def make_topic(self, topic: TopicInfo, schema: EventSchema | None) -> tuple[TopicInfo, SchemaInfo | None]:
        """Add a topic, with its first schema if there is one. Raises TopicExistsError if the topic's name is taken."""
        with self.writing("topic", "schema") as db:
            if not topic.deleted:
                self._check_name(db, topic.name)
            number = rows.put_topic(db, topic)
            given = None if schema is None else rows.put_schema(db, SchemaInfo(0, number, 0, schema))
            count_change(db)
        return replace(topic, number=number), given

    def _check_name(self, db: sqlite3.Connection, name: str) -> None:
        if db.execute("SELECT 1 FROM topics WHERE name = ? AND deleted = 0", (name,)).fetchone():
            raise TopicExistsError(
                f"the topic {name!r} exists", path=str(self.path.parent), hint="choose another name, or rename that one"
            )

    def rename_topics(self, names: Mapping[int, str]) -> int:
        """Rename topics, by number, in one transaction; return the number of the change. Raises TopicExistsError."""
        with self.writing("topic") as db:
            for number in names:  # so that two can swap names; no other topic's name is not UTF-8
                db.execute("UPDATE topics SET name = CAST(x'ff' AS TEXT) || number WHERE number = ?", (number,))
            for number, name in names.items():
                self._check_name(db, name)
                db.execute("UPDATE topics SET name = ? WHERE number = ?", (name, number))
            return count_change(db)

    @survives_full_disk
    def delete_topic(self, number: int, sealed: Mapping[int, int]) -> int:
        """Delete a topic, and retire its segments; return the number of the change.

        sealed: for each of its partitions, the record index that its next event would have had.
        """
        with self.writing("topic", "schema", "partition", "tombstone") as db:
            change = count_change(db)
            rows.delete_topic(db, number, sealed, change)
        return change

    @survives_full_disk
    def set_policy(self, topic: int, roll: Roll, retention: Retention) -> None:
        """Change the sealing and retention policies of a topic."""
        with self.writing("topic") as db:
            db.execute(
                "UPDATE topics SET roll = ?, retention = ? WHERE number = ?",
                (json.dumps(roll.to_json()), json.dumps(retention.to_json()), topic),
            )
            count_change(db)

    def add_schema(self, info: SchemaInfo, base: SchemaInfo | None = None) -> SchemaInfo:
        """Add a schema; family 0 begins a new family, number 0 assigns the next one. base: a schema that it extends."""
        with self.writing("schema") as db:
            given = rows.put_schema(db, info, base)
            count_change(db)
        return given

    def add_partition(self, topic: int, name: str, number: int | None = None) -> PartitionInfo:
        """Add a partition, or return the existing one of that name."""
        with self.writing() as db:
            db.execute(
                "INSERT INTO partitions (number, topic, name) VALUES (?, ?, ?) ON CONFLICT (topic, name) DO NOTHING",
                (number, topic, name),
            )
            row = db.execute(_PARTITION, (topic, name)).fetchone()
            count_change(db)
        return PartitionInfo(*row)

    def reserve(self, ends: Mapping[int, int]) -> None:
        """Allow record indexes below `ends` to be assigned before the log is synced."""
        with self.writing("partition") as db:
            db.executemany(
                "UPDATE partitions SET reserved_index = max(reserved_index, ?) WHERE number = ?",
                [(end, number) for number, end in ends.items()],
            )

    def skip_indexes(self, holes: Mapping[int, tuple[int, int]]) -> None:
        """Record [first, end) by partition as record indexes that are never assigned, and clear all reservations."""
        with self.writing("partition") as db:
            for number, (first, end) in holes.items():
                grown = db.execute(
                    "UPDATE holes SET end_index = ? WHERE partition = ? AND end_index = ?", (end, number, first)
                )
                if not grown.rowcount:
                    db.execute("INSERT INTO holes VALUES (?, ?, ?)", (number, first, end))
            if holes:
                count_change(db)
            db.execute("UPDATE partitions SET reserved_index = 0 WHERE reserved_index != 0")

    def add_holes(self, partition: int, holes: Iterable[tuple[int, int]]) -> None:
        """Restore holes that the manifest has lost."""
        with self.writing("partition") as db:
            db.executemany("INSERT OR REPLACE INTO holes VALUES (?, ?, ?)", [(partition, *hole) for hole in holes])

    @survives_full_disk
    def apply(self, edit: Edit) -> int:
        """Apply a change of segments atomically; return the number of the change."""
        with self.writing() as db:
            change = count_change(db)
            self._changed |= _facts_changed(db, edit)
            for segment in edit.added:
                rows.put_segment(db, segment, change)
            for number in edit.retired:
                db.execute(
                    "INSERT INTO retired SELECT number, size_bytes, ?, ? FROM segments WHERE number = ?",
                    (edit.reason, change, number),
                )
                db.execute("DELETE FROM segments WHERE number = ?", (number,))
            for partition, index in edit.sealed.items():  # after a rebuild, batches are sealed again
                db.execute(
                    "DELETE FROM quarantine WHERE partition = ? AND last_index < ? AND first_index >= "
                    "(SELECT sealed_index FROM partitions WHERE number = ?)",
                    (partition, index, partition),
                )
                db.execute("UPDATE partitions SET sealed_index = ? WHERE number = ?", (index, partition))
            db.executemany("DELETE FROM quarantine WHERE number = ?", [(number,) for number in edit.unquarantined])
            rows.put_quarantined(db, edit.quarantined)
            rows.put_producers(db, edit.producers)
            rows.put_tombstones(db, edit.tombstones, change)
            db.executemany(
                "DELETE FROM tombstones WHERE partition = ? AND space = ? AND end_index = ? AND time_us = ? "
                "AND tie_index = ?",
                [(partition, space, *astuple(cut)) for partition, space, cut in edit.fulfilled],
            )
        return change

    def count_from(self, change: int) -> None:
        """Raise the number of the last change to at least this."""
        with self.writing() as db:
            db.execute("UPDATE changes SET number = max(number, ?)", (change,))

    @survives_full_disk
    def commit_empty(self) -> None:
        """Commit an empty change after a failed one, so that no crash brings the failed one back. Data that it wrote
        but did not sync counts when the file is reopened, unless another change follows it. Files that it names must be
        kept until then.
        """
        with self.writing() as db:
            count_change(db)

    @survives_full_disk
    def forget_files(self, numbers: Iterable[int]) -> None:
        """Record that the files of retired segments are deleted.

        Those with an object in the store stay retired until it is deleted.
        """
        gone = [(number,) for number in numbers]
        with self.writing() as db:
            db.executemany("UPDATE stored SET local = 0 WHERE number = ?", gone)
            db.executemany("DELETE FROM retired WHERE number = ? AND number NOT IN (SELECT number FROM stored)", gone)

    @survives_full_disk
    def forget_objects(self, numbers: Iterable[int]) -> None:
        """Record that neither files nor objects of these retired segments remain."""
        gone = [(number,) for number in numbers]
        with self.writing() as db:
            db.executemany("DELETE FROM retired WHERE number = ?", gone)
            db.executemany("DELETE FROM stored WHERE number = ?", gone)

    def correct_segment(self, segment: SegmentInfo) -> None:
        """Replace a segment whose file was replaced by another under its number."""
        with self.writing("partition") as db:
            change = count_change(db)
            db.execute("DELETE FROM segments WHERE number = ?", (segment.number,))
            db.execute("DELETE FROM stored WHERE number = ?", (segment.number,))  # the object is of the old file
            rows.put_segment(db, segment, change)

    @survives_full_disk
    def forget_problems(self, problems: Iterable[Problem]) -> None:
        """Delete problems that are no longer relevant."""
        with self.writing() as db:
            db.executemany(
                "DELETE FROM problems WHERE subject = ? AND message = ?", [(p.subject, p.message) for p in problems]
            )

    def add_problem(self, problem: Problem) -> None:
        """Record a problem, unless the same one is recorded already."""
        with self.writing() as db:
            same = (problem.subject, problem.message)
            if db.execute("SELECT 1 FROM problems WHERE subject = ? AND message = ?", same).fetchone():
                return
            db.execute(
                "INSERT INTO problems (subject, message, action, found_us) VALUES (?, ?, ?, ?)", astuple(problem)
            )


def _stream_marks(db: sqlite3.Connection) -> dict[int, int]:
    return dict(db.execute("SELECT partition, end_index FROM stream_marks"))


def _facts_changed(db: sqlite3.Connection, edit: Edit) -> set[str]:
    """Kinds of facts that a pending edit changes, or that segments no longer show after it."""
    changed: set[str] = set()
    if edit.tombstones or edit.fulfilled:
        changed |= {"tombstone", "partition"}  # so that the backup names the partitions of all tombstones
    if edit.retired or (edit.sealed and not edit.added):  # may have notes of pipes
        changed.add("pipe")
    going: dict[int, int] = dict.fromkeys(edit.sealed, 0)
    for number in edit.retired:
        for partition, end in db.execute("SELECT partition, last_index + 1 FROM segments WHERE number = ?", (number,)):
            going[partition] = max(end, going.get(partition, 0))
    for partition, end in going.items():
        (sealed,) = db.execute("SELECT sealed_index FROM partitions WHERE number = ?", (partition,)).fetchone()
        end_index = max((added.last_index + 1 for added in edit.added if added.partition == partition), default=0)
        if end_index < edit.sealed.get(partition, sealed if end >= sealed else 0):
            changed.add("partition")
    return changed
