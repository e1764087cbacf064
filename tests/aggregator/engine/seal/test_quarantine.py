"""Events that cannot be sealed are quarantined, reported, erased, retained, retried, dropped; no other event waits."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import time

import pyarrow as pa
import pytest
from crash_image import crash_image
from effort import long
from log_poison import LONG, events, log_by_hand, newest_columns, stored_anywhere

import aggregator
import esformat
from aggregator.cli import run
from aggregator.engine.seal import process as sealing_process
from aggregator.policy import Tuning
from esformat.parts import EventSchema, Field
from esformat.write import intake

pytestmark = pytest.mark.usefixtures("quiet")
SECRET = "top-secret-name"
BAD = SECRET + "x" * LONG
"""A space that no segment accepts: rows with it cannot be sealed, whatever Arrow can do."""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def row(space, timestamp, data=b""):
    return {"space": space, "timestamp": timestamp, "data": data}


def poisoned(root, rows, topic="t", before=3, **options):
    """Append good events, sealed and unsealed, then write these rows to the topic's log. Returns their first index."""
    with aggregator.open(root) as catalog:
        made = catalog.create_topic(topic) if topic not in catalog.topics() else catalog.topic(topic)
        made.append([row("good", 1, b"sealed")])
        catalog.seal()
        made.append([row("good", 2 + number, b"plain") for number in range(before)])
    columns = newest_columns(root, topic)
    return log_by_hand(root, topic, events(columns, rows), **options)


MIXED = [row("near", 10), row(BAD, 11, b"erase-me"), row("near", 12), row("far", 13)]


@pytest.mark.parametrize("sealing", ["thread", "process"])
def test_neighbours_are_sealed(root, sealing, caplog):
    """Only the row that cannot be sealed is quarantined and reported, and the log releases it."""
    first = poisoned(root, MIXED)
    caplog.set_level(logging.ERROR, "aggregator")
    with aggregator.open(root, sealing=sealing) as catalog:
        topic = catalog.topic("t")
        catalog.seal()
        assert [event.timestamp for event in topic.scan()] == [1, 2, 3, 4, 10, 12, 13]
        assert topic.ends() == {"0": first + 4}
        (entry,) = catalog.quarantine.entries()
        assert (entry.topic, entry.partition, entry.rows, entry.first_index, entry.last_index) == ("t", "0", 1, 5, 5)
        assert "70015 bytes, more than 65536" in entry.reason
        (problem,) = catalog.problems()
        assert "record indexes 5 to 5" in problem.message
        assert "'t'" in caplog.text
        assert "record indexes 5 to 5" in caplog.text
        stats = topic.stats()
        assert (stats["rows"], stats["unsealed_rows"], stats["quarantined_rows"]) == (7, 0, 1)
        assert stats["quarantined_bytes"] == entry.size_bytes
        assert catalog.trouble is None
        assert catalog.stats()["memory"]["unsealed"] == 0
        assert [event["record_index"] for event in topic.read().to_table().to_pylist()] == [0, 1, 2, 3, 4, 6, 7]
        assert topic.append([row("later", 20)]).first == first + 4
        catalog.seal()
        assert catalog.quarantine.events(entry.number).to_pylist()[0]["data"] == b"erase-me"
    with aggregator.open(root) as catalog:
        assert len(catalog.problems()) == len(catalog.quarantine.entries()) == 1
        assert catalog.topic("t").scan().count() == 8
    with aggregator.open(root, read_only=True) as catalog:
        assert [entry.rows for entry in catalog.quarantine.entries()] == [1]
        assert catalog.topic("t").stats()["quarantined_rows"] == 1
        with pytest.raises(aggregator.ReadOnlyError):
            catalog.quarantine.drop(1)


