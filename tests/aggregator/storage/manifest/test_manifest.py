"""The manifest: contents come back, changes are atomic, damage and foreign files are distinguished."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pyarrow as pa
import pytest

from aggregator.errors import CorruptManifestError, ManifestFailedError, TopicExistsError, UnknownVersionError
from aggregator.model import PartitionInfo, Problem, ProducerEntry, SchemaInfo, SegmentInfo, Tombstone, TopicInfo
from aggregator.policy import Retention, Roll
from aggregator.storage.manifest import Edit, Manifest
from aggregator.storage.manifest.database import migrations
from esformat import ClosedError
from esformat.parts import make_schema

TOPIC = TopicInfo(0, "007", "text", ("type",), Roll(rows=10), Retention(bytes=5), 1)
SCHEMA = make_schema(
    pa.schema([("data", pa.binary()), ("type", pa.string()), ("deep", pa.list_(pa.struct([("a", pa.int8())])))]),
    ["type"],
    binary_keys=False,
)


def segment(number, **facts):
    values = {
        "number": number, "partition": 1, "schema": 1, "first_index": 2**40, "last_index": 2**40 + 9,
        "min_timestamp": -(2**63), "max_timestamp": 2**63 - 1, "min_space": b"", "max_space": b"\xff\0", "rows": 10,
        "size_bytes": 1000, "checksum": 2**64 - 1, "level": 0, "created_us": 5,
        "signature": b"\0\xff",
    }  # fmt: skip
    return SegmentInfo(**values | facts)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "manifest.sqlite"


@pytest.fixture
def manifest(path):
    manifest = Manifest(path)
    manifest.add_topic(TOPIC)
    manifest.add_schema(SchemaInfo(0, 1, 0, SCHEMA))
    manifest.add_partition(1, "0")
    yield manifest
    manifest.close()


def test_contents_come_back(manifest, path):
    """All contents come back, also over another connection; a name that looks like a number stays text."""
    stone = Tombstone(1, b"ada", 7, 9)
    manifest.add_schema(SchemaInfo(0, 1, 1, SCHEMA, (("deep", 2),)))
    manifest.add_schema(SchemaInfo(0, 1, 0, SCHEMA))
    manifest.apply(Edit(added=[segment(1), segment(2)], sealed={1: 2**40 + 10}, tombstones=[stone]))
    for reader in (manifest, Manifest(path, read_only=True)):
        contents = reader.load()
        assert [(t.name, t.indexes, t.roll, t.retention) for t in contents.topics] == [
            ("007", ("type",), Roll(rows=10), Retention(bytes=5))
        ]
        assert contents.segments == [segment(1), segment(2)]
        assert contents.partitions == [PartitionInfo(1, 1, "0", 2**40 + 10)]
        assert [(s.number, s.family) for s in contents.schemas] == [(1, 1), (2, 1), (3, 3)]
        assert contents.schemas[0].schema == SCHEMA
        assert [s.magnitudes for s in contents.schemas] == [(), (("deep", 2),), ()]
        assert contents.tombstones == [stone]
        assert contents.change == reader.change()
        if reader is not manifest:
            reader.close()


def test_names_are_taken_once(manifest):
    """Topic names are unique; adding an existing partition returns it."""
    with pytest.raises(TopicExistsError):
        manifest.add_topic(TOPIC)
    assert manifest.add_partition(1, "0").number == 1
    assert manifest.add_partition(1, "00").number > 1


def test_an_edit_is_whole(manifest):
    """If any part of an edit fails, nothing of it is applied."""
    manifest.apply(Edit(added=[segment(1)], sealed={1: 10}))
    before = manifest.load()
    with pytest.raises(sqlite3.IntegrityError):
        manifest.apply(Edit(retired=[1], sealed={1: 20}, added=[segment(2), segment(2)]))
    assert manifest.load() == before
    assert manifest.retired() == []


def test_retired_segments(manifest):
    """Retired segments leave the list immediately and are known until their files are deleted."""
    manifest.apply(Edit(added=[segment(1), segment(2)]))
    change = manifest.apply(Edit(retired=[1], reason="retention"))
    assert [s.number for s in manifest.load().segments] == [2]
    assert manifest.retired() == [(1, 1000, change)]
    manifest.forget_files([1])
    assert manifest.retired() == []


def test_producers_keep_what_is_named(manifest):
    """The newest batches of a producer replace those older than the oldest of them."""
    entries = [ProducerEntry(1, "web-1", sequence, 2**64 - sequence, sequence * 10, 10) for sequence in (1, 2, 3)]
    other = ProducerEntry(1, "web-2", -5, 1, 0, 3)
    manifest.apply(Edit(producers=[*entries[:2], other]))
    manifest.apply(Edit(producers=entries[1:]))
    assert manifest.producers() == [*entries[1:], other]


def test_facts_and_problems(manifest):
    """Facts are replaced, problems accumulate."""
    assert manifest.get("clean") is None
    manifest.put("clean", "no")
    manifest.put("clean", "yes")
    assert manifest.get("clean") == "yes"
    problems = [Problem("segments/1", "missing", "reported", 3), Problem("segments/2", "damaged", "moved", 4)]
    for problem in problems:
        manifest.add_problem(problem)
    assert manifest.problems() == problems


def test_readers_see_nothing_half_done(manifest, path):
    """A reader that began before a change sees the state before it and does not block the writer."""
    reader = Manifest(path, read_only=True)
    with reader.reading() as db:
        assert db.execute("SELECT count(*) FROM segments").fetchone() == (0,)
        manifest.apply(Edit(added=[segment(1)]))
        assert db.execute("SELECT count(*) FROM segments").fetchone() == (0,)
    assert len(reader.load().segments) == 1
    with pytest.raises(ManifestFailedError):
        reader.put("a", "b")
    reader.close()


def test_tables_are_strict(manifest):
    """All tables are STRICT, the journal is a WAL, and migrations are numbered without gaps."""
    db = manifest._connection
    tables = db.execute("SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND name NOT LIKE 'sqlite_%'")
    assert {strict for _, strict in tables} == {1}
    assert db.execute("PRAGMA user_version").fetchone() == (migrations()[-1][0],)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


def test_newer_manifest_is_refused(manifest, path):
    """A newer manifest is refused with a hint and left unchanged."""
    manifest._connection.execute("PRAGMA user_version = 1000")
    manifest.close()
    with pytest.raises(UnknownVersionError, match="version 1000"):
        Manifest(path)


@pytest.mark.parametrize("damage", ["zeros", "text", "cut", "stranger", "page"])
def test_damage_is_refused(manifest, path, damage):
    """A file that is no longer a manifest, or never was, raises an error with a hint and is left unchanged."""
    manifest.apply(Edit(added=[segment(number) for number in range(1, 500)]))
    manifest._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    manifest.close()
    stored = path.read_bytes()
    if damage == "stranger":
        path.unlink()
        stranger = sqlite3.connect(path)
        stranger.execute("CREATE TABLE topics (name TEXT)")
        stranger.close()
    else:
        changed = {
            "zeros": bytes(len(stored)),
            "text": b"hello " * 1000,
            "cut": stored[: len(stored) // 2],
            "page": stored[:8192] + bytes(4096) + stored[12288:],
        }[damage]
        path.write_bytes(changed)
    left = path.read_bytes()
    with pytest.raises(CorruptManifestError, match="rebuild-manifest"):
        Manifest(path)
    assert path.read_bytes() == left


def test_a_closed_manifest_is_not_a_damaged_one(path):
    """Using a closed manifest raises ClosedError, not an error of damage."""
    manifest = Manifest(path)
    manifest.close()
    for use in (manifest.retired, manifest.scrub, lambda: manifest.put("a", "b")):
        with pytest.raises(ClosedError, match="closed"):
            use()


def test_absent_manifest_is_not_made_by_readers(path):
    """A reader does not create a missing manifest."""
    with pytest.raises(FileNotFoundError):
        Manifest(path, read_only=True)
    assert not path.exists()


def test_wider_schemas_store_what_they_add(manifest, path):
    """A schema that extends another stores only its own columns, and comes back complete."""
    info = manifest.add_schema(SchemaInfo(0, 1, 0, SCHEMA))
    infos = [info]
    for number in range(50):
        columns = [*info.schema.arrow, pa.field(f"a column called {number}", pa.float64())]
        wider = SchemaInfo(0, 1, info.family, make_schema(pa.schema(columns), ["type"], binary_keys=False))
        infos.append(info := manifest.add_schema(wider, info))
    assert manifest.load().schemas[1:] == infos
    with closing(sqlite3.connect(path)) as db:
        ((longest, count),) = db.execute("SELECT max(length(columns)), count(*) FROM schemas").fetchall()
    assert count == 52
    assert longest < 400
    with pytest.raises(ValueError, match="begin with those of schema"):
        manifest.add_schema(SchemaInfo(0, 1, info.family, SCHEMA), info)
