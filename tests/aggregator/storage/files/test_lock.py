"""The writer's lock across forks, and when its files are deleted or replaced."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from still import files_of

import aggregator

ROOT = Path(__file__).parents[4]
FORKING = """
import os, sys, time
from pathlib import Path
from aggregator.storage.files.lock import WriterLock, is_held

path = Path(sys.argv[1])
lock = WriterLock(path)
ready, done = os.pipe(), os.pipe()
child = os.fork()
if not child:
    os.close(done[1])
    os.write(ready[1], b"x")
    os.read(done[0], 1)  # until the parent ends
    os._exit(0)
os.read(ready[0], 1)
assert is_held(path)
lock.release()
print(is_held(path))
WriterLock(path).release()
"""


def test_a_forked_process_does_not_keep_it(tmp_path):
    """Once a catalog is closed, another process can open it, even if a forked child lives on."""
    command = [sys.executable, "-c", FORKING, str(tmp_path / "lock")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


# ------------------------------------------------------------ files that somebody deletes under a writer


def events(space, count=1):
    return [{"space": space, "timestamp": n, "data": b"x"} for n in range(count)]


def spaces(root):
    with aggregator.open(root) as catalog:
        assert catalog.problems() == []
        return sorted(event.space for event in catalog.topic("t").scan())


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


@pytest.mark.parametrize("name", ["writer.lock", "readers.lock"])
def test_a_lock_that_is_deleted_is_taken_again(root, name):
    """Deleting `*.lock` files stops no writer and admits no other."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events("a"))
        (root / name).unlink()
        topic.append(events("b"))
        with pytest.raises(aggregator.CatalogLockedError, match="is open for writing by process"):
            aggregator.open(root)
        (root / name).write_bytes(b"")
        topic.append(events("c"))
        with pytest.raises(aggregator.CatalogLockedError):
            aggregator.open(root)
    assert spaces(root) == ["a", "b", "c"]


@pytest.mark.parametrize("open_still", [True, False], ids=["open", "closed"])
def test_a_second_writer_ends_the_first(root, open_still):
    """If the lock was deleted and another writer opened the catalog, the first acknowledges and changes nothing more
    and says why; everything acknowledged is there.
    """
    first = aggregator.open(root, durability="none")
    topic = first.create_topic("t")
    topic.append(events("first"))
    first.seal()
    topic.append(events("first"))
    (root / "writer.lock").unlink()
    second = aggregator.open(root)
    second.topic("t").append(events("second"))
    if not open_still:
        second.close()
    for _ in range(2):
        with pytest.raises(aggregator.LogFailedError, match=r"must stop writing: writer\.lock was deleted"):
            topic.append(events("lost"))
    for act in (
        lambda: first.create_topic("u"), lambda: topic.set_policy(retention={"segments": 1}), lambda: first.seal(),
        lambda: topic.erase("second"),
    ):  # fmt: skip
        with pytest.raises(aggregator.CatalogLockedError, match="another one has opened the catalog"):
            act()
    assert first.trouble is not None
    if open_still:
        second.topic("t").append(events("second"))
        second.seal()
    second.close()
    first.close()
    assert spaces(root) == ["first", "first", *["second"] * (2 if open_still else 1)]


def test_a_directory_that_is_moved(root):
    """Nothing is acknowledged into a moved directory, nor into the one that has its name now, which stays unchanged."""
    with aggregator.open(root) as catalog:
        catalog.create_topic("t").append(events("old"))
        catalog.seal()
    copy = root.with_name("copy")
    shutil.copytree(root, copy)
    catalog = aggregator.open(root)
    topic = catalog.topic("t")
    topic.append(events("moved"))
    topic.set_policy(retention={"segments": 1})
    pin = iter(topic.scan().batches())
    next(pin)
    topic.append(events("moved"))
    catalog.seal()
    root.rename(root.with_name("moved"))
    with pytest.raises(aggregator.LogFailedError, match="directory was moved or replaced"):
        topic.append(events("lost"))
    copy.rename(root)
    before = {path: file.st_mtime_ns for path, file in files_of(root).items()}
    with pytest.raises(aggregator.LogFailedError, match="directory was moved or replaced"):
        topic.append(events("lost"))
    pin.close()
    with pytest.raises(aggregator.CatalogLockedError, match="deleted or replaced"):
        catalog.retain()
    catalog.close()
    assert {path: file.st_mtime_ns for path, file in files_of(root).items()} == before
    assert spaces(root) == ["old"]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("end", ["", "-wal"])
def test_a_manifest_that_is_replaced(root, end):
    """If the manifest is replaced, as by `rsync --delete`, its changes fail, and no event is reported as sealed."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events("a"))
        manifest = root / f"manifest.sqlite{end}"
        aside = root.with_name("aside")
        shutil.copy(manifest, aside)
        aside.replace(manifest)
        topic.append(events("b"))
        with pytest.raises(aggregator.CatalogLockedError, match="manifest was deleted or replaced"):
            catalog.seal()
        assert topic.scan().count() == 2
    assert spaces(root) == ["a", "b"]


@pytest.mark.parametrize("durability", ["fsync", "none"])
def test_a_log_that_is_deleted(root, durability):
    """Nothing is acknowledged into a deleted log file."""
    with aggregator.open(root, durability=durability) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events("a"))
        for path in (root / "log").glob("*.log"):
            path.unlink()
        with pytest.raises(aggregator.LogFailedError, match="the newest file of the log was deleted"):
            topic.append(events("b"))
        catalog.seal()
    with aggregator.open(root) as catalog:
        assert [problem.subject for problem in catalog.problems()] == ["log"]  # its missing file is reported
        assert [event.space for event in catalog.topic("t").scan()] == ["a"]


@pytest.mark.usefixtures("quiet")
def test_pins_of_readers_outlive_the_lock_file(root):
    """A reader's scan keeps its files although `readers.lock` was deleted; so does a later scan."""
    with ExitStack() as readers, aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events("a"))
        catalog.seal()
        scans = []
        for _ in range(2):
            reader = readers.enter_context(aggregator.open(root, read_only=True))
            scans.append(iter(reader.topic("t").scan().batches()))
            next(scans[-1])
            (root / "readers.lock").unlink(missing_ok=True)
            catalog.retain()
        topic.set_policy(retention={"segments": 1})
        topic.append(events("b"))
        catalog.seal()
        for scan in scans:
            assert catalog.retain().waiting_bytes > 0
            assert len(list((root / "segments").glob("*/*.esdb"))) == 2
            scan.close()
            del scan
        catalog.retain()
