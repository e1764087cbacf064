"""Hard disk limits: appends that could exceed them are refused immediately, and merges do not start. Retention limits
never refuse an append.
"""

from __future__ import annotations

import os
import threading
import time
from collections import namedtuple

import pyarrow as pa
import pytest
from effort import ALL, long
from still import files_of, still
from waiting import until

import aggregator
from aggregator.engine.seal import sealer as sealing_module
from aggregator.engine.upkeep.upkeep import LOG_SHARE, Upkeep
from aggregator.storage.files import usage as disk

LIMIT = 2_000_000
ROWS, SIZE = 100, 200
BATCHES = 500 if ALL else 300


def events(first, rows=ROWS, size=SIZE):
    data = pa.array([os.urandom(size) for _ in range(rows)])
    return pa.table(
        {"space": [f"s{n % 7}" for n in range(rows)], "timestamp": range(first, first + rows), "data": data}
    )


def disk_bytes(root):
    """The bytes of all files, without those deleted meanwhile."""
    return sum(file.st_size for file in files_of(root).values())


def fill(topic, first=0, most=1000, **shape):
    """Append until refused. Returns the number of the next event and the refusal."""
    for number in range(most):
        try:
            topic.append(events(first, **shape), partition=str(number % 2))
        except aggregator.OverloadedError as error:
            return first, error
        first += shape.get("rows", ROWS)
    raise AssertionError("nothing was refused")


