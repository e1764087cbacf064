"""Retention by age, count and bytes, per topic and catalog: oldest first, while open scans finish."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import namedtuple

import pytest
from effort import share_of
from still import files_of
from waiting import until

import aggregator
from aggregator.engine.seal.sealer import Sealer
from aggregator.engine.upkeep.retention import Space, expired, over_limit
from aggregator.model import SegmentInfo
from aggregator.policy import Retention
from aggregator.storage.files import usage as disk

DAY_US = 86_400_000_000


def segment(number, *, newest=0, size=10, created=None, partition=1):
    created = number if created is None else created
    return SegmentInfo(number, partition, 1, number, number, newest, newest, b"a", b"a", 1, size, 0, 0, created)


SEGMENTS = [segment(1, newest=100), segment(2, newest=50), segment(3, newest=300, size=30), segment(4, newest=90)]
UNLIMITED = Retention()


@pytest.mark.parametrize(
    ("policy", "now", "expected"),
    [
        (UNLIMITED, 10**18, []),
        (Retention(age_us=100), 200, [(2, "age"), (4, "age")]),
        (Retention(age_us=100), 201, [(1, "age"), (2, "age"), (4, "age")]),
        (Retention(age_us=0), 0, []),  # all of them are in the future
        (Retention(segments=4), 0, []),
        (Retention(segments=1), 0, [(1, "segments"), (2, "segments"), (3, "segments")]),
        (Retention(segments=0), 0, [(n, "segments") for n in (1, 2, 3, 4)]),
        (Retention(bytes=60), 0, []),
        (Retention(bytes=59), 0, [(1, "bytes")]),
        (Retention(bytes=39), 0, [(1, "bytes"), (2, "bytes"), (3, "bytes")]),
        (Retention(bytes=40), 0, [(1, "bytes"), (2, "bytes")]),
        (Retention(bytes=0), 0, [(n, "bytes") for n in (1, 2, 3, 4)]),
        (Retention(age_us=100, bytes=35), 200, [(2, "age"), (4, "age"), (1, "bytes")]),
        (Retention(segments=3, bytes=40), 0, [(1, "segments"), (2, "bytes")]),
        (Retention(partition_segments=3), 0, [(1, "partition segments")]),
        (Retention(partition_bytes=50), 0, [(1, "partition bytes")]),
        (Retention(partition_bytes=50, bytes=45), 0, [(1, "partition bytes"), (2, "bytes")]),
    ],
)
def test_expired(policy, now, expected):
    """Age counts from a segment's newest event; other limits remove the first sealed, and no more than needed."""
    assert [(one.segment.number, one.reason) for one in expired(SEGMENTS[::-1], policy, now)] == expected


def test_each_partition_for_itself():
    """A partition limit counts only its own segments; a topic limit counts what partition limits leave."""
    both = [segment(n, created=n, size=10, partition=1 + n % 2) for n in range(6)]
    doomed = expired(both, Retention(partition_segments=2), 0)
    assert sorted(one.segment.number for one in doomed) == [0, 1]
    doomed = expired(both, Retention(partition_bytes=20, bytes=30), 0)
    assert [(one.segment.number, one.reason) for one in doomed] == [
        (0, "partition bytes"), (1, "partition bytes"), (2, "bytes"),
    ]  # fmt: skip
    assert expired(both, Retention(partition_bytes=30), 0) == []


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Space(None, 10**9, None, 0), []),
        (Space(100, 40, None, 0), []),
        (Space(100, 41, None, 0), [(1, "catalog bytes")]),
        (Space(100, 100, None, 0), [(n, "catalog bytes") for n in (1, 2, 3, 4)]),
        (Space(None, 0, 50, 50), []),
        (Space(None, 0, 50, 25), [(1, "free disk"), (2, "free disk"), (3, "free disk")]),
        (Space(100, 41, 50, 35), [(1, "catalog bytes"), (2, "free disk")]),
    ],
)
def test_in_the_way(space, expected):
    """The log and other files count towards the limit; each removed segment frees its bytes."""
    assert [(one.segment.number, one.reason) for one in over_limit(SEGMENTS, space)] == expected