@pytest.mark.background
def test_by_itself(root):
    """Background work quarantines events without a call and leaves no trouble that would make a server unready."""
    poisoned(root, MIXED)
    with aggregator.open(root, tuning=Tuning(tick_s=0.05)) as catalog:
        topic = catalog.topic("t")
        topic.set_policy(roll={"rows": 1})
        deadline = time.monotonic() + 60
        while topic.stats()["unsealed_rows"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert catalog.trouble is None
        assert [entry.rows for entry in catalog.quarantine.entries()] == [1]


def test_erasing_completes(root):
    """Erasing a space completes although its events cannot be sealed, and removes no other events."""
    poisoned(root, MIXED)
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        topic.erase(BAD)
        assert catalog.compact().erased == (BAD,)
        assert topic.erasures() == ()
        assert topic.traces(BAD).gone
        assert [event.timestamp for event in topic.scan()] == [1, 2, 3, 4, 10, 12, 13]
        assert catalog.quarantine.entries() == catalog.problems() == []
        assert stored_anywhere(root, SECRET.encode()) == stored_anywhere(root, b"erase-me") == []
    assert stored_anywhere(root, SECRET.encode()) == stored_anywhere(root, b"erase-me") == []


def test_erasing_what_lies_beside_poison(root):
    """Erasing another space of the topic does not wait, and none of its text remains in the catalog's directory."""
    poisoned(root, [row("ada-lovelace", 10, b"erase-me"), row(BAD, 11), row("ada-lovelace", 12)])
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        assert topic.erase("ada-lovelace").events == 2
        assert catalog.compact().erased == ("ada-lovelace",)
        assert topic.traces("ada-lovelace").gone
        assert [entry.rows for entry in catalog.quarantine.entries()] == [1]
        assert stored_anywhere(root, b"ada-lovelace") == stored_anywhere(root, b"erase-me") == []


def unreadable(columns, space):
    """A batch without a time, which the log accepts but no reader of the log does."""
    arrays = [[space], [""], [None], [b"erase-me"]]
    kinds = [field.type for field in columns.arrow]
    return pa.RecordBatch.from_arrays(list(map(pa.array, arrays, kinds)), names=columns.arrow.names)


@pytest.mark.parametrize("later", [0, 1])
def test_a_frame_of_the_log_that_cannot_be_read(root, later):
    """An unreadable log frame is reported and its file quarantined; the log releases it; erasing does not wait."""
    with aggregator.open(root) as catalog:
        catalog.create_topic("t").append([row("ada-lovelace", 1), row("other", 2)])
    first = log_by_hand(root, "t", unreadable(newest_columns(root, "t"), "ada-lovelace"))
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        for number in range(later):
            assert topic.append([row("other", 3 + number)]).first == first + 1
        topic.erase("ada-lovelace")
        assert catalog.compact().erased == ("ada-lovelace",)
        assert topic.traces("ada-lovelace").gone
        (entry,) = catalog.quarantine.entries()
        assert stored_anywhere(root, b"ada-lovelace") == [f"quarantine/{entry.name}"]
        catalog.quarantine.drop(entry.name)
        assert stored_anywhere(root, b"ada-lovelace") == []
        assert topic.ends() == {"0": first + 1 + later}
    with aggregator.open(root) as catalog:
        assert catalog.topic("t").append([row("other", 9)]).first == first + 1 + later


def test_erasing_what_is_in_quarantine(root):
    """Erasing a space removes its events from quarantined batches; other events stay, and its text is gone."""
    other = "other" + "y" * LONG
    poisoned(root, [row("near", 10), row(BAD, 11, b"erase-me"), row(other, 12, b"keep-me"), row("far", 13)])
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        catalog.seal()
        assert [entry.rows for entry in catalog.quarantine.entries()] == [2]
        traces = topic.traces(BAD)
        assert (traces.set_aside, traces.gone) == (1, False)
        assert topic.erase(BAD).partitions == {"0": 8}
        assert catalog.quarantine.events(1)["data"].to_pylist() == [b"keep-me"]
        assert catalog.compact().erased == (BAD,)
        (entry,) = catalog.quarantine.entries()
        assert (entry.rows, entry.first_index, entry.last_index, entry.reason) == (1, 6, 6, "InvalidEventError")
        assert catalog.quarantine.events(entry.number)["data"].to_pylist() == [b"keep-me"]
        assert topic.traces(BAD).gone
        assert topic.traces(other).set_aside == 1
        assert stored_anywhere(root, SECRET.encode()) == stored_anywhere(root, b"erase-me") == []


def test_a_file_that_cannot_be_read(root):
    """Erasing drops a damaged quarantined batch as a whole, without waiting, and reports that."""
    poisoned(root, MIXED)
    with aggregator.open(root) as catalog:
        catalog.seal()
        (path,) = (root / "quarantine").iterdir()
        path.write_bytes(path.read_bytes()[:-50])
        topic = catalog.topic("t")
        with pytest.raises(aggregator.CorruptLogError, match="checksum"):
            catalog.quarantine.events(1)
        topic.erase(BAD)
        assert catalog.compact().erased == (BAD,)
        assert catalog.quarantine.entries() == []
        (problem,) = catalog.problems()
        assert "record indexes 5 to 5" in problem.message
        assert problem.action == "dropped"
        assert stored_anywhere(root, b"erase-me") == []


def test_nothing_but_poison(root):
    """A whole batch can be quarantined; other topics and partitions are sealed meanwhile."""
    first = poisoned(root, [row(BAD, 11)] * 300, before=0, producer="web", sequence=7)
    with aggregator.open(root) as catalog:
        catalog.create_topic("u").append([row("good", 1)])
        catalog.topic("t").append([row("good", 1)], "1")
        assert catalog.seal() == 2
        (entry,) = catalog.quarantine.entries()
        assert (entry.rows, entry.first_index, entry.last_index) == (300, first, first + 299)
        assert catalog.topic("t").scan().count() == 2
        assert catalog.topic("t").append([row("good", 5)]).first == first + 300


ABORTS = """
import os, resource
import pyarrow.compute as pc
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

def aborting(real):
    def write(path, tables, **options):
        if pc.any(pc.equal(tables[0]["space"], "abort")).as_py():
            os.abort()
        return real(path, tables, **options)
    return write
"""
"""End the process with SIGABRT on writing events of a space, as a bug in a library would."""
HELPER = (
    ABORTS
    + """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from esformat.parts import hide_pandas; hide_pandas()
from aggregator.engine.seal import worker as sealing_helper
sealing_helper.write_segment = aborting(sealing_helper.write_segment)
sealing_helper.run(int(sys.argv[1]))
"""
)


@long
@pytest.mark.slow
def test_events_that_end_the_process(root, monkeypatch):
    """Events that kill the sealing process are quarantined the second time."""
    monkeypatch.setattr(sealing_process, "_PROGRAM", HELPER)
    with aggregator.open(root, sealing="process") as catalog:
        topic = catalog.create_topic("t")
        topic.append([row("good", 1)])
        topic.append([row("abort", 2)])
        with pytest.raises(aggregator.SealingFailedError, match="signal 6"):
            catalog.seal()
        catalog.seal()
        (entry,) = catalog.quarantine.entries()
        assert (entry.first_index, entry.rows) == (1, 1)
        assert "signal 6" in entry.reason
        assert [event.timestamp for event in topic.scan()] == [1]


@long
def test_events_that_end_the_catalog(root, tmp_path):
    """If sealing in a thread kills the process twice at the same events, the third opening quarantines them."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        topic.append([row("good", 1)])
        topic.append([row("abort", 2)])
    program = (
        ABORTS
        + f"""
import sys, aggregator
from aggregator.engine.seal import process as sealing_process, sealer as sealing
sealing.write_segment = aborting(sealing.write_segment)
sealing_process._PROGRAM = {HELPER!r}
with aggregator.open(sys.argv[1]) as catalog:
    catalog.seal()
"""
    )
    ends = [subprocess.run([sys.executable, "-c", program, str(root)], check=False).returncode for _ in range(3)]
    assert ends == [-6, -6, 0]
    with aggregator.open(root) as catalog:
        assert [(entry.first_index, entry.rows) for entry in catalog.quarantine.entries()] == [(1, 1)]
        assert [event.timestamp for event in catalog.topic("t").scan()] == [1]
        assert not (root / "sealing.json").exists()


@long
def test_too_many_columns(root):
    """If no segment can have a family's newest columns, only the batches with these columns are quarantined."""
    with aggregator.open(root) as catalog:
        catalog.create_topic("t").append([row("good", 1)])
    wide = EventSchema(
        (Field("data", pa.binary(), True, False), *(Field(f"c{n}", pa.int64(), True, False) for n in range(4100)))
    )
    log_by_hand(
        root, "t", events(wide, [row("wide", number) | {"c4099": number} for number in range(40)]), columns=wide
    )
    with aggregator.open(root) as catalog:
        assert catalog.seal() == 1
        assert [event.timestamp for event in catalog.topic("t").scan()] == [1]
        (entry,) = catalog.quarantine.entries()
        assert "columns" in entry.reason
        assert catalog.quarantine.events(entry.number)["c4099"].to_pylist() == list(range(40))
        catalog.topic("t").erase("wide")
        assert catalog.compact().erased == ("wide",)
        assert catalog.quarantine.entries() == []


def test_a_system_that_fails(root, monkeypatch):
    """If nothing can be sealed, the error is raised and no event is quarantined."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        topic.append([row("good", 1)])
        (root / "segments" / "000000").write_bytes(b"")  # in place of the folder
        with pytest.raises(OSError, match="000000"):
            catalog.seal()
        assert catalog.quarantine.entries() == []
        (root / "segments" / "000000").unlink()
        assert catalog.seal() == 1


def test_closing_does_not_wait(root):
    """The search for unsealable events is abandoned if the catalog closes; the next opening does it."""
    poisoned(root, MIXED)
    with aggregator.open(root) as catalog:
        catalog._backend.upkeep.stop()
        with pytest.raises(esformat.ClosedError, match="being closed"):
            catalog.seal()
        assert catalog.quarantine.entries() == []
    with aggregator.open(root) as catalog:
        catalog.seal()
        assert [entry.rows for entry in catalog.quarantine.entries()] == [1]


@pytest.mark.parametrize("how", ["bytes", "age"])
def test_retention_counts_and_removes_it(root, how):
    """A quarantined batch expires like the segment it would have been: after older ones and before newer ones."""
    poisoned(root, MIXED)
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        catalog.seal()
        (entry,) = catalog.quarantine.entries()
        all_of_it = entry.size_bytes + topic.stats()["sealed_bytes"]
        topic.set_policy(retention={"bytes": all_of_it})
        assert topic.retain().removed == ()
        topic.append([row("good", time.time_ns() // 1000)])
        catalog.seal()
        topic.set_policy(retention={"bytes": None, "age": "1h"} if how == "age" else {"bytes": all_of_it // 2})
        removed = topic.retain().removed
        assert [(one.first_index, one.quarantined, one.reason) for one in removed] == [
            (0, False, how), (1, False, how), (5, True, how),
        ]  # fmt: skip
        assert [event["record_index"] for event in topic.read().to_table().to_pylist()] == [8]
        assert catalog.quarantine.entries() == catalog.problems() == []
        assert list((root / "quarantine").iterdir()) == []


def test_drop(root):
    """A batch that an append would refuse, too, stays in quarantine until dropped."""
    poisoned(root, MIXED)
    with aggregator.open(root) as catalog:
        catalog.seal()
        with pytest.raises(esformat.InvalidEventError, match="more than"):
            catalog.quarantine.retry(1)
        assert len(catalog.quarantine.entries()) == 1
        catalog.quarantine.drop(1)
        assert catalog.quarantine.entries() == catalog.problems() == []
        with pytest.raises(aggregator.InvalidRequestError, match="no batch 1 is in quarantine"):
            catalog.quarantine.drop(1)


def upgraded(root, monkeypatch):
    """Seal longer keys with a version that only accepts 8 bytes, then continue with this version."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        topic.append([row("short", 1), row("a-longer-one", 2), row("another-long-one", 3)])
        with monkeypatch.context() as patch:
            patch.setattr(intake, "MAX_KEY_BYTES", 8)
            catalog.seal()
        assert [event.timestamp for event in topic.scan()] == [1]


def test_retry(root, monkeypatch):
    """Events that can be sealed after an upgrade are appended again once, except those erased meanwhile."""
    upgraded(root, monkeypatch)
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        topic.erase("another-long-one")
        receipt = catalog.quarantine.retry(1)
        assert (receipt.first, receipt.last) == (3, 3)
        catalog.seal()
        assert [event.timestamp for event in topic.scan()] == [1, 2]
        assert catalog.quarantine.entries() == catalog.problems() == []


def test_a_retry_that_was_interrupted(root, monkeypatch):
    """After a crash between append and drop, the next retry appends nothing."""
    upgraded(root, monkeypatch)
    with aggregator.open(root) as catalog:
        with monkeypatch.context() as patch:
            patch.setattr(catalog._backend.quarantine, "remove", lambda _: None)
            first = catalog.quarantine.retry(1)
        again = catalog.quarantine.retry(1)
        assert (again.first, again.last, again.duplicate) == (first.first, first.last, True)
        assert catalog.topic("t").scan().count() == 3
        assert catalog.quarantine.entries() == []


@pytest.mark.parametrize("step", ["file", "row", "log"])
def test_a_crash_on_the_way(root, tmp_path, monkeypatch, step):
    """After a crash at any step of quarantining, each event is there once: in the log or in quarantine."""
    poisoned(root, MIXED)
    image = tmp_path / "image"
    with aggregator.open(root) as catalog:
        sealer = catalog._backend.sealer
        owner, name = {
            "file": (catalog._backend.manifest, "apply"), "row": (sealer.quarantine, "keep"),
            "log": (sealer, "release_log"),
        }[step]  # fmt: skip
        real = getattr(owner, name)

        def copying(*given, **named):
            if not image.exists():
                crash_image(root, image)
            return real(*given, **named)

        monkeypatch.setattr(owner, name, copying)
        catalog.seal()
    with aggregator.open(image) as catalog:
        catalog.seal()
        assert [entry.rows for entry in catalog.quarantine.entries()] == [1]
        assert len(list((image / "quarantine").iterdir())) == 1
        assert [event.timestamp for event in catalog.topic("t").scan()] == [1, 2, 3, 4, 10, 12, 13]


def test_a_rebuilt_manifest_knows_it(root):
    """A rebuilt manifest has the same quarantine entries, which it reads from the files."""
    poisoned(root, MIXED)
    with aggregator.open(root) as catalog:
        catalog.seal()
        before = catalog.quarantine.entries()
    (root / "manifest.sqlite").unlink()
    report = aggregator.rebuild_manifest(root)
    assert report.quarantined == ()
    with aggregator.open(root) as catalog:
        assert catalog.quarantine.entries() == before
        catalog.seal()
        assert catalog.quarantine.entries() == before
        assert catalog.topic("t").scan().count() == 7


def test_an_old_copy_of_the_manifest(root, tmp_path):
    """A quarantined batch that an old manifest does not know, and that is nowhere else, is taken in."""
    poisoned(root, MIXED)
    shutil.copy(root / "manifest.sqlite", tmp_path / "old")
    with aggregator.open(root) as catalog:
        catalog.seal()
    with aggregator.open(root) as catalog:  # which releases the log
        before = catalog.quarantine.entries()
        assert catalog.topic("t").traces(BAD).logged == 0
    shutil.copy(tmp_path / "old", root / "manifest.sqlite")
    with aggregator.open(root) as catalog:
        assert catalog.quarantine.entries() == before
        assert catalog.topic("t").scan().count() == 7
        assert catalog.topic("t").append([row("good", 1)]).first >= 8


def test_a_missing_file(root):
    """A batch whose file was deleted is given up, and that is reported."""
    poisoned(root, MIXED)
    with aggregator.open(root) as catalog:
        catalog.seal()
    (path,) = (root / "quarantine").iterdir()
    path.unlink()
    with aggregator.open(root) as catalog:
        assert catalog.quarantine.entries() == []
        (problem,) = catalog.problems()
        assert (problem.subject, problem.action) == (f"quarantine/{path.name}", "given up")
        assert "record indexes 5 to 5" in problem.message


def test_the_command(root, tmp_path, monkeypatch, capsys):
    """`aggregator quarantine` lists, shows, exports, retries and drops."""
    assert run(["init", str(root)]) == 0
    assert run(["quarantine", "list", str(root)]) == 0
    assert "no batches in quarantine" in capsys.readouterr().out
    upgraded(root, monkeypatch)
    (root / "quarantine" / "000000000099.esdb").write_bytes(b"damaged")
    assert run(["quarantine", "list", str(root)]) == 0
    shown = capsys.readouterr().out
    assert "000000000099.esdb" in shown
    assert "1 to 2" in shown
    assert run(["quarantine", "list", str(root), "--json"]) == 0
    assert [entry["number"] for entry in json.loads(capsys.readouterr().out)] == [1, None]
    assert run(["quarantine", "show", str(root), "1"]) == 0
    assert "a-longer-one" in capsys.readouterr().out
    assert run(["quarantine", "show", str(root), "1", "--json"]) == 0
    assert [event["record_index"] for event in json.loads(capsys.readouterr().out)["events"]] == [1, 2]
    for name in ("out.jsonl", "out.arrow"):
        assert run(["quarantine", "export", str(root), "1", str(tmp_path / name)]) == 0
    assert pa.ipc.open_file(tmp_path / "out.arrow").read_all()["timestamp"].cast(pa.int64()).to_pylist() == [2, 3]
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["space"] for line in lines] == ["a-longer-one", "another-long-one"]
    assert run(["quarantine", "export", str(root), "1", str(tmp_path / "out.xls")]) == 2
    assert run(["verify", str(root)]) == 1
    assert run(["quarantine", "retry", str(root), "1"]) == 0
    assert "record indexes 3 to 4" in capsys.readouterr().out
    assert run(["quarantine", "drop", str(root), "000000000099.esdb"]) == 0
    assert list((root / "quarantine").iterdir()) == []
    assert run(["quarantine", "drop", str(root), "1"]) == 2
    assert run(["quarantine", "show", str(root), "1"]) == 2
    assert run(["verify", str(root)]) == 0
