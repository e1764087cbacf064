"""`Manifest`: every question to the manifest and every change of it. One transaction each; values in and out."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Any, Concatenate, ParamSpec, TypeVar

from aggregator.base.forked import Owner, fork_between, leave_when_forked, never_free
from aggregator.errors import CatalogLockedError, TopicExistsError
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
from aggregator.storage.files.layout import manifest_files, same_file
from aggregator.storage.manifest import rows
from aggregator.storage.manifest.database import errors_of, open_database
from esformat.parts import EventSchema

IDENTITY, UNSYNCED, CLOCK, WRITTEN = "identity", "unsynced", "clock", "written"
"""Facts of the catalog: what tells it from others, in hexadecimal; whether what the last run acknowledged may be gone,
"1" or "0"; what is believed of the clock, as JSON; where the last run wrote its log, as `reserve` tells it.
"""
_EPOCH = "epoch"  # how often the catalog was opened for writing
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
    """What the manifest holds at one moment; `change` is the number of the last transaction on segments.

    count: of all segments. retired: numbers of segments that went.
    """

    change: int
    topics: list[TopicInfo]
    schemas: list[SchemaInfo]
    partitions: list[PartitionInfo]
    segments: list[SegmentInfo]
    tombstones: list[Tombstone]
    retired: list[int]
    count: int


@dataclass(slots=True)
class Edit:
    """A change of segments that happens as one: what comes, what goes, and what is sealed or set aside with it."""

    added: Sequence[SegmentInfo] = ()
    retired: Sequence[int] = ()
    reason: str = ""
    sealed: Mapping[int, int] = field(default_factory=dict)
    producers: Sequence[ProducerEntry] = ()
    tombstones: Sequence[Tombstone] = ()
    fulfilled: Sequence[tuple[int, bytes, Cut]] = ()
    quarantined: Sequence[QuarantinedBatch] = ()
    unquarantined: Iterable[int] = ()


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _makes_room(method: Callable[Concatenate[Manifest, _P], _T]) -> Callable[Concatenate[Manifest, _P], _T]:
    """A change that a full disk must not prevent."""

    @wraps(method)
    def helped(self: Manifest, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        done: _T = self._help(lambda: method(self, *args, **kwargs))
        return done

    return helped


class Manifest:
    """The manifest of a catalog. Safe to share between threads.

    Every method raises ManifestFailedError where SQLite cannot do it now, CorruptManifestError where it is damaged.
    """

    def __init__(
        self, path: Path, *, read_only: bool = False, help: Callable[[Callable[[], Any]], Any] = lambda work: work()
    ) -> None:
        """Open the manifest at `path`; a writer makes it where it is absent. help: does what a full disk must not
        prevent, and does it again when it has made room.
        """
        self.path, self._help = path, help
        self._owner = Owner(path.parent)
        self._connection = open_database(path, read_only=read_only)
        leave_when_forked(self)
        self._inode = path.stat().st_ino
        self._lock = Lock()
        fork_between(self._lock)
        self._epoch: int | None = None
        self._files: dict[Path, os.stat_result] = {}
        self.size_bytes = 0
        """Of the file and what SQLite keeps beside it, after the last change."""
        self.facts_bytes = 0
        """Of the copy of some of its facts that lies beside it."""
        self._changed: set[str] = set()
        self._unscrubbed = 0
        self.keep_facts: Callable[[], None] = lambda: None
        """Called before somebody is told that a change was made which segments and log cannot tell of, and before files
        go that could tell; a catalog that is open for writing has its own. It never raises."""
        self.note_change: Callable[[int], None] = lambda change: None
        """Called with the number of the last change after each transaction, so that readers know what they must see. It
        never raises."""
        self._look()

    def follow(self) -> bool:
        """Where another file has come in the place of the one that is read, as when it was rebuilt, read that from now
        on; whether it has. Raises FileNotFoundError.
        """
        with self._lock:
            if self.path.stat().st_ino == self._inode:
                return False
            before, self._connection = self._connection, open_database(self.path, read_only=True)
            self._inode = self.path.stat().st_ino
            before.close()
            return True

    def close(self) -> None:
        """Let go of the file."""
        self._owner.check()
        with self._lock, errors_of(self.path):
            self._connection.close()

    def leave_to_parent(self) -> None:
        """In a forked process: not even closing the connection is safe."""
        never_free(self._connection)

    # ------------------------------------------------------------ who writes

    def claim(self) -> None:
        """Raise the epoch: from now on this one writes, and nothing that was opened before changes anything."""
        with self._writing() as db:
            self._epoch = _epoch(db) + 1
            db.execute("INSERT OR REPLACE INTO catalog VALUES (?, ?)", (_EPOCH, str(self._epoch)))
        for path in manifest_files(self.path)[:2]:  # SQLite keeps both as long as it has them open
            with contextlib.suppress(FileNotFoundError):
                self._files[path] = path.stat()

    def is_mine(self) -> bool:
        """Whether nobody has opened the catalog for writing since `claim`, and its manifest is still the same files."""
        with self._reading() as db:
            return self._is_claimed(db)

    def check_mine(self) -> None:
        """Before files go that are known by their names only. Raises CatalogLockedError."""
        if not self.is_mine():
            raise self._lost()

    def _is_claimed(self, db: sqlite3.Connection) -> bool:
        if self._epoch is None:
            return True
        return _epoch(db) == self._epoch and all(same_file(*known) for known in self._files.items())

    def _lost(self) -> CatalogLockedError:
        return CatalogLockedError(
            "this process must not write any more: another one has opened the catalog for writing, or its manifest was "
            "deleted or replaced",
            path=str(self.path.parent),
            hint="close it here, and open it again in the one process that writes",
            holder={},
        )

    def _look(self) -> None:
        size = 0
        for path in manifest_files(self.path):
            with contextlib.suppress(OSError):  # a change is made, whether or not its size can be told
                size += path.stat().st_size
        self.size_bytes = size

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._owner.check()
        with self._lock, errors_of(self.path):
            self._begin("BEGIN")
            try:
                yield self._connection
            finally:
                self._connection.execute("ROLLBACK")

    def _begin(self, how: str) -> None:
        if self._connection.in_transaction:  # an interrupt came before it could be ended
            self._connection.execute("ROLLBACK")
        self._connection.execute(how)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self._owner.check()
        with self._lock, errors_of(self.path):
            self._begin("BEGIN IMMEDIATE")
            try:
                if not self._is_claimed(self._connection):
                    raise self._lost()
                yield self._connection
                self._connection.execute("COMMIT")
                self._look()
                self.note_change(_change(self._connection))
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def take_changed(self) -> set[str]:
        """Kinds of facts, as `aggregator.storage.manifest.facts` has them, that changed since this was asked last."""
        with self._lock:
            changed, self._changed = self._changed, set()
        return changed

    def give_back_changed(self, kinds: Iterable[str]) -> None:
        """They were taken, and could not be kept."""
        with self._lock:
            self._changed.update(kinds)

    # ------------------------------------------------------------ facts of the catalog

    def get(self, key: str) -> str | None:
        """A fact of the catalog."""
        with self._reading() as db:
            row = db.execute("SELECT value FROM catalog WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    @_makes_room
    def put(self, key: str, value: str) -> None:
        """Keep a fact of the catalog."""
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO catalog VALUES (?, ?)", (key, value))
            if key in (IDENTITY, UNSYNCED):
                self._changed.add("catalog")

    # ------------------------------------------------------------ reading

    def load(self, since: int = -1) -> Contents:
        """Everything that scans need; of segments and retired ones only what changed after the change `since`."""
        with self._reading() as db:
            return Contents(
                change=_change(db),
                topics=rows.topics(db),
                schemas=rows.schemas(db),
                partitions=rows.partitions(db),
                segments=rows.segments(db, since),
                retired=[row[0] for row in db.execute("SELECT number FROM retired WHERE change > ?", (since,))],
                count=int(db.execute("SELECT count(*) FROM segments").fetchone()[0]),
                tombstones=rows.tombstones(db),
            )

    def change(self) -> int:
        """The number of the last change of segments, topics or tombstones: cheap to ask, for readers that follow."""
        with self._reading() as db:
            return _change(db)

    def free(self, partition: int) -> tuple[int, int]:
        """A record index above all that are sealed in a partition, and a number above those of all segments."""
        with self._reading() as db:
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
        """Batches of producers that lie in segments."""
        with self._reading() as db:
            return rows.producers(db)

    def retired(self) -> list[tuple[int, int, int]]:
        """Segments that are retired and whose files may still be there: number, bytes, change."""
        with self._reading() as db:
            return list(db.execute("SELECT number, size_bytes, change FROM retired ORDER BY change, number"))

    def quarantined(self) -> list[QuarantinedBatch]:
        """Batches that could not be sealed, in the order in which they were set aside."""
        with self._reading() as db:
            return rows.quarantined(db)

    def keys_with(self, part: bytes) -> set[bytes]:
        """Every key and name in which these bytes stand, and more than they."""
        with self._reading() as db:
            found = {bytes(row[0]) for query in _KEYS for row in db.execute(query, (part,))}
        return found - {part}

    def problems(self) -> list[Problem]:
        """What was found wrong, oldest first."""
        with self._reading() as db:
            found = db.execute("SELECT subject, message, action, found_us FROM problems ORDER BY number")
            return [Problem(*row) for row in found]

    def streams(self) -> tuple[dict[int, list[dict[str, str]]], dict[int, int]]:
        """The tags of each stream, by topic, and for each partition the record index below which all are known."""
        with self._reading() as db:
            tags: dict[int, dict[str, str]] = {}
            topics: dict[int, list[dict[str, str]]] = {}
            for number, topic in db.execute("SELECT number, topic FROM streams ORDER BY number"):
                tags[number] = {}
                topics.setdefault(topic, []).append(tags[number])
            for number, name, value in db.execute("SELECT stream, name, value FROM stream_tags"):
                tags[number][name] = value
            return topics, dict(db.execute("SELECT partition, end_index FROM stream_marks"))

    # ------------------------------------------------------------ writing

    def keep_streams(
        self,
        added: Iterable[tuple[int, str, Mapping[str, str]]],
        removed: Iterable[tuple[int, str]],
        marks: Mapping[int, int],
    ) -> None:
        """Add streams (topic, name, tags), forget others (topic, name), and set marks of partitions."""
        with self._writing() as db:
            db.executemany("DELETE FROM streams WHERE topic = ? AND name = ?", removed)
            for topic, name, tags in added:
                place = db.execute("INSERT OR IGNORE INTO streams (topic, name) VALUES (?, ?)", (topic, name))
                if place.rowcount:
                    db.executemany(
                        "INSERT INTO stream_tags VALUES (?, ?, ?)", [(place.lastrowid, *tag) for tag in tags.items()]
                    )
            db.executemany("INSERT OR REPLACE INTO stream_marks VALUES (?, ?)", marks.items())

    def add_topic(self, topic: TopicInfo) -> TopicInfo:
        """Add a topic and give it its number. Raises TopicExistsError if its name is taken."""
        return self.make_topic(topic, None)[0]

    def make_topic(self, topic: TopicInfo, schema: EventSchema | None) -> tuple[TopicInfo, SchemaInfo | None]:
        """The same, with the topic's first schema, if there is one."""
        with self._writing() as db:
            if not topic.deleted:
                self._check_name(db, topic.name)
            number = rows.put_topic(db, topic)
            given = None if schema is None else rows.put_schema(db, SchemaInfo(0, number, 0, schema))
            _count_change(db)
            self._changed |= {"topic"} if schema is None else {"topic", "schema"}
        return replace(topic, number=number), given

    def _check_name(self, db: sqlite3.Connection, name: str) -> None:
        if db.execute("SELECT 1 FROM topics WHERE name = ? AND deleted = 0", (name,)).fetchone():
            raise TopicExistsError(f"the topic {name!r} exists", path=str(self.path.parent))

    def rename_topics(self, names: Mapping[int, str]) -> int:
        """Give topics, by number, other names, all at once; gives the number of the change. Raises TopicExistsError."""
        with self._writing() as db:
            for number in names:  # so that two can change names
                db.execute("UPDATE topics SET name = '' || char(0) || number WHERE number = ?", (number,))
            for number, name in names.items():
                self._check_name(db, name)
                db.execute("UPDATE topics SET name = ? WHERE number = ?", (name, number))
            change = _count_change(db)
            self._changed.add("topic")
        return change

    @_makes_room
    def delete_topic(self, number: int, sealed: Mapping[int, int]) -> int:
        """Delete a topic, and retire its segments; gives the number of the change.

        sealed: for each of its partitions the record index that its next event would have had.
        """
        with self._writing() as db:
            change = _count_change(db)
            rows.delete_topic(db, number, sealed, change)
            self._changed |= {"topic", "schema", "partition", "tombstone"}
        return change

    @_makes_room
    def set_policy(self, topic: int, roll: Roll, retention: Retention) -> None:
        """Change what a topic is told to do."""
        with self._writing() as db:
            db.execute(
                "UPDATE topics SET roll = ?, retention = ? WHERE number = ?",
                (json.dumps(roll.to_json()), json.dumps(retention.to_json()), topic),
            )
            _count_change(db)
            self._changed.add("topic")

    def add_schema(self, info: SchemaInfo, base: SchemaInfo | None = None) -> SchemaInfo:
        """Add a schema; family 0 begins a new one, number 0 takes the next. base: a schema that it extends."""
        with self._writing() as db:
            given = rows.put_schema(db, info, base)
            _count_change(db)
            self._changed.add("schema")
        return given

    def add_partition(self, topic: int, name: str, number: int | None = None) -> PartitionInfo:
        """Add a partition, or give the one of that name."""
        with self._writing() as db:
            db.execute(
                "INSERT INTO partitions (number, topic, name) VALUES (?, ?, ?) ON CONFLICT (topic, name) DO NOTHING",
                (number, topic, name),
            )
            row = db.execute(_PARTITION, (topic, name)).fetchone()
            _count_change(db)
        return PartitionInfo(*row)

    def reserve(self, ends: Mapping[int, int]) -> None:
        """Let record indexes of partitions below these be given out before the log is synced."""
        with self._writing() as db:
            db.executemany(
                "UPDATE partitions SET reserved_index = max(reserved_index, ?) WHERE number = ?",
                [(end, number) for number, end in ends.items()],
            )
            self._changed.add("partition")

    def pass_over(self, holes: Mapping[int, tuple[int, int]]) -> None:
        """Never give out these record indexes, [first, end) by partition, and reserve none any more."""
        with self._writing() as db:
            for number, (first, end) in holes.items():
                grown = db.execute(
                    "UPDATE holes SET end_index = ? WHERE partition = ? AND end_index = ?", (end, number, first)
                )
                if not grown.rowcount:
                    db.execute("INSERT INTO holes VALUES (?, ?, ?)", (number, first, end))
            if holes:
                _count_change(db)
            db.execute("UPDATE partitions SET reserved_index = 0 WHERE reserved_index != 0")
            self._changed.add("partition")

    def add_holes(self, partition: int, holes: Iterable[tuple[int, int]]) -> None:
        """Take in holes that the manifest has lost."""
        with self._writing() as db:
            db.executemany("INSERT OR REPLACE INTO holes VALUES (?, ?, ?)", [(partition, *hole) for hole in holes])
            self._changed.add("partition")

    @_makes_room
    def apply(self, edit: Edit) -> int:
        """Make a change of segments, all of it or nothing; gives the number of the change."""
        with self._writing() as db:
            change = _count_change(db)
            self._changed |= _facts_changed(db, edit)
            for segment in edit.added:
                rows.put_segment(db, segment, change)
            for number in edit.retired:
                db.execute(
                    "INSERT INTO retired SELECT number, size_bytes, ?, ? FROM segments WHERE number = ?",
                    (edit.reason, change, number),
                )
                db.execute("DELETE FROM segments WHERE number = ?", (number,))
            for partition, index in edit.sealed.items():  # a rebuilt manifest has batches that are sealed once more
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
        """Let the number of the last change be no less than this."""
        with self._writing() as db:
            db.execute("UPDATE changes SET number = max(number, ?)", (change,))

    @_makes_room
    def settle(self) -> None:
        """After a change that failed: see to it that no crash brings it back. What was written of it, and not synced,
        counts when the file is opened again, unless another change came after it. Files that it names must stay until
        then.
        """
        with self._writing() as db:
            _count_change(db)

    @_makes_room
    def scrub(self) -> None:
        """Bring the file of recent changes into the main one, so that deleted rows are gone from disk; a reader that
        is at it just then can put that off: `scrub_again` then does it.
        """
        self._owner.check()
        with self._lock, errors_of(self.path):
            (self._unscrubbed, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._look()

    def scrub_again(self) -> None:
        """Do what `scrub` could not."""
        if self._unscrubbed:
            self.scrub()

    @_makes_room
    def forget_retired(self, numbers: Iterable[int]) -> None:
        """Retired segments whose files are gone."""
        with self._writing() as db:
            db.executemany("DELETE FROM retired WHERE number = ?", [(number,) for number in numbers])

    def correct_segment(self, segment: SegmentInfo) -> None:
        """Take in a segment file that came in the place of another under its number."""
        with self._writing() as db:
            change = _count_change(db)
            db.execute("DELETE FROM segments WHERE number = ?", (segment.number,))
            rows.put_segment(db, segment, change)
            self._changed.add("partition")

    @_makes_room
    def forget_problems(self, problems: Iterable[Problem]) -> None:
        """Of what was found wrong, what nobody needs to know any more."""
        with self._writing() as db:
            db.executemany(
                "DELETE FROM problems WHERE subject = ? AND message = ?", [(p.subject, p.message) for p in problems]
            )

    def add_problem(self, problem: Problem) -> None:
        """Keep what was found wrong; nothing is said twice."""
        with self._writing() as db:
            same = (problem.subject, problem.message)
            if db.execute("SELECT 1 FROM problems WHERE subject = ? AND message = ?", same).fetchone():
                return
            db.execute(
                "INSERT INTO problems (subject, message, action, found_us) VALUES (?, ?, ?, ?)", astuple(problem)
            )


def _epoch(db: sqlite3.Connection) -> int:
    row = db.execute("SELECT value FROM catalog WHERE key = ?", (_EPOCH,)).fetchone()
    return 0 if row is None else int(row[0])


def _change(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT number FROM changes").fetchone()[0])


def _count_change(db: sqlite3.Connection) -> int:
    db.execute("UPDATE changes SET number = number + 1")
    return _change(db)


def _facts_changed(db: sqlite3.Connection, edit: Edit) -> set[str]:
    """Kinds of facts that an edit, not made yet, takes away from what segments tell, or changes."""
    changed: set[str] = set()
    if edit.tombstones or edit.fulfilled:
        changed |= {"tombstone", "partition"}  # so that the partitions of all tombstones are there by name
    if edit.retired or (edit.sealed and not edit.added):  # with notes of pipes, perhaps
        changed.add("pipe")
    going: dict[int, int] = dict.fromkeys(edit.sealed, 0)
    for number in edit.retired:
        for partition, end in db.execute("SELECT partition, last_index + 1 FROM segments WHERE number = ?", (number,)):
            going[partition] = max(end, going.get(partition, 0))
    for partition, end in going.items():
        (sealed,) = db.execute("SELECT sealed_index FROM partitions WHERE number = ?", (partition,)).fetchone()
        told = max((added.last_index + 1 for added in edit.added if added.partition == partition), default=0)
        if told < edit.sealed.get(partition, sealed if end >= sealed else 0):
            changed.add("partition")
    return changed
