"""What a rebuilt manifest restores from its backup beyond segments and log, and what it reports if the backup fails."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from types import SimpleNamespace

import pyarrow as pa
import pytest
from waiting import until

import aggregator
from aggregator.engine import follower as following
from aggregator.engine.ingest import reserve
from aggregator.engine.recovery.replay import adopt_definitions
from aggregator.storage.files.layout import Layout
from aggregator.storage.files.lock import WriterLock
from aggregator.storage.log import entry
from aggregator.storage.manifest import Manifest, backup
from aggregator.storage.manifest.backup import ManifestBackup, read_facts
from aggregator.storage.manifest.facts import encode_facts, line_of
from aggregator.storage.state.state import CatalogState

pytestmark = pytest.mark.usefixtures("quiet")

SCHEMA = pa.schema([("kind", pa.string()), ("price", pa.int64()), ("data", pa.binary())])


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def lose_manifest(root):
    for path in root.glob("manifest.sqlite*"):
        path.unlink()


def rebuilt(root):
    """Lose the manifest and rebuild it. Returns the report."""
    lose_manifest(root)
    return aggregator.rebuild_manifest(root)


def append(topic, count=10, space="a", partition="0"):
    return topic.append([{"space": space, "timestamp": n} for n in range(count)], partition)


def empty_log(catalog):
    """Empty the log."""
    catalog.seal()
    catalog._backend.log.roll()
    catalog._backend.sealer.release_log()


def remove_all(topic):
    topic.set_policy(retention={"segments": 0})
    topic.retain()
    topic.set_policy(retention={"segments": None})
    removal = topic._backend.upkeep.removal
    until(lambda: removal.sweep() >= 0 and not removal.waiting())  # a pipe may be reading just now


def image_of(root, name):
    """What a crash would leave, without the manifest."""
    return shutil.copytree(root, root.with_name(name), ignore=shutil.ignore_patterns("manifest.sqlite*", "*.partial"))


def test_log_frames_of_an_unknown_kind_are_not_events(root, monkeypatch):
    """The record indexes that the log has do not include those of frames of an unknown kind."""
    with aggregator.open(root) as catalog, monkeypatch.context() as patch:
        topic = catalog.create_topic("t")
        append(topic)
        patch.setattr(entry, "_EVENTS", 9)
        append(topic)
    layout = Layout(root)
    with contextlib.closing(Manifest(layout.manifest)) as manifest:
        spans = adopt_definitions(layout.log, CatalogState(manifest.load()), manifest, time.time_ns)
    assert list(spans.values()) == [(0, 10)]


def test_topics_without_events(root):
    """Topics without events come back with schemas, indexes, keys and policies; others with their latest policies."""
    with aggregator.open(root) as catalog:
        catalog.create_topic(
            "empty", SCHEMA, indexes=["kind"], keys="binary", roll={"rows": 7}, retention={"age": "1d"}
        )
        topic = catalog.create_topic("t", roll={"rows": 100})
        append(topic)
        empty_log(catalog)
        topic.set_policy(roll={"rows": 200, "frame_bytes": 8192}, retention={"bytes": "1 GiB"})
        before = [catalog.topic(name)._topic.info for name in catalog.topics()]
    report = rebuilt(root)
    assert (report.topics, report.segments, report.missing) == (2, 1, ())
    with aggregator.open(root) as catalog:
        assert [catalog.topic(name)._topic.info for name in ("empty", "t")] == before
        append(catalog.topic("empty"), space=b"\xff")
        assert set(catalog.topic("empty").scan().to_table().column_names) > {"kind", "price", "data"}
        assert catalog.create_topic("another")._topic.info.number == 3
        assert catalog.problems() == []


def test_without_segments_and_log(root):
    """A catalog that lost everything but the backup is not opened as a new one."""
    with aggregator.open(root) as catalog:
        catalog.create_topic("t")
    lose_manifest(root)
    with pytest.raises(aggregator.CorruptManifestError, match="rebuild-manifest"):
        aggregator.open(root)
    assert aggregator.rebuild_manifest(root).topics == 1
    with aggregator.open(root) as catalog:
        assert catalog.topics() == ("t",)


@pytest.mark.parametrize("how", ["removed", "erased before it was sealed", "erased after"])
def test_record_indexes_are_never_given_twice(root, how):
    """Record indexes are not reused although no segment or log has them, and earlier positions stay valid."""
    with aggregator.open(root) as catalog:
        receipt = catalog.write({"a": "1"}, [{"ts": n, "msg": str(n)} for n in range(10)])
        standing = catalog.query("SELECT FROM a = 1")
        list(standing)
        position = standing.position
        topic = catalog.topic("logs")
        if how != "erased before it was sealed":
            catalog.seal()
        if how == "removed":
            remove_all(topic)
        else:
            topic.erase("{a=1}")
            topic.compact()
        empty_log(catalog)
        assert topic.stats()["rows"] == 0
        assert list((root / "segments").glob("*/*.esdb")) == []
        ends = topic.ends()
    shutil.copytree(root, root.with_name("forgetful"))
    assert rebuilt(root).missing == ()
    with aggregator.open(root) as catalog:
        assert catalog.topic("logs").ends() == ends == {"0": 10}
        assert catalog.query(f"SELECT FROM a = 1 POSITION {position}").count() == 0
        again = catalog.write({"a": "1"}, [{"ts": 100, "msg": "new"}])
        assert (again.partition, again.first) == (receipt.partition, receipt.last + 1)
        catalog.seal()
    with aggregator.open(root) as catalog:
        assert [event.data for event in catalog.query(f"SELECT FROM a = 1 POSITION {position}")] == [b"new"]
        assert catalog.write({"a": "1"}, [{"ts": 101, "msg": "newer"}]).first == receipt.last + 2
    (root.with_name("forgetful") / "catalog.facts").unlink()  # as before that file existed
    report = rebuilt(root.with_name("forgetful"))
    assert "catalog.facts is missing" in report.missing[0]
    with aggregator.open(root.with_name("forgetful")) as catalog:
        assert catalog.write({"a": "1"}, [{"ts": 100}]).first == 0
        with pytest.raises(aggregator.InvalidRequestError, match="another catalog"):
            catalog.query(f"SELECT FROM a = 1 POSITION {position}").to_table()


def test_record_indexes_that_a_crash_may_have_lost(root):
    """Indexes skipped after a crash stay skipped; a run without syncs is treated as crashed unless it was closed."""
    with aggregator.open(root, durability="none") as catalog:
        append(catalog.create_topic("t"))
        crashed = shutil.copytree(root, root.with_name("crashed"))
        lost = shutil.copytree(root, root.with_name("lost"))
    with aggregator.open(crashed) as catalog:  # synced from now on
        free = append(catalog.topic("t")).first
        assert free == reserve.FIRST + 10
        empty_log(catalog)
        remove_all(catalog.topic("t"))
    rebuilt(crashed)
    with aggregator.open(crashed) as catalog:
        assert append(catalog.topic("t")).first == free + 10
    rebuilt(lost)  # which may have reserved more just before it crashed
    with aggregator.open(lost) as catalog:
        assert append(catalog.topic("t")).first > 1 << 22
    rebuilt(root)  # which was closed cleanly
    with aggregator.open(root) as catalog:
        assert append(catalog.topic("t")).first == 10


def test_erasures_under_way(root):
    """Erased events stay hidden and are removed, also if their segment was already rewritten."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        append(topic, space="secret-1")
        append(topic, space="other")
        catalog.seal()
        append(topic, space="secret-2")
        scan = iter(topic.scan())
        next(scan)
        for space in ("secret-1", "secret-2"):
            topic.erase(space)
        crashed = [image_of(root, "at once")]
        catalog.compact()
        assert set(topic.erasures()) == {"secret-1", "secret-2"}  # the scan keeps a file
        crashed.append(image_of(root, "half done"))
        del scan
    for image in crashed:
        report = rebuilt(image)
        assert (report.hidden, report.missing) == (2, ())
        with aggregator.open(image, read_only=True) as catalog:
            assert {event.space for event in catalog.topic("t").scan()} == {"other"}
        with aggregator.open(image) as catalog:
            topic = catalog.topic("t")
            assert topic.erasures() == ("secret-1", "secret-2")
            assert {event.space for event in topic.scan()} == {"other"}
            append(topic, 3, space="secret-1")
            assert topic.scan(space="secret-1").count() == 3
            catalog.compact()
            assert topic.erasures() == ()
            assert topic.traces("secret-2").gone
            assert topic.scan().count() == 13


