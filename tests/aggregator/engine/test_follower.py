"""Readers in other processes see acknowledged events, sealed or not, and change nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from effort import ALL
from plain_commits import PlainCommits
from still import still

import aggregator
import esformat
from aggregator.storage.files.pins import Pins
from aggregator.storage.log.file import encode_mark
from aggregator.storage.manifest.copying import take_copy

ROOT = Path(__file__).parents[3]
WAIT_S = 60


def rows(*times, space="a"):
    return [{"space": space, "timestamp": time} for time in times]


def times(topic, **question):
    return [event.timestamp for event in topic.scan(**question)]


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def writer(root):
    with aggregator.open(root) as catalog:
        yield catalog


@pytest.fixture
def reader(writer, root):
    with aggregator.open(root, read_only=True) as catalog:
        yield catalog


def test_a_reader_follows(writer, reader):
    """The next scan sees new topics, batches, partitions, segments and columns."""
    with pytest.raises(aggregator.TopicNotFoundError):
        reader.topic("t")
    topic = writer.create_topic("t", indexes=["type"])
    seen = reader.topic("t")
    assert times(seen) == []
    topic.append(rows(1, 2))
    assert times(seen) == [1, 2]
    topic.append(rows(3), "other")
    assert seen.partitions == ("0", "other")
    writer.seal()
    assert times(seen) == [1, 2, 3]
    assert len(seen._topic.segments) == 2
    assert not any(p.memtable.batches for p in seen._topic.partitions.values())
    topic.append([{"space": "b", "timestamp": 4, "type": "x", "n": 7}])
    writer.seal()
    topic.append(rows(5, space="b"))
    assert times(seen, space="b", reverse=True) == [5, 4]
    assert [event.columns["n"] for event in seen.scan(space="b")] == [7, None]
    assert seen.scan_index("type", "x").count() == 1
    assert [event.columns["record_index"] for event in seen.read("0", from_index=1)] == [1, 2, 3]


def test_a_reader_that_slept(writer, root):
    """A reader that slept finds events that were sealed and removed from the log meanwhile."""
    topic = writer.create_topic("t")
    topic.append(rows(1))
    with aggregator.open(root, read_only=True) as reader:
        seen = reader.topic("t")
        assert times(seen) == [1]
        for number in range(2, 6):
            topic.append(rows(number))
            writer._backend.log._start_file(writer._backend.log.end)
            writer.seal()
        topic.append(rows(6))
        assert times(seen) == [1, 2, 3, 4, 5, 6]


def test_a_reader_changes_nothing(writer, reader):
    """A reader refuses every call that would change something."""
    topic = writer.create_topic("t")
    topic.append(rows(1))
    for refused in (
        lambda: reader.create_topic("u"),
        lambda: reader.topic("t").append(rows(2)),
        reader.seal,
    ):
        with pytest.raises(aggregator.ReadOnlyError):
            refused()
    assert times(reader.topic("t")) == [1]


def test_a_reader_makes_nothing(tmp_path):
    """Opening a missing catalog is an error and creates nothing."""
    with pytest.raises(aggregator.CatalogNotFoundError):
        aggregator.open(tmp_path / "absent", read_only=True)
    with pytest.raises(FileNotFoundError):
        aggregator.open(tmp_path, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_without_a_writer(root):
    """Sealed and unsealed events can be read without a writer."""
    with aggregator.open(root) as writer:
        topic = writer.create_topic("t")
        topic.append(rows(1))
        writer.seal()
        topic.append(rows(2))
    before = sorted(path.name for path in root.rglob("*"))
    with aggregator.open(root, read_only=True) as reader:
        assert times(reader.topic("t")) == [1, 2]
    assert [name for name in sorted(path.name for path in root.rglob("*")) if "sqlite-" not in name] == before


def test_unacknowledged_events_are_not_seen(writer, reader, monkeypatch):
    """Frames after the mark, which are written but not synced, are not read."""
    topic = writer.create_topic("t")
    monkeypatch.setattr(writer._backend.log, "_commits", PlainCommits())
    seen = reader.topic("t")
    looked = []
    monkeypatch.setattr("os.fdatasync", lambda fd: looked.append(times(seen)))
    topic.append(rows(1))
    topic.append(rows(2))
    assert looked == [[], [1]]


def test_pins(tmp_path):
    """The files of a scan stay while any process reads them."""
    path = tmp_path / "readers.lock"
    ours = Pins(path, read_only=False)
    assert not ours.holds_before(10)
    pin = ours.take(5)
    assert ours.holds_before(6)
    assert not ours.holds_before(5)
    pin.release()
    pin.release()
    assert not ours.holds_before(6)
    code = (
        "import sys, pathlib; from aggregator.storage.files.pins import Pins; "
        "pins = Pins(pathlib.Path(sys.argv[1]), read_only=True); "
        "pin = pins.take(7); print('taken', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ) as other:  # fmt: skip
        assert other.stdout.readline() == b"taken\n"
        assert ours.holds_before(8)
        assert not ours.holds_before(7)
        other.kill()
        other.wait()
    assert not ours.holds_before(8)
    ours.close()


def test_pins_are_never_refused(tmp_path):
    """A reader can always take a pin, also while the writer checks for readers."""
    path = tmp_path / "readers.lock"
    code = (
        "import sys, pathlib; from aggregator.storage.files.pins import Pins\n"
        "pins = Pins(pathlib.Path(sys.argv[1]), read_only=False); print('looking', flush=True)\n"
        "while True: pins.holds_before(1000)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}
    ) as writer:
        try:
            assert writer.stdout.readline() == b"looking\n"
            reader = Pins(path, read_only=True)
            for _ in range(20_000):
                reader.take(5).release()
            reader.close()
            assert writer.poll() is None
        finally:
            writer.kill()


def test_readers_beside_a_writer_at_work(root, tmp_path):
    """While a process ingests and seals, a reader's answers only grow, without a gap or a duplicate."""
    command = [sys.executable, str(ROOT / "tests/support/ingest_child.py"), str(root), "fsync", "300", "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}) as child:
        child.stdout.readline()
        acknowledged: dict[str, int] = {}
        last: dict[str, int] = {}
        with aggregator.open(root, read_only=True) as reader:
            topic = reader.topic("t")
            until, most = time.monotonic() + (3 if ALL else 0.5), time.monotonic() + 60
            os.set_blocking(child.stdout.fileno(), False)
            looks = 0
            while time.monotonic() < until or (looks <= 3 and time.monotonic() < most):
                lines = (child.stdout.read() or b"").splitlines(keepends=True)
                for line in lines:
                    if line.endswith(b"\n") and len(line.split()) == 5:
                        partition, *_, end = line.decode().split()
                        acknowledged[partition] = max(int(end), acknowledged.get(partition, -1))
                for partition in topic.partitions:
                    indexes = topic.read(partition, columns=["record_index"]).to_table()["record_index"].to_pylist()
                    assert indexes == list(range(len(indexes)))
                    assert len(indexes) > max(last.get(partition, -1), acknowledged.get(partition, -1))
                    last[partition] = len(indexes) - 1
                looks += 1
            assert looks > 3
        child.kill()


@pytest.mark.parametrize("where", ["manifest", "log"])
def test_what_is_being_read_when_something_fails_is_read_again(writer, reader, monkeypatch, where):
    """An error or interrupt between reading the log and publishing it neither loses nor duplicates events."""
    topic = writer.create_topic("t")
    topic.append(rows(1))
    seen = reader.topic("t")
    assert times(seen) == [1]
    topic.append(rows(2))
    topic.append(rows(3))
    following = reader._backend

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        if where == "manifest":
            broken.setattr(following.manifest, "change", fail)
        else:
            broken.setattr(following.state.arrivals, "notify", fail)  # the second of three batches is visible by then
        with pytest.raises(KeyboardInterrupt):
            reader.topic("t")
    assert times(seen) == [1, 2, 3]


def test_a_reader_that_was_there_before_the_file_of_pins(root):
    """Scans of a reader that opened before the pin file existed finish although the writer then merged their files."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t", roll={"age": "1h"})
        for number in range(4):
            topic.append(rows(number))
            catalog.seal()
        path = catalog._backend.layout.reader_locks
    path.unlink()
    with aggregator.open(root, read_only=True) as reader:
        early = iter(reader.topic("t").scan())  # its pin is private: there is no writer yet
        with aggregator.open(root) as catalog:
            late = iter(reader.topic("t").scan())
            assert next(late).timestamp == 0
            catalog.compact()
            assert [event.timestamp for event in late] == [1, 2, 3]
        assert [event.timestamp for event in early] == [0, 1, 2, 3]


def test_a_pin_that_the_garbage_collector_lets_go_of(tmp_path):
    """The garbage collector may release a pin in a thread that is taking another, without a deadlock."""
    pins = Pins(tmp_path / "locks", read_only=False)
    dropped, kept = pins.take(3), pins.take(5)

    def collect():
        with pins._lock:
            dropped.release()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert not pins.holds_before(5)
    assert pins.holds_before(6)
    kept.release()
    assert not pins.holds_before(6)
    pins.close()


def test_streams_of_a_topic_that_a_reader_does_not_know_yet(writer, reader):
    """A reader that reads a stream's row before its topic finds the stream a moment later."""
    reader.topics()
    writer.write({"app": "web"}, [{"msg": "hello"}])
    writer.seal()
    writer._backend.streams.keep()
    reader._backend.streams._load()
    assert reader.streams() == [{"app": "web"}]


def test_a_segment_that_comes_again_as_another_file(root):
    """A reader that was open when a segment file was replaced reads the new file's events, once."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        topic.append(rows(1, space="a") + rows(2, space="b"))
        catalog.seal()
        (info,) = topic._topic.segments.view()
        path = catalog._backend.layout.segment(info.number)
    with aggregator.open(root, read_only=True) as reader:
        assert times(reader.topic("t")) == [1, 2]
        esformat.tools.erase(path, root / "less.esdb", ["b"])
        (root / "less.esdb").replace(path)
        aggregator.open(root).close()
        assert times(reader.topic("t")) == [1]


def test_a_log_that_is_ahead_of_the_manifest(writer, root, tmp_path):
    """Topics, partitions and columns found only in the log, as in a copy of a catalog, are there, and stay the same
    when the manifest has them, too.
    """
    copy = tmp_path / "copy"
    writer.create_topic("t").append(rows(1))
    copy.mkdir()
    take_copy(root / "manifest.sqlite", copy / "manifest.sqlite")
    noted = writer._backend.manifest.change()
    writer.create_topic("later").append(rows(2), "p")
    writer.topic("t").append([{"space": "a", "timestamp": 3, "more": 1}])
    shutil.copytree(still(writer).path / "log", copy / "log")
    mark = (copy / "log" / "acknowledged").read_bytes()
    (copy / "log" / "acknowledged").write_bytes(mark[:16] + encode_mark(noted))
    with aggregator.open(copy, read_only=True) as early:
        assert early.topics() == ("t", "later")
        assert times(early.topic("later")) == [2]
        assert early.topic("t").scan().to_table()["more"].to_pylist() == [None, 1]
        writer.rename_topic("later", "renamed")
        take_copy(root / "manifest.sqlite", copy / "next")
        (copy / "next").replace(copy / "manifest.sqlite")
        mark = (root / "log" / "acknowledged").read_bytes()
        (copy / "log" / "acknowledged").write_bytes(mark)
        assert early.topics() == ("t", "renamed")
        assert times(early.topic("renamed")) == [2]
        assert times(early.topic("t")) == [1, 3]


def test_a_reader_notices_an_older_manifest(root):
    """If an older manifest is restored, a reader reads events from the log instead of the segment it knew."""
    with aggregator.open(root) as writer:
        writer.create_topic("t").append(rows(1, 2))
        writer.create_topic("other").append(rows(1))  # keeps the log
    older = (root / "manifest.sqlite").read_bytes()
    with aggregator.open(root, read_only=True) as reader:
        seen = reader.topic("t")
        with aggregator.open(root) as writer:
            writer.topic("t").append(rows(3))
            writer.seal("t")
            assert times(seen) == [1, 2, 3]
        for path in root.glob("manifest.sqlite*"):
            path.unlink()
        (root / "manifest.sqlite").write_bytes(older)
        with aggregator.open(root) as writer:
            assert times(seen) == times(writer.topic("t")) == [1, 2, 3]
            writer.create_topic("later").append(rows(1))
            writer.topic("t").append(rows(4))
            assert times(seen) == [1, 2, 3, 4]
            writer.seal("t")
            assert times(seen) == [1, 2, 3, 4]
            assert times(reader.topic("other")) == [1]