@pytest.fixture
def passes(monkeypatch):
    """What each retention pass left: the bytes of segments that existed at its start, and those plus everything else on
    disk, without the excess of the log over its share, which waits for sealing.
    """
    seen = []
    real = Upkeep._retain

    def live(self):
        return {info.number: info.size_bytes for topic in self._topics() for info in self._segments(topic)}

    def retain(self, topics):
        before = live(self)
        done = real(self, topics)
        usage = self.usage()
        segments = sum(size for number, size in live(self).items() if number in before)
        seen.append((segments, segments + usage.other - max(0, usage.log - (self._limits.max_bytes or 0) // LOG_SHARE)))
        return done

    monkeypatch.setattr(Upkeep, "_retain", retain)
    return seen


@pytest.mark.parametrize(
    ("limits", "retention", "partitions"),
    [
        (None, {"bytes": LIMIT}, 2),
        pytest.param(None, {"partition_bytes": LIMIT // 2}, 2, marks=long),
        ({"max_bytes": 3 * LIMIT}, None, 3),
    ],
    ids=["topic", "partitions", "catalog"],
)
def test_retention_refuses_nothing(tmp_path, passes, limits, retention, partitions):
    """Appends far beyond the limit at full speed are all accepted, and each pass leaves about the limit."""
    batches = [events(n * ROWS) for n in range(10)]
    with aggregator.open(tmp_path / "data", limits=limits, durability="none") as catalog:
        topic = catalog.create_topic("t", retention=retention)
        for number in range(BATCHES):
            topic.append(batches[number % 10], str(number % partitions))
        catalog.seal()
        until(lambda: topic.stats()["bytes"] <= LIMIT if limits is None else disk_bytes(tmp_path) <= 3 * LIMIT)
        assert topic.scan().count() > (LIMIT / 2) / (SIZE + 60)  # and not much more than necessary was removed
        ends = topic.ends()
        assert sum(ends.values()) == BATCHES * ROWS
        for name, end in ends.items():  # the newest of each partition remain, without gaps
            columns = ["space", "timestamp", "record_index"]
            kept = topic.scan(partition=name, columns=columns).to_table()["record_index"].to_pylist()
            assert sorted(kept) == list(range(min(kept), end))
        assert catalog.stats()["background"] is None
    assert len(passes) > 5
    if limits is None:
        assert max(segments for segments, _ in passes) <= 1.1 * LIMIT
    else:
        assert max(total for _, total in passes) <= 1.1 * 3 * LIMIT


@pytest.mark.usefixtures("quiet")
def test_limits_of_each_partition(tmp_path):
    """The segments that one partition keeps do not depend on other partitions."""
    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        topic = catalog.create_topic("t", retention={"partition_segments": 2})
        for number in range(8):
            topic.append(events(number * ROWS), "busy" if number else "calm")
            catalog.seal()
        assert {one.reason for one in catalog.retain().removed} == {"partition segments"}
        kept = {name: mine["segments"] for name, mine in topic.stats()["partitions"].items()}
        assert kept == {"calm": 1, "busy": 2}


def test_a_scan_that_stays_open(tmp_path, caplog):
    """Files of an open scan stay, counted and reported; appends are accepted, and no other data expires instead."""
    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        topic = catalog.create_topic("t", roll={"rows": 200}, retention={"bytes": LIMIT})
        for number in range(40):
            topic.append(events(number * ROWS, rows=2 * ROWS))
        catalog.seal()
        scan = topic.scan().batches()
        first = next(scan)
        for number in range(100):
            topic.append(events(10**6 + number * ROWS, rows=2 * ROWS))
        catalog.seal()
        report = catalog.retain()
        assert report.waiting_bytes == catalog.stats()["disk"]["waiting_for_scans"] > LIMIT / 2
        assert "open scans" in caplog.text
        kept = topic.stats()["sealed_bytes"]
        assert 0.8 * LIMIT < kept <= LIMIT  # waiting files do not cause others to be removed
        assert len(first) + sum(map(len, scan)) > 0
        catalog.retain()
        assert catalog.stats()["disk"]["waiting_for_scans"] == 0


@pytest.mark.usefixtures("passes")
def test_a_hard_limit_refuses(tmp_path):
    """At a hard limit nothing is removed, no refused event is kept, and the disk never exceeds it."""
    root = tmp_path / "data"
    with aggregator.open(root, limits={"disk_bytes": LIMIT}, durability="none") as catalog:
        topic = catalog.create_topic("t", roll={"rows": 500})
        first, largest, refused = 0, 0, None
        for number in range(500):
            before = refused
            try:
                topic.append(events(first), partition=str(number % 2))
                first, refused = first + ROWS, None
            except aggregator.OverloadedError as error:
                refused = error
                catalog.seal()
            largest = max(largest, disk_bytes(root))
            if before is not None and refused is not None:  # twice in a row, with nothing left to seal
                break
        assert 0.8 * LIMIT <= largest <= LIMIT
        assert f"disk_bytes of {LIMIT:,}" in str(refused)
        assert "segments" in str(refused)
        assert 0 < refused.retry_after_s <= 5
        with pytest.raises(aggregator.OverloadedError):
            catalog.check_room(100_000)
        assert topic.scan().count() == first  # every acknowledged event is there, and no refused one
        topic.set_policy(retention={"bytes": LIMIT // 4})
        catalog.retain()
        topic.append(events(first))
        assert catalog.stats()["background"] is None


def test_too_little_free_disk(tmp_path, monkeypatch):
    """Retention restores min_free_bytes; appends are refused only below half of it."""
    usage = namedtuple("usage", "total used free")
    free = [10**9]
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: usage(10**9, 0, free[0]))
    with aggregator.open(tmp_path / "data", limits={"min_free_bytes": 1_000_000}) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        free[0] = 600_000
        topic.append(events(0))
        free[0] = 400_000
        with pytest.raises(aggregator.OverloadedError, match="min_free_bytes is 1,000,000"):
            topic.append(events(0))
        free[0] = 10**9
        topic.append(events(0))
        assert topic.ends() == {"0": 3 * ROWS}


def test_too_little_available_disk(tmp_path, monkeypatch):
    """Below min_available_bytes appends are refused and stored events stay, however little is free."""
    usage = namedtuple("usage", "total used free")
    free = [10**9]
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: usage(10**9, 0, free[0]))
    with aggregator.open(tmp_path / "data", limits={"min_available_bytes": 1_000_000}) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        catalog.seal()
        free[0] = 1000
        with pytest.raises(aggregator.DiskFullError, match="min_available_bytes is 1,000,000"):
            topic.append(events(0))
        with pytest.raises(aggregator.DiskFullError):
            catalog.check_room(1)
        assert catalog.retain().removed == ()
        assert topic.scan().count() == ROWS
        free[0] = 10**9
        topic.append(events(0))
        assert topic.ends() == {"0": 2 * ROWS}


@pytest.mark.usefixtures("quiet")
def test_merges_wait_for_room(tmp_path):
    """If the merged segment has no room beside its sources, `compact` does nothing and returns."""
    root, batches = tmp_path / "data", 60 if ALL else 24
    with aggregator.open(root, durability="none") as catalog:
        topic = catalog.create_topic("t", roll={"rows": 100})
        for number in range(batches):
            topic.append(events(number * ROWS))
            catalog.seal()
    aggregator.open(root, durability="none").close()  # deletes the log of sealed events
    limit = disk_bytes(root) + 20_000
    with aggregator.open(root, limits={"disk_bytes": limit}) as catalog:
        assert catalog.compact().merged == 0
        assert catalog.topic("t").scan().count() == batches * ROWS
    with aggregator.open(root, limits={"disk_bytes": 2 * limit}) as catalog:
        assert catalog.compact().merged > 0
        assert catalog.topic("t").scan().count() == batches * ROWS


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_bytes": 100_000}, "max_bytes of a catalog must be at least"),
        ({"disk_bytes": 100_000}, "disk_bytes of a catalog must be at least"),
        ({"disk_bytes": 1 << 21, "max_bytes": 1 << 21}, "must be more than max_bytes"),
    ],
)
def test_limits_that_can_never_do(tmp_path, limits, message):
    """Limits smaller than the manifest, or with disk_bytes not above max_bytes, are refused immediately."""
    with pytest.raises(aggregator.InvalidRequestError, match=message):
        aggregator.open(tmp_path / "data", limits=limits)


def test_a_batch_larger_than_what_is_kept(tmp_path):
    """A batch larger than retention keeps is accepted and expires once sealed; the log has its own limit."""
    with aggregator.open(tmp_path / "data", limits={"max_bytes": 1 << 20}) as catalog:
        other = catalog.create_topic("other")
        assert other.append(events(0, rows=10 * ROWS)).last == 10 * ROWS - 1
        topic = catalog.create_topic("t", retention={"bytes": 10_000})
        assert topic.append(events(0)).last == ROWS - 1
        catalog.seal()
        catalog.retain()
        assert topic.stats()["segments"] == 0


def test_counts_are_those_of_the_disk(tmp_path, monkeypatch):
    """After refusals, failures, seals, merges, erasures and removals, the counted bytes equal those on disk."""
    root = tmp_path / "data"
    failing = threading.Event()
    real = sealing_module.write_segment

    def write(*args, **options):
        if failing.is_set():
            raise OSError(28, "No space left on device")
        return real(*args, **options)

    monkeypatch.setattr(sealing_module, "write_segment", write)
    with aggregator.open(
        root, limits={"disk_bytes": 4 * LIMIT, "max_bytes": 3 * LIMIT, "memory_bytes": "300 KiB"}, durability="none"
    ) as catalog:
        topic = catalog.create_topic("t", roll={"rows": 300}, retention={"bytes": LIMIT // 2})
        failing.set()
        first, _ = fill(topic)
        quota = catalog._backend.quota
        assert quota.total() > 2 * first * SIZE  # in the log, and as future segments
        failing.clear()
        catalog.seal()
        refusals: list[str] = []
        for number in range(60):
            again = events(first + number * ROWS)
            while True:
                try:
                    topic.append(again, producer="p", sequence=number)
                    break
                except aggregator.OverloadedError as error:
                    refusals.append(str(error))
                    time.sleep(error.retry_after_s)
        assert all("of memory" in refusal for refusal in refusals)
        assert topic.append(again, producer="p", sequence=59).duplicate
        topic.erase("s3")
        catalog.seal()
        catalog.compact()
        catalog.retain()
        until(lambda: not topic.erasures() and not quota.waiting() and not catalog._backend.budget.held_bytes)
        still(catalog)
        files = {path: file.st_size for path, file in files_of(root).items()}
        segments = sum(size for path, size in files.items() if path.suffix == ".esdb")
        assert segments == topic.stats()["sealed_bytes"] == catalog._backend.state.segment_bytes
        assert quota.total() == pytest.approx(sum(files.values()), abs=1000)


def test_erasing_where_no_room_is_left(tmp_path):
    """With all limits used up by one segment, erasing a space removes it and no other event."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0, rows=10 * ROWS, size=1000))
        catalog.seal()
        size = topic.stats()["sealed_bytes"]
    limit = max(1 << 20, disk_bytes(tmp_path) // 2)
    with aggregator.open(tmp_path / "data", limits={"disk_bytes": limit}) as catalog:
        topic = catalog.topic("t")
        with pytest.raises(aggregator.OverloadedError):
            topic.append(events(0, rows=10 * ROWS, size=1000))
        topic.set_policy(retention={"bytes": size})
        topic.erase("s3")
        report = topic.compact()
        assert (report.erased, report.still_erasing) == (("s3",), ())
        assert topic.traces("s3").gone
        assert topic.retain().removed == ()
        assert topic.scan().count() == sum(n % 7 != 3 for n in range(10 * ROWS))