def test_truncations_under_way(root):
    """A truncated stream still begins at the truncation."""
    with aggregator.open(root) as catalog:
        catalog.write({"a": "1"}, [{"ts": n, "msg": str(n)} for n in range(10)])
        catalog.seal()
        catalog.write({"a": "1"}, [{"ts": n, "msg": str(n)} for n in range(10, 20)])
        catalog.query("TRUNCATE BEFORE 15000ns")
        expected = [event.data for event in catalog.query("SELECT")]
        assert len(expected) == 5
    assert rebuilt(root).hidden == 1
    with aggregator.open(root) as catalog:
        assert [event.data for event in catalog.query("SELECT")] == expected


def test_no_trace_of_an_erased_key(root):
    """The backup names an erased key while it is hidden, which counts as residue, and no longer."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        append(topic, space="secret")
        topic.erase("secret")
        noted = b"secret".hex().encode()
        assert noted in (root / "catalog.facts").read_bytes()
        in_manifest = topic.traces("secret").manifest
        stored = (root / "catalog.facts").read_bytes()
        (root / "catalog.facts").write_bytes(b"")
        assert topic.traces("secret").manifest == in_manifest - 1
        (root / "catalog.facts").write_bytes(stored)
        catalog.compact()
        assert noted not in (root / "catalog.facts").read_bytes()
        assert topic.traces("secret").gone


def copied(catalog):
    return {pipe["name"]: pipe["copied"] for pipe in catalog.stats()["pipes"] if pipe["lag"] == 0}


def test_pipes_go_on(root):
    """Each pipe continues after what it copied, even if retention removed the copies and the progress with them."""
    with aggregator.open(root) as catalog:
        catalog.query("CREATE PIPE all FROM app = web")
        catalog.query("CREATE PIPE errors FROM app = web WHERE msg PREFIX ERROR")
        catalog.query("CREATE PIPE idle FROM app = nothing BACKFILL")
        catalog.query("CREATE PIPE deleted")
        catalog.query("DELETE PIPE deleted")
        catalog.write({"app": "web"}, [{"msg": "ERROR 1"}, {"msg": "fine"}], "source")
        for _ in range(2):  # by then the pipes have read each other's copies, too
            until(lambda: copied(catalog) == {"all": 2, "errors": 1, "idle": 0})
        empty_log(catalog)
        remove_all(catalog.topic("logs"))
        before = [(pipe["name"], pipe["copied"], pipe["gone"]) for pipe in catalog.stats()["pipes"]]
        assert [gone for _, _, gone in before] == [0, 0, 0]
        crashed = image_of(root, "crashed")
    for image in (root, crashed):
        report = rebuilt(image)
        assert (report.pipes, report.missing) == (3, ())
        with aggregator.open(image) as catalog:
            until(lambda opened=catalog: len(copied(opened)) == 3)
            if image is root:  # otherwise they had read records that are gone, without noting it
                assert [(pipe["name"], pipe["copied"], pipe["gone"]) for pipe in catalog.stats()["pipes"]] == before
            catalog.write({"app": "web"}, [{"msg": "ERROR 2"}], "source")
            until(lambda opened=catalog: copied(opened) == {"all": 3, "errors": 2, "idle": 0})
            assert catalog.topic("logs").scan().count() == 2


def damaged(stored, how):
    """The bytes of an unusable backup."""
    if how == "cut short":
        return stored[:-1]
    if how == "flipped":
        return stored[:50] + bytes([stored[50] ^ 1]) + stored[51:]
    if how == "newer":
        return stored[:8] + b"\x02\x00" + stored[10:]
    return {"empty": b"", "noise": b"x" * 5000}[how]


@pytest.mark.parametrize("how", ["cut short", "flipped", "newer", "empty", "noise"])
def test_facts_that_cannot_be_used(root, how):
    """With an unusable backup, segments and log restore what they can, the report lists what is missing, and the file
    is quarantined; beside an intact manifest it is rewritten.
    """
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t", roll={"rows": 100})
        catalog.create_topic("empty")
        append(topic)
        catalog.seal()
        append(topic, 5)
    with aggregator.open(root):
        pass
    path = root / "catalog.facts"
    stored = path.read_bytes()
    path.write_bytes(damaged(stored, how))
    with aggregator.open(root, read_only=True) as catalog:
        assert catalog.topics() == ("t", "empty")
    with aggregator.open(root) as catalog:
        assert catalog.topics() == ("t", "empty")
        assert catalog.problems() == []
    assert path.read_bytes()[40:] == stored[40:]
    path.write_bytes(damaged(stored, how))
    report = rebuilt(root)
    (sentence,) = report.missing
    assert sentence.startswith("catalog.facts cannot be used: ")
    assert ("version 2" in sentence) == (how == "newer")
    assert report.quarantined == ("catalog.facts",)
    assert (root / "quarantine" / "catalog.facts").read_bytes() == damaged(stored, how)
    with aggregator.open(root) as catalog:
        assert catalog.topics() == ("t",)
        assert catalog.topic("t").roll.rows == 100
        assert append(catalog.topic("t")).first == 15
        assert path.exists()


def test_facts_that_the_disk_does_not_give(root):
    """An unreadable backup counts as damaged and prevents neither opening nor rebuilding."""
    with aggregator.open(root) as catalog:
        append(catalog.create_topic("t"))
    (root / "catalog.facts").unlink()
    (root / "catalog.facts").mkdir()
    with aggregator.open(root) as catalog:
        assert catalog.topic("t").scan().count() == 10
    report = rebuilt(root)
    assert "catalog.facts cannot be used: it cannot be read" in report.missing[0]
    assert (root / "quarantine" / "catalog.facts").is_dir()
    with aggregator.open(root) as catalog:
        assert catalog.topic("t").scan().count() == 10
        assert (root / "catalog.facts").is_file()


def forge(root, change):
    """Change lines of the file and correct its checksum."""
    path = root / "catalog.facts"
    lines = [json.loads(line) for line in path.read_bytes()[40:].splitlines()]
    for line in change(lines) or lines:
        ((kind, facts),) = line.items()
        assert kind
        assert isinstance(facts, dict)
    path.write_bytes(encode_facts(b"".join(json.dumps(line).encode() + b"\n" for line in lines), 1 << 40))


@pytest.mark.parametrize(
    ("kind", "place", "value", "what"),
    [
        ("topic", 0, {"number": 2}, "topic 't'"),
        ("topic", 0, {"created_us": 5}, "topic 't'"),
        ("topic", 0, {"name": "logged"}, "topic 'logged'"),
        ("topic", 0, {"keys": "binary"}, "topic 't'"),
        ("topic", 1, {"number": 3}, "topic 'logged'"),
        ("schema", 0, {"family": 9}, "schema 1"),
        ("schema", 1, {"number": 1}, "schema 1"),
        ("partition", 0, {"number": 2}, "partition '0'"),
        ("partition", 0, {"name": "foreign"}, "partition 'foreign'"),
        ("partition", 1, {"number": 1, "name": "x"}, "partition 'x'"),
    ],
)
def test_facts_that_segments_and_log_contradict(root, kind, place, value, what):
    """A backup that contradicts segments or log is rejected with a report; existing data is not harmed."""
    with aggregator.open(root) as catalog:
        append(catalog.create_topic("t", SCHEMA))
        empty_log(catalog)
        append(catalog.create_topic("logged", pa.schema([("x", pa.string())])))  # only in the log
    with aggregator.open(root) as catalog:  # which writes the partitions
        catalog.query("CREATE PIPE p")

    def change(lines):
        mine = [line for line in lines if kind in line]
        for number, line in enumerate(mine):
            if number == place:
                line[kind].update(value)
            else:
                lines.remove(line)

    forge(root, change)
    report = rebuilt(root)
    assert what in report.missing[0]
    assert report.pipes == 0
    with aggregator.open(root) as catalog:
        assert {"t", "logged"} <= set(catalog.topics())
        for name in ("t", "logged"):
            assert catalog.topic(name).scan().count() == 10
            assert append(catalog.topic(name)).first == 10
        assert catalog.problems() == []


def test_erasures_of_another_partition(root):
    """If backup and segments number partitions differently, no event is hidden."""
    with aggregator.open(root) as catalog:
        append(catalog.create_topic("t"))
        append(catalog.create_topic("u"))
        catalog.seal()
        catalog.topic("t").erase("a")

    def change(lines):
        mine = {line["partition"]["topic"]: line["partition"] for line in lines if "partition" in line}
        mine[1]["number"], mine[2]["number"] = mine[2]["number"], mine[1]["number"]

    forge(root, change)
    report = rebuilt(root)
    assert report.hidden == 0
    assert "partition '0'" in report.missing[0]
    with aggregator.open(root) as catalog:
        assert [catalog.topic(name).scan().count() for name in "tu"] == [10, 10]


@pytest.mark.parametrize("value", ["", "{}", "[" * 5000, '{"at": "p1", "copied": 0, "gone": 0, "gaps": 0}'])
def test_a_pipe_whose_progress_means_nothing(root, value):
    """A pipe with invalid progress fails with a reason, for writer and reader, and can be deleted."""
    with aggregator.open(root) as catalog:
        catalog.query("CREATE PIPE p")

    def change(lines):
        lines[-1]["pipe"]["progress"] = value

    forge(root, change)
    assert rebuilt(root).pipes == 1
    for read_only in (True, False):
        with aggregator.open(root, read_only=read_only) as catalog:
            (shown,) = catalog.stats()["pipes"]
            assert (shown["state"], "progress of a pipe" in shown["problem"]) == ("failing", True)
            assert "pipe p" in {problem.subject for problem in catalog.problems()}
    with aggregator.open(root) as catalog:
        catalog.query("DELETE PIPE p")
        assert "pipe p" not in {problem.subject for problem in catalog.problems()}


def test_an_old_copy_of_the_manifest(root):
    """A newer backup restores erasures, policies and pipes to an old copy of the manifest, and that is reported."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        append(topic, space="secret")
        append(topic, space="other")
        catalog.seal()
        catalog.query("CREATE PIPE old")
        catalog.query("CREATE PIPE kept FROM a = 1")
    old = root.with_name("old.sqlite")
    shutil.copy(root / "manifest.sqlite", old)
    with aggregator.open(root) as catalog:
        catalog.topic("t").erase("secret")
        catalog.topic("t").set_policy(roll={"rows": 5})
        catalog.query("DELETE PIPE old")
        catalog.query("CREATE PIPE new")
        catalog.create_topic("empty")
    lose_manifest(root)
    shutil.copy(old, root / "manifest.sqlite")
    for _ in range(2):
        with aggregator.open(root) as catalog:
            problems = [(problem.subject, problem.action) for problem in catalog.problems()]
            assert problems == [("manifest.sqlite", "taken in"), ("catalog.facts", "taken in")]
            assert {event.space for event in catalog.topic("t").scan()} == {"other"}
            assert catalog.topic("t").roll.rows == 5
            assert "empty" in catalog.topics()
            assert [row["name"] for row in catalog.query("SHOW PIPES").to_pylist()] == ["kept", "new"]
    with aggregator.open(root.with_name("another")) as catalog:
        catalog.create_topic("foreign")
    shutil.copy(root.with_name("another") / "catalog.facts", root / "catalog.facts")
    forge(root, lambda lines: None)
    with aggregator.open(root) as catalog:
        assert "belongs to another catalog" in catalog.problems()[2].message
        assert "foreign" not in catalog.topics()