# ------------------------------------------------------------ catalogs


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def fill(catalog, topic, times, partition="0", payload=100):
    """Seal one segment with an event at each time."""
    topic.append([{"space": f"s{t % 7}", "timestamp": t, "data": os.urandom(payload)} for t in times], partition)
    catalog.seal()


def times(topic):
    return [event.timestamp for event in topic.scan()]


def files(root):
    return sorted(path.name for path in (root / "segments").glob("*/*.esdb"))


@pytest.mark.usefixtures("quiet")
def test_on_demand(root):
    """A dry run reports and changes nothing; then segments and files are removed, and record indexes continue."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        for first in (0, 10, 20):
            fill(catalog, topic, range(first, first + 10))
        assert catalog.retain().removed == ()
        topic.set_policy(retention={"segments": 1})
        planned = topic.retain(dry_run=True)
        assert [(one.first_index, one.last_index, one.rows, one.reason) for one in planned.removed] == [
            (0, 9, 10, "segments"), (10, 19, 10, "segments"),
        ]  # fmt: skip
        assert (planned.dry_run, planned.rows) == (True, 20)
        assert len(files(root)) == 3
        report = catalog.retain("t")
        assert report.removed == planned.removed
        for _ in range(100):  # the stream index may be reading the segments
            if len(files(root)) == 1:
                break
            catalog.retain("t")
        assert len(files(root)) == 1
        assert times(topic) == list(range(20, 30))
        topic.set_policy(retention={"segments": 0})
        catalog.retain()
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        assert topic.retention == Retention(segments=0)
        assert topic.append([{"space": "a", "timestamp": 1}]).first == 30


@pytest.mark.usefixtures("quiet")
def test_age_is_that_of_events(root):
    """Age counts from timestamps, not arrival; a future event is not old."""
    now = time.time_ns() // 1000
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t", retention={"age": "1d"})
        fill(catalog, topic, [now - 3 * DAY_US, now - 2 * DAY_US])
        fill(catalog, topic, [now - 2 * DAY_US, now])
        fill(catalog, topic, [now + 3650 * DAY_US])
        fill(catalog, topic, [-5])
        report = catalog.retain()
        assert [(one.first_index, one.reason) for one in report.removed] == [(0, "age"), (5, "age")]
        assert len(times(topic)) == 3


@pytest.mark.usefixtures("quiet")
def test_a_clock_of_another_year(root, monkeypatch):
    """A clock ten years ahead, before or after opening, removes nothing; a clock a day back keeps the newest."""
    clock = [time.time_ns() // 1000]
    monkeypatch.setattr("aggregator.opening.now_us", lambda: clock[0])
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t", retention={"age": "30d"})
        fill(catalog, topic, [clock[0]])
        catalog._backend.upkeep._retain_by_itself()
        clock[0] += 3650 * DAY_US
        assert catalog.retain().removed == ()
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        assert catalog.retain().removed == ()
        clock[0] -= 3651 * DAY_US
        fill(catalog, topic, [clock[0]])
        topic.set_policy(retention={"segments": 1})
        assert [one.first_index for one in catalog.retain().removed] == [0]
        assert times(topic) == [clock[0]]


def test_by_itself(root):
    """Background retention brings a topic below its limit: its newest events stay, and so does the other topic."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t", retention={"bytes": 60_000}, roll={"rows": 50})
        other = catalog.create_topic("other")
        fill(catalog, other, range(5))
        for first in range(0, 2000, 50):
            fill(catalog, topic, range(first, first + 50))
        until(lambda: topic.stats()["bytes"] <= 60_000)
        left = times(topic)
        assert left == list(range(left[0], 2000))
        assert len(other.scan().to_table()) == 5
        until(lambda: len(files(root)) == catalog.stats()["segments"])
        assert catalog.stats()["background"] is None


