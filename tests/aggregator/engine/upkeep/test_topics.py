"""Deleted and renamed topics: what is left, what comes back, and what a kill between the steps leaves."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from effort import long

import aggregator
from aggregator import InvalidRequestError, TopicExistsError, TopicNotFoundError

pytestmark = pytest.mark.usefixtures("quiet")

OLD = [{"space": "a", "timestamp": time, "data": b"doomed"} for time in range(100)]
NEW = [{"space": "b", "timestamp": time, "data": b"fresh"} for time in range(7)]
ROLL = {"age": "1h"}


def filled(path: Path) -> None:
    """A catalog with a topic of sealed, unsealed and erased events and a stream, and another topic."""
    with aggregator.open(path) as catalog:
        topic = catalog.create_topic("doomed", roll=ROLL)
        topic.append(OLD, producer="p", sequence=1)
        catalog.seal("doomed")
        topic.append(OLD, "other")
        topic.append([{**OLD[0], "space": "gone"}])
        topic.erase("gone")
        catalog.write({"job": "x"}, [{"msg": "doomed"}], topic="doomed")
        catalog.create_topic("kept", roll=ROLL).append(NEW)


def files_with(path: Path, text: bytes) -> list[str]:
    return sorted(
        str(each.relative_to(path)) for each in path.rglob("*") if each.is_file() and text in each.read_bytes()
    )


def counts(catalog: aggregator.Catalog) -> dict[str, int]:
    return {name: catalog.topic(name).scan().count() for name in catalog.topics()}


def test_deleted_topic_is_gone(tmp_path: Path) -> None:
    """A deleted topic is gone immediately, also from the disk, and stays gone; its name can be reused."""
    filled(tmp_path)
    with aggregator.open(tmp_path) as catalog:
        stale = catalog.topic("doomed")
        catalog.delete_topic("doomed")
        assert counts(catalog) == {"kept": 7}
        assert catalog.streams() == []
        with pytest.raises(TopicNotFoundError):
            catalog.topic("doomed")
        with pytest.raises(TopicNotFoundError):
            stale.append(NEW)
        with pytest.raises(TopicNotFoundError):
            stale.scan().count()
        with pytest.raises(TopicNotFoundError):
            stale.erase("a")
        with pytest.raises(TopicNotFoundError):
            stale.set_policy(roll=ROLL)
        with pytest.raises(TopicNotFoundError):
            catalog.delete_topic("doomed")
        catalog.seal()
        assert files_with(tmp_path, b"doomed") == []
        assert len(list((tmp_path / "segments").rglob("*.esdb"))) == 1
        again = catalog.create_topic("doomed", indexes=["kind"])
        assert not again.append(NEW, producer="p", sequence=1).duplicate
    with aggregator.open(tmp_path) as catalog:
        assert counts(catalog) == {"kept": 7, "doomed": 7}
        assert catalog.problems() == []


def test_deleted_topic_frees_memory_and_room(tmp_path: Path) -> None:
    """Unsealed events of a deleted topic no longer count as used memory."""
    with aggregator.open(tmp_path) as catalog:
        catalog.create_topic("doomed", roll=ROLL).append(OLD)
        assert catalog.stats()["memory"]["unsealed"] > 0
        catalog.delete_topic("doomed")
        assert catalog.stats()["memory"]["unsealed"] == 0


def test_open_scan_outlives_its_topic(tmp_path: Path) -> None:
    """A scan begun before the deletion returns everything; the files are deleted when it ends."""
    filled(tmp_path)
    with aggregator.open(tmp_path) as catalog:
        catalog.seal()
        batches = catalog.topic("doomed").scan().batches()
        read = len(next(batches))
        catalog.delete_topic("doomed")
        assert list((tmp_path / "segments").rglob("*.esdb"))
        read += sum(map(len, batches))
        assert read == 201
        catalog.retain()
        assert len(list((tmp_path / "segments").rglob("*.esdb"))) == 1


def test_reader_that_follows(tmp_path: Path) -> None:
    """A reader in the same catalog sees a deletion, a new topic of that name, and a rename."""
    filled(tmp_path)
    with aggregator.open(tmp_path) as catalog, aggregator.open(tmp_path, read_only=True) as reader:
        assert counts(reader) == {"doomed": 201, "kept": 7}
        assert reader.streams() == [{"job": "x"}]
        topic = reader.topic("doomed")
        catalog.delete_topic("doomed")
        assert counts(reader) == {"kept": 7}
        assert reader.streams() == []
        with pytest.raises(TopicNotFoundError):
            topic.scan().count()
        catalog.create_topic("doomed").append(NEW)
        catalog.rename_topic("kept", "moved")
        assert counts(reader) == {"moved": 7, "doomed": 7}


def test_positions_outlive_a_deleted_topic(tmp_path: Path) -> None:
    """A position that counted a deleted topic continues, and skips no record of a new topic with its name."""
    filled(tmp_path)
    with aggregator.open(tmp_path) as catalog:
        catalog.write({"job": "y"}, [{"msg": "one"}])
        selection = catalog.query("SELECT")
        list(selection)
        position = selection.position
        catalog.delete_topic("doomed")
        catalog.write({"job": "z"}, [{"msg": "two"}], topic="doomed")
        found = catalog.query(f'SELECT POSITION "{position}"').to_table()
        assert found.column("data").to_pylist() == [b"two"]


def test_pipes_go_on(tmp_path: Path) -> None:
    """A pipe whose source topic is deleted continues."""
    with aggregator.open(tmp_path) as catalog:
        catalog.query("CREATE PIPE p FROM job=x")
        catalog.write({"job": "x"}, [{"msg": "one"}], topic="doomed")
        catalog.delete_topic("doomed")
        catalog.write({"job": "x"}, [{"msg": "two"}], topic="next")
        tail = catalog.tail("SELECT FROM logrange.pipe=p POSITION HEAD", timeout_s=120)
        for record in tail:
            if bytes(record.data) == b"two":
                break
        else:
            pytest.fail("the pipe stands still")


def test_streams_topic_is_protected(tmp_path: Path) -> None:
    """The topic that streams and pipes write to by name can be neither deleted nor renamed."""
    with aggregator.open(tmp_path) as catalog:
        catalog.write({"job": "x"}, [{"msg": "one"}])
        catalog.create_topic("t")
        for act in (
            lambda: catalog.delete_topic("logs"),
            lambda: catalog.rename_topic("logs", "x"),
            lambda: catalog.rename_topic("t", "logs"),
        ):
            with pytest.raises((InvalidRequestError, TopicExistsError), match="logs"):
                act()
        assert counts(catalog) == {"logs": 1, "t": 0}


def test_renamed_topic(tmp_path: Path) -> None:
    """A renamed topic keeps its contents, under the new name only; segments, log and a rebuilt manifest agree."""
    filled(tmp_path)
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.rename_topic("doomed", "saved")
        assert topic.name == "saved"
        assert [stream.topic for stream in catalog._backend.streams.select(None)] == ["saved"]
        with pytest.raises(TopicNotFoundError):
            catalog.topic("doomed")
        with pytest.raises(TopicExistsError):
            catalog.rename_topic("saved", "kept")
        assert catalog.rename_topic("kept", "kept").name == "kept"
        catalog.create_topic("doomed").append(NEW)
        catalog.rename_topic("kept", "third")  # and two topics that swap names
        catalog.rename_topic("doomed", "kept")
        catalog.rename_topic("third", "doomed")
        expected = {"saved": 201, "doomed": 7, "kept": 7}
        assert counts(catalog) == expected
    with aggregator.open(tmp_path) as catalog:
        assert counts(catalog) == expected
    (tmp_path / "manifest.sqlite").unlink()
    assert aggregator.rebuild_manifest(tmp_path).missing == ()
    with aggregator.open(tmp_path) as catalog:
        assert counts(catalog) == expected
        assert catalog.problems() == []


@pytest.mark.parametrize("facts", [True, False])
def test_rebuilt_manifest_knows_what_was_deleted(tmp_path: Path, *, facts: bool) -> None:
    """With its backup, a rebuilt manifest restores no deleted topic; without it, remaining files bring it back."""
    filled(tmp_path)
    with aggregator.open(tmp_path) as catalog:
        catalog.seal()
        pinned = catalog.topic("doomed").scan().batches()
        next(pinned)  # its files stay
        catalog.delete_topic("doomed")
        catalog.create_topic("doomed").append(NEW)
        catalog.seal()
    assert len(list((tmp_path / "segments").rglob("*.esdb"))) > 2
    (tmp_path / "manifest.sqlite").unlink()
    if not facts:
        (tmp_path / "catalog.facts").unlink()
    report = aggregator.rebuild_manifest(tmp_path)
    assert (report.missing == ()) is facts
    with aggregator.open(tmp_path) as catalog:
        found = counts(catalog)
        assert found.pop("kept") == 7
        if facts:
            assert found == {"doomed": 7}
            assert len(list((tmp_path / "segments").rglob("*.esdb"))) == 2
            assert catalog.problems() == []
        else:
            assert found["doomed"] == 7
            assert sorted(found.values())[-1] == 201


def test_old_copy_of_the_manifest(tmp_path: Path) -> None:
    """If an older manifest is restored, its backup says that the topic was deleted."""
    filled(tmp_path)
    before = (tmp_path / "manifest.sqlite").read_bytes()
    with aggregator.open(tmp_path) as catalog:
        catalog.delete_topic("doomed")
    (tmp_path / "manifest.sqlite").write_bytes(before)
    with aggregator.open(tmp_path) as catalog:
        assert counts(catalog) == {"kept": 7}


STEPS = (
    "aggregator.storage.log.log:Log.wait",
    "aggregator.storage.manifest:Manifest.delete_topic",
    "aggregator.storage.state.state:CatalogState.delete_topic",
    "aggregator.storage.manifest.backup:ManifestBackup.write",
    "aggregator.engine.upkeep.removal:Removal.sweep",
    "aggregator.storage.log.log:Log.roll",
    "aggregator.storage.manifest:Manifest.scrub",
)
KILLED = """
import importlib, os, signal, sys
import aggregator
from esformat.parts import hide_pandas
hide_pandas()
root, *steps = sys.argv[1:]
with aggregator.open(f"{root}/loaded") as catalog:  # whatever the children need is imported once
    catalog.create_topic("t").append([{"space": "a", "timestamp": 1}])
    catalog.seal()
    catalog.delete_topic("t")