def test_what_did_not_change_is_not_made_again(root, monkeypatch):
    """A change rebuilds only the backup lines of its own topic and schema."""
    made = []
    monkeypatch.setattr(
        "aggregator.storage.manifest.fact_rows.line_of",
        lambda kind, value: made.append((kind, value)) or line_of(kind, value),
    )
    with aggregator.open(root) as catalog:
        for number in range(12):
            append(catalog.create_topic(f"t{number}", SCHEMA))
        made.clear()
        topic = catalog.create_topic("last", SCHEMA)
        append(topic)
        topic.set_policy(retention={"segments": 3})
        topic.erase("a")
        assert {value.name for kind, value in made if kind == "topic"} == {"last"}
        assert {value.topic for kind, value in made if kind == "schema"} == {topic._topic.info.number}
    known = read_facts(root / "catalog.facts")[0]
    assert sorted(topic.name for topic in known.topics) == sorted([f"t{number}" for number in range(12)] + ["last"])
    assert len(known.schemas) == 13


def test_what_is_written_when(root, monkeypatch):
    """Appends, seals, merges and most retention write no backup; facts found nowhere else are in it on return."""
    written = []
    real = ManifestBackup._write
    monkeypatch.setattr(ManifestBackup, "_write", lambda self, stored: (written.append(stored), real(self, stored)))

    def writes():
        count = len(written)
        written.clear()
        return count

    with aggregator.open(root) as catalog:
        assert writes() == 1
        topic = catalog.create_topic("t", SCHEMA)
        assert 1 <= writes() <= 2  # background work may run between topic and schema
        for _ in range(5):
            append(topic)
            catalog.seal()
        topic.retain()
        assert writes() == 0
        topic.set_policy(retention={"segments": 3})
        assert writes() == 1
        assert len(topic.retain().removed) == 2
        assert topic.compact().made == 1
        assert writes() == 0
        topic.erase("a")
        assert writes() == 1
        catalog.query("CREATE PIPE p")
        catalog.query("DELETE PIPE p")
        assert writes() == 2
        append(topic)
        catalog.seal()
    assert writes() == 0
    with aggregator.open(root):
        assert writes() == 1  # the ends of record indexes
    with aggregator.open(root):
        assert writes() == 0


