"""Record indexes are never reused, even if a crash may have lost acknowledged events. Skipped indexes are known, and at
most the reserved number is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from crash_image import crash_image

import aggregator
from aggregator.engine.ingest import reserve
from aggregator.storage.log import log as log_module

pytestmark = pytest.mark.usefixtures("quiet")

EVENTS = pa.table({"space": ["a", "b"], "timestamp": pa.array([1, 2], pa.int64()), "data": [b"x", b"y"]})
UNSYNCED = ["interval", "none"]


def crashed(path, copy, lost=False):
    """Copy a catalog while its writer runs, as a crash leaves it. lost: without data that was not synced."""
    crash_image(path, copy)
    if lost:
        for file in (copy / "log").iterdir():
            os.truncate(file, 32 if file.suffix == ".log" else 0)
    return copy


KILLED = """
import os, signal, sys
import pyarrow as pa
import aggregator
from esformat.parts import hide_pandas
hide_pandas()
catalog = aggregator.open(sys.argv[1], durability=sys.argv[2])
topic = catalog.create_topic("t")
for _ in range(3):
    topic.append(pa.table({"space": ["a", "b"], "timestamp": pa.array([1, 2], pa.int64())}))
catalog.seal()
topic.append(pa.table({"space": ["a", "b"], "timestamp": pa.array([1, 2], pa.int64())}))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module", params=UNSYNCED)
def left(request, tmp_path_factory):
    """A catalog whose process was killed after eight events, and a copy of its files."""
    root = tmp_path_factory.mktemp("killed") / "data"
    assert subprocess.run([sys.executable, "-c", KILLED, str(root), request.param], check=False).returncode == -9
    return root, Path(shutil.copytree(root, root.with_name("copy")))


@pytest.fixture
def killed(left):
    """The killed catalog, restored in its original directory."""
    root, copy = left
    for path in root.rglob("*"):
        if path.is_file():
            path.unlink()
    return Path(shutil.copytree(copy, root, dirs_exist_ok=True))


def next_index(root):
    with aggregator.open(root) as catalog:
        return catalog.topic("t").append(EVENTS).first


def test_a_killed_process_loses_nothing(killed):
    """A killed process loses nothing, since the kernel has its writes: indexes continue without a gap in later runs."""
    assert [next_index(killed) for _ in range(2)] == [8, 10]


@pytest.mark.parametrize("why", ["another boot", "no word of the boot", "a copy", "an unknown end", "cut off"])
def test_what_may_have_lost_events_has_a_hole(tmp_path, killed, monkeypatch, why):
    """If the kernel was restarted, or the log does not prove that it is complete, record indexes are skipped."""
    log = killed / "log"
    if why == "a copy":
        killed = shutil.copytree(killed, tmp_path / "data")
    elif why == "an unknown end":
        os.truncate(log / "acknowledged", 0)
    elif why == "cut off":
        newest = sorted(log.glob("*.log"))[-1]
        os.truncate(newest, newest.stat().st_size - 8)
    else:
        monkeypatch.setattr(reserve, "_BOOT", tmp_path / "boot")
        if why == "another boot":
            (tmp_path / "boot").write_text("8c4d9a6e-0000-0000-0000-000000000000\n")
    assert next_index(killed) >= reserve.FIRST


@pytest.mark.parametrize("end", ["closed", "crashed"])
@pytest.mark.parametrize("durability", UNSYNCED)
def test_indexes_stay_passed_over(tmp_path, durability, end):
    """A partition without events in the run after a crash still skips the same indexes later."""
    with aggregator.open(tmp_path / "first", durability=durability) as catalog:
        catalog.create_topic("t").append(EVENTS)
        after_crash = crashed(tmp_path / "first", tmp_path / "second")
    with aggregator.open(after_crash) as catalog:
        later = crashed(after_crash, tmp_path / "third") if end == "crashed" else after_crash
    with aggregator.open(later) as catalog:
        receipt = catalog.topic("t").append(EVENTS)
    assert receipt.first == reserve.FIRST + 2
    with aggregator.open(later) as catalog:
        assert catalog.topic("t").append(EVENTS).first == reserve.FIRST + 4
        assert catalog.problems() == []


@pytest.mark.parametrize("durability", UNSYNCED)
def test_what_was_lost_is_not_given_again(tmp_path, durability):
    """Lost record indexes are not reused, however many there were; an idle partition has no gap."""
    large = pa.table({"space": ["a"] * 3 * reserve.FIRST, "timestamp": pa.array(range(3 * reserve.FIRST), pa.int64())})
    with aggregator.open(tmp_path / "first", durability=durability) as catalog:
        topic = catalog.create_topic("t")
        topic.append(EVENTS, "idle")
    with aggregator.open(tmp_path / "first", durability=durability) as catalog:
        topic = catalog.topic("t")
        for number in range(20):
            last = topic.append(large if number % 2 else EVENTS).last
        after_crash = crashed(tmp_path / "first", tmp_path / "second", lost=True)
    with aggregator.open(after_crash) as catalog:
        first = catalog.topic("t").append(EVENTS).first
        assert last < first <= 2 * last + reserve.FIRST
        assert catalog.topic("t").append(EVENTS, "idle").first <= 2


@pytest.mark.parametrize("durability", ["fsync", *UNSYNCED])
def test_nothing_is_passed_over(tmp_path, durability):
    """After a crash of a run with durability "fsync", or a clean close, indexes continue without a gap."""
    with aggregator.open(tmp_path / "first", durability=durability) as catalog:
        catalog.create_topic("t").append(EVENTS)
        if durability == "fsync":
            crashed(tmp_path / "first", tmp_path / "second")
    root = tmp_path / ("second" if durability == "fsync" else "first")
    with aggregator.open(root) as catalog:
        assert catalog.topic("t").append(EVENTS).first == 2


def test_closing_syncs_all_of_the_log(tmp_path, monkeypatch):
    """Closing syncs all log files, also older ones that "none" did not sync, so that no index need be skipped."""
    synced, real = set(), log_module.sync_file

    def sync(descriptor):
        synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        catalog.create_topic("t").append(EVENTS)
        catalog._backend.log.roll()
        catalog.topic("t").append(EVENTS)
        monkeypatch.setattr(log_module, "sync_file", sync)
    files = {str(path) for path in (tmp_path / "data" / "log").glob("*.log")}
    assert len(files) == 2
    assert synced == files


def test_what_was_passed_over_is_not_counted(tmp_path):
    """Skipped indexes count neither as expired nor as pending records, for writers, readers and a rebuilt manifest."""
    root = tmp_path / "data"
    with aggregator.open(root, durability="none") as catalog:
        catalog.write({"a": "1"}, [{"ts": 1, "msg": "old"}])
        selection = catalog.query("SELECT FROM a = 1")
        selection.to_table()
        position = selection.position
        image = crashed(root, tmp_path / "crashed")
    with aggregator.open(image) as catalog:
        catalog.query("CREATE PIPE p FROM a = 1")
        catalog.write({"a": "1"}, [{"ts": 2, "msg": "new"}])
        later = catalog.query(f"SELECT FROM a = 1 POSITION {position}")
        assert ([event.data for event in later], later.gone) == ([b"new"], 0)
    for rebuilt in (False, True):
        if rebuilt:
            (image / "manifest.sqlite").unlink()
            aggregator.rebuild_manifest(image)
        with aggregator.open(image, read_only=True) as reader:
            later = reader.query(f"SELECT FROM a = 1 POSITION {position}")
            assert ([event.data for event in later], later.gone) == ([b"new"], 0)
            assert reader.query("SHOW PIPES").to_pylist()[0]["lag"] <= 2