for number, step in enumerate(steps):
    if os.fork() == 0:
        path = f"{root}/{number}"
        break
else:
    print([os.WTERMSIG(os.wait()[1]) for _ in steps])
    sys.exit()
module, name = step.split(":")
owner = getattr(importlib.import_module(module), name.split(".")[0])
method = name.split(".")[1]
def kill(*args):
    os.kill(os.getpid(), signal.SIGKILL)
catalog = aggregator.open(path)
catalog.seal()
catalog._backend.stop_background()
setattr(owner, method, kill)
catalog.delete_topic("doomed")
"""


@long
def test_kill_between_the_steps(tmp_path: Path) -> None:
    """After a kill the topic is wholly there or wholly gone, also with a rebuilt manifest, and leaves no file."""
    filled(tmp_path / "0")
    for number in range(1, len(STEPS)):
        shutil.copytree(tmp_path / "0", tmp_path / str(number))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), *STEPS], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == str([int(signal.SIGKILL)] * len(STEPS))
    for number in range(len(STEPS)):
        path = tmp_path / str(number)
        expected = {"doomed": 201, "kept": 7} if number < 2 else {"kept": 7}
        with aggregator.open(path) as catalog:
            assert counts(catalog) == expected
            assert catalog.problems() == []
            catalog.retain()
            assert number < 2 or len(list((path / "segments").rglob("*.esdb"))) == 1
        (path / "manifest.sqlite").unlink()
        aggregator.rebuild_manifest(path)
        with aggregator.open(path) as catalog:
            assert counts(catalog) == expected