@pytest.mark.background
def test_a_disk_that_takes_no_facts(root, monkeypatch):
    """If the backup cannot be written, the change still succeeds; background work reports the error and retries."""
    with aggregator.open(root) as catalog:
        with monkeypatch.context() as patch:
            patch.setattr(
                ManifestBackup, "_write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
            )
            catalog.create_topic("t")
            assert catalog.topics() == ("t",)
            until(lambda: catalog.trouble is not None)
            assert "catalog.facts cannot be written at the moment: No space left" in catalog.trouble
            assert b'"t"' not in (root / "catalog.facts").read_bytes()
        until(lambda: b'"t"' in (root / "catalog.facts").read_bytes())


@pytest.mark.parametrize(("bound", "size"), [("MAX_BYTES", 1500), ("MAX_LINE_BYTES", 500)])
def test_more_facts_than_fit(root, monkeypatch, bound, size):
    """If the facts exceed the limit, there is no backup instead of an incomplete one, and a problem is listed."""
    columns = pa.schema([(f"column {number}", pa.string()) for number in range(10)])
    with aggregator.open(root) as catalog:
        catalog.create_topic("t")
        with monkeypatch.context() as patch:
            patch.setattr(backup, bound, size)
            for number in range(3):
                catalog.create_topic(f"topic {number}", columns)
            assert not (root / "catalog.facts").exists()
            (problem,) = catalog.problems()
            assert problem.subject == "catalog.facts"
            catalog.topic("t").set_policy(roll={"rows": 5})
        catalog.create_topic("last")
        assert (root / "catalog.facts").stat().st_size > 1500
    assert rebuilt(root).topics == 5