def test_the_catalog_as_a_whole(root):
    """The catalog limit counts log and manifest; the oldest segments of all topics are removed in the background."""
    limit = 3_000_000
    with aggregator.open(root, limits={"max_bytes": limit}) as catalog:
        topics = [catalog.create_topic(name) for name in ("a", "b")]
        for number in range(70):
            fill(catalog, topics[number % 2], range(100 * number, 100 * number + 100), payload=500)
        until(lambda: catalog.stats()["disk"]["total"] <= limit)
        stats = catalog.stats()
        assert stats["disk"]["total"] == pytest.approx(
            sum(file.st_size for path, file in files_of(root).items() if "lock" not in path.name
                and path.name != "acknowledged"), abs=20_000,
        )  # fmt: skip
        firsts = [topic.stats()["min_timestamp"] for topic in topics]
        assert abs(firsts[0] - firsts[1]) <= 200  # both topics advance together
        assert 0 < stats["segments"] < 60


def test_free_disk(root, monkeypatch):
    """Below the floor, the oldest segments are removed until the requested space is free."""
    usage = namedtuple("usage", "total used free")
    with aggregator.open(root, limits={"min_free_bytes": 1_000_000}) as catalog:
        topic = catalog.create_topic("t")
        for first in (0, 10, 20):
            fill(catalog, topic, range(first, first + 10))
        size = catalog.stats()["topics"]["t"]["sealed_bytes"] // 3
        floor = 1_000_000 - 2 * size + 100

        def free(_):
            return usage(10**9, 0, floor + size * (3 - len(files(root))))

        monkeypatch.setattr(disk.shutil, "disk_usage", free)
        catalog._backend.scheduler.wake()
        until(lambda: len(files(root)) == 1)
        assert times(topic) == list(range(20, 30))
        time.sleep(0.1)
        assert len(files(root)) == 1


@pytest.mark.usefixtures("quiet")
def test_open_scans_finish(root):
    """A scan that has begun returns everything, whatever is removed meanwhile; then the files are deleted."""
    with aggregator.open(root) as catalog, aggregator.open(root, read_only=True) as reader:
        topic = catalog.create_topic("t")
        for first in range(0, 100, 10):
            fill(catalog, topic, range(first, first + 10))
        mine, theirs = iter(topic.scan()), iter(reader.topic("t").scan())
        assert (next(mine).timestamp, next(theirs).timestamp) == (0, 0)
        topic.set_policy(retention={"segments": 0})
        report = catalog.retain()
        assert topic.scan().count() == 0
        assert reader.topic("t").scan().count() == 0
        assert len(files(root)) == 10
        assert report.waiting_bytes == catalog.stats()["disk"]["waiting_for_scans"] > 0
        assert [event.timestamp for event in mine] == list(range(1, 100))
        catalog._backend.upkeep.removal.sweep()
        assert len(files(root)) == 10
        assert [event.timestamp for event in theirs] == list(range(1, 100))
        catalog._backend.upkeep.removal.sweep()
        assert not files(root)
        assert catalog.stats()["disk"]["waiting_for_scans"] == 0


def test_policies_change(root):
    """Unnamed policies and limits stay, wrong ones are refused, readers see changes, only writers can change them."""
    with aggregator.open(root) as catalog, aggregator.open(root, read_only=True) as reader:
        topic = catalog.create_topic("t", roll={"rows": 7}, retention={"age": "1h"})
        topic.set_policy(retention={"bytes": "1 GiB", "segments": 3})
        assert (topic.roll.rows, topic.retention) == (7, Retention(2**30, 3_600_000_000, 3))
        topic.set_policy(retention={"age": None}, roll={"age": "60s"})
        assert (topic.roll.rows, topic.roll.age_us, topic.retention) == (7, 60_000_000, Retention(2**30, None, 3))
        topic.set_policy(retention=Retention())
        assert topic.retention == Retention()
        assert catalog.alter_topic("t", roll={"rows": 9}).roll.rows == 9
        assert reader.topic("t").roll.rows == 9
        assert reader.topic("t").retention == topic.retention
        for wrong in ({"bytes": "many"}, {"years": 3}, {"bytes": -1}, {"segments": -1}, {"max_bytes": 1}):
            with pytest.raises(aggregator.InvalidRequestError):
                topic.set_policy(retention=wrong)
        with pytest.raises(aggregator.TopicNotFoundError):
            catalog.alter_topic("absent", roll={"rows": 9})
        for refused in (lambda: reader.alter_topic("t", roll={"rows": 1}), reader.retain, reader.compact):
            with pytest.raises(aggregator.ReadOnlyError):
                refused()