def test_bytes_count(root):
    """The backup counts as disk usage of the catalog."""
    with aggregator.open(root) as catalog:
        catalog.create_topic("t")
        size = Layout(root).facts.stat().st_size
        backend = catalog._backend
        assert backend.manifest.backup_bytes == size
        assert catalog.stats()["disk"]["manifest"] == backend.manifest.size_bytes + size
        total = backend.quota.total()
        backend.manifest.backup_bytes = 0
        assert backend.quota.total() == total - size


@pytest.mark.parametrize("facts", ["kept", "lost"])
def test_readers_beside_a_rebuild(root, facts):
    """An open scan continues although its segments were merged; a reader sees appends after the rebuild."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        for _ in range(8):
            append(topic, 100)
            catalog.seal()
        with aggregator.open(root, read_only=True) as reader:
            seen = reader.topic("t")
            scan = iter(seen.scan())
            next(scan)
            assert catalog.compact().merged
            catalog.close()
            if facts == "lost":
                (root / "catalog.facts").unlink()
            lose_manifest(root)
            assert aggregator.rebuild_manifest(root).superseded == 8
            assert len(list(root.glob("segments/*/*.esdb"))) == 9
            assert seen.scan().count() == 800
            with aggregator.open(root) as again:
                append(again.topic("t"), 5)
                again.seal()
                assert seen.scan().count() == 805
                append(again.topic("t"), 5)
                assert seen.scan().count() == 810
                assert sum(1 for _ in scan) == 799
                del scan
                again.compact()
                assert len(list(root.glob("segments/*/*.esdb"))) == 1
                assert again.problems() == []


def test_a_reader_that_comes_while_the_manifest_is_replaced(root, monkeypatch):
    """A reader that opens while the manifest is being replaced waits for the new one."""
    with aggregator.open(root) as catalog:
        append(catalog.create_topic("t"))
    away = (root / "manifest.sqlite").rename(root / "away")
    lock = WriterLock(Layout(root).writer_lock)
    # Replace `sleep` for the reader only, because other threads of this process sleep, too.
    monkeypatch.setattr(following, "time", SimpleNamespace(sleep=lambda _: away.rename(root / "manifest.sqlite")))
    with aggregator.open(root, read_only=True) as reader:
        lock.release()
        assert reader.topic("t").scan().count() == 10