@pytest.mark.usefixtures("quiet")
def test_stats(root):
    """Rows, bytes, segments, unsealed events, times and record indexes add up, and equal a reader's."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        fill(catalog, topic, range(10))
        fill(catalog, topic, range(10, 15), "other")
        topic.append([{"space": "a", "timestamp": 99}, {"space": "a", "timestamp": -9}], "other")
        stats = topic.stats()
        other = stats["partitions"]["other"]
        assert (stats["rows"], stats["sealed_rows"], stats["unsealed_rows"], stats["segments"]) == (17, 15, 2, 2)
        assert (stats["min_timestamp"], stats["max_timestamp"]) == (-9, 99)
        assert (other["first_index"], other["end_index"], other["rows"]) == (0, 7, 7)
        assert stats["sealed_bytes"] == sum(path.stat().st_size for path in root.rglob("*.esdb"))
        assert 0 < time.time_ns() // 1000 - stats["oldest_unsealed_us"] < 60e6
        whole = catalog.stats()
        assert (whole["rows"], whole["segments"], whole["problems"]) == (17, 2, 0)
        assert whole["disk"]["log"] == sum(path.stat().st_size for path in (root / "log").iterdir())
        json.dumps(whole)
        with aggregator.open(root, read_only=True) as reader:
            seen = reader.stats()["topics"]["t"]
            for facts in (seen, stats, *seen["partitions"].values(), *stats["partitions"].values()):
                facts.pop("oldest_unsealed_us")  # each received it at another time
            assert seen == stats


@pytest.mark.parametrize("count", share_of([3, None], 2))
def test_sealing_that_is_behind(tmp_path, monkeypatch, count):
    """Joined small batches are sealed in segments small enough for retention to keep some of them."""
    monkeypatch.setattr("aggregator.engine.upkeep.scheduler.choose_to_seal", lambda *_: [])
    keeps = Retention(partition_bytes=200_000, partition_segments=count)
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", retention=keeps)
        for number in range(70):  # of which 64 are joined
            topic.append([{"space": "s", "timestamp": number, "data": os.urandom(5000)}] * 2)
        assert any(batch.joined for batch in catalog._backend.state.partitions[1][1].memtable.batches)
        catalog.seal()
        catalog.retain()
        kept = topic.stats()["bytes"]
        assert 120_000 < kept <= 200_000
        numbers = [event.timestamp for event in topic.scan()]
        assert max(numbers) == 69
    with aggregator.open(tmp_path / "data") as catalog:  # the log of joined batches is consistent
        assert [event.timestamp for event in catalog.topic("t").scan()] == numbers


@pytest.mark.usefixtures("quiet")
def test_a_crash_between_parts(tmp_path, monkeypatch):
    """If a crash leaves only the first segment of a split batch, every event is there once."""
    monkeypatch.setattr("aggregator.engine.upkeep.scheduler.choose_to_seal", lambda *_: [])
    write, written = Sealer._write_or_quarantine, []

    def once(self, *given):
        if written:
            if not (tmp_path / "copy").exists():
                shutil.copytree(tmp_path / "data", tmp_path / "copy")
            raise OSError("the power went")
        written.append(given[2])
        return write(self, *given)

    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", retention=Retention(partition_bytes=2_000_000))
        for number in range(70):
            topic.append([{"space": "s", "timestamp": number, "data": os.urandom(5000)}] * 2)
        monkeypatch.setattr(Sealer, "_write_or_quarantine", once)
        with pytest.raises(OSError, match="the power went"):
            catalog.seal()
        assert 2 < written[0].rows < 128
        monkeypatch.setattr(Sealer, "_write_or_quarantine", write)
    with aggregator.open(tmp_path / "copy") as catalog:
        assert sorted(event.timestamp for event in catalog.topic("t").scan()) == sorted([*range(70)] * 2)
        assert catalog.problems() == []
