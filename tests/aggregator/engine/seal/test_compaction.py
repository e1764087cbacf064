"""Compaction: which segments merge; nothing but files changes; memory is bounded."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from effort import ALL, long, share_of

import aggregator
import esformat
from aggregator.engine.seal.compaction import MAX_SEGMENT_BYTES, MergeLimits, merge_limits, merges_due, merges_possible
from aggregator.model import SegmentInfo
from aggregator.policy import Limits, Retention
from esformat.format.layout import BlockKind

ROOT = Path(__file__).parents[4]
DAY_US = 86_400_000_000


def segment(number, *, partition=1, schema=1, level=0, size=10, times=None):
    low, high = times or (number, number)
    return SegmentInfo(
        number, partition, schema, 10 * number, 10 * number + 9, low, high, b"", b"", 1, size, 0, level, 0
    )


def numbers(groups):
    return [[info.number for info in group] for group in groups]


def few(count, **facts):
    return [segment(number, **facts) for number in range(count)]


@pytest.mark.parametrize(
    ("segments", "bounds", "expected"),
    [
        (few(7), MergeLimits(), []),
        (few(8), MergeLimits(), [[*range(8)]]),
        (few(17), MergeLimits(), [[*range(8)], [*range(8, 16)]]),
        ([*few(4), *[segment(n, schema=2) for n in range(4, 8)]], MergeLimits(), []),
        ([*few(4), *[segment(n, partition=2) for n in range(4, 8)]], MergeLimits(), []),
        ([segment(0, level=1), *few(9)[1:]], MergeLimits(), [[*range(1, 9)]]),
        (few(8), MergeLimits(max_bytes=79), []),
        (few(8), MergeLimits(max_span_us=6), []),
        (few(8), MergeLimits(max_span_us=7), [[*range(8)]]),
    ],
)
def test_what_merges_by_itself(segments, bounds, expected):
    """Background merges take eight neighbours of one partition, schema and level, within the limits."""
    shuffled = random.Random(1).sample(segments, len(segments))
    assert numbers(merges_due(shuffled, bounds, 8)) == expected


@pytest.mark.parametrize(
    ("segments", "bounds", "expected"),
    [
        (few(1), MergeLimits(), []),
        (few(3), MergeLimits(), [[0, 1, 2]]),
        (few(40), MergeLimits(), [[*range(32)], [*range(32, 40)]]),
        (few(5), MergeLimits(max_bytes=25), [[0, 1], [2, 3]]),
        (few(3, size=30), MergeLimits(max_bytes=25), []),
        (few(5), MergeLimits(max_span_us=1), [[0, 1], [2, 3]]),
        ([segment(0, times=(0, 9)), segment(1, times=(-5, 0)), segment(2)], MergeLimits(max_span_us=13), [[1, 2]]),
        (
            [segment(0), segment(1, level=3), segment(2, schema=2), segment(3, schema=2)],
            MergeLimits(),
            [[0, 1], [2, 3]],
        ),
    ],
)
def test_what_merges_when_asked(segments, bounds, expected):
    """On request, all neighbours of one partition and schema within the limits merge, whatever their level."""
    shuffled = random.Random(1).sample(segments, len(segments))
    assert numbers(merges_possible(shuffled, bounds)) == expected


def test_bounds():
    """A merged segment is at most a small part of what retention keeps."""
    assert merge_limits(Retention(), Limits()) == MergeLimits(MAX_SEGMENT_BYTES, None)
    assert merge_limits(Retention(bytes=1000, age_us=10 * DAY_US), Limits()) == MergeLimits(100, DAY_US)
    assert merge_limits(Retention(bytes=1000), Limits(max_bytes=1000)) == MergeLimits(50, None)


# ------------------------------------------------------------ catalogs


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def answers(topic):
    """All answers that readers get from a topic."""
    scans = [
        topic.scan(), topic.scan(reverse=True, limit=50), topic.scan(space="s3"), topic.scan_index("type", "k1"),
        topic.scan(start=100, end=300, space="s1", reverse=True), topic.scan(columns=["record_index", "partition"]),
    ]  # fmt: skip
    scans += [topic.read(name) for name in topic.partitions]
    scans += [topic.read(name, 70, 20, reverse=True) for name in topic.partitions]
    return [scan.to_table() for scan in scans]


def fill(catalog, topic, segments, seed=0, columns=()):
    """Fill two partitions with segments of late and early events of a few spaces."""
    chance = random.Random(seed)
    for _ in range(segments):
        for partition in ("0", "1"):
            rows = [
                {
                    "space": f"s{chance.randrange(9)}", "timestamp": chance.randrange(500),
                    "type": chance.choice(["k0", "k1", None]), "data": b"%d" % chance.randrange(10**6),
                }
                | {name: chance.randrange(9) for name in columns}
                for _ in range(60)
            ]  # fmt: skip
            topic.append(rows, partition, producer="p", sequence=chance.randrange(10**9))
        catalog.seal()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("kind", share_of(["one schema", "columns that came", "types that changed"], 2))
def test_nothing_changes_but_the_files(root, monkeypatch, kind):
    """Every answer, including record indexes, is the same before and after a merge and after reopening."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t", indexes=["type"])
        fill(catalog, topic, 5, columns=["n"] if kind == "types that changed" else ())
        if kind == "columns that came":
            fill(catalog, topic, 5, seed=1, columns=["n", "m"])
        elif kind == "types that changed":
            topic.append([{"space": "s1", "timestamp": 150, "n": "a text"}])
            catalog.seal()
            fill(catalog, topic, 5, seed=2, columns=["n"])
        topic.append([{"space": "s1", "timestamp": 170}])
        before = answers(topic)
        segments = topic.stats()["segments"]
        report = topic.compact()
        kinds = {"one schema": 2, "columns that came": 4, "types that changed": 3}[kind]
        assert (report.merged - report.made, topic.stats()["segments"]) == (segments - kinds, kinds)
        assert answers(topic) == before
        assert topic.compact().made == 0
        assert len(list(root.rglob("*.esdb"))) == kinds
        assert all(esformat.verify(path).ok for path in root.rglob("*.esdb"))
    with aggregator.open(root) as catalog:
        assert answers(catalog.topic("t")) == before
        assert catalog.problems() == []
        assert catalog.verify() == []


@pytest.mark.usefixtures("quiet")
def test_text_is_understood_from_the_first_merge_on(root, tmp_path):
    """Small segments have no templates when sealed; merged and loaded ones have, which saves over 30%."""

    def stored():
        paths = list(root.rglob("*.esdb"))
        found = [esformat.open(path) for path in paths]
        try:
            return {segment.info()["templates"] for segment in found}, sum(path.stat().st_size for path in paths)
        finally:
            for segment in found:
                segment.close()

    texts = [f'{{"url":"/product/{n * n % 9973}","ms":{n * 31 % 5000}}}'.encode() for n in range(12_000)]
    rows = [{"space": f"s{n % 5}", "timestamp": n, "data": text} for n, text in enumerate(texts)]
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        for part in range(4):
            topic.append(rows[part::4])
            catalog.seal()
        before, (sealed, bytes_before) = topic.scan().to_table(), stored()
        topic.compact()
        merged, bytes_after = stored()
        assert (sealed, merged) == ({False}, {True})
        assert bytes_after < 0.7 * bytes_before
        assert topic.scan().to_table() == before
        catalog.delete_topic("t")
        with esformat.create(tmp_path / "loaded.esdb") as writer:
            for row in rows:
                writer.add(row["space"], row["data"], timestamp=row["timestamp"])
        catalog.create_topic("l").add_segments([tmp_path / "loaded.esdb"])
        assert stored()[0] == {True}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("sealing", ["thread", "process"])
def test_text_is_understood_when_it_is_sealed(root, sealing):
    """Large segments have templates when sealed, medium ones those of a prior segment of the topic, small ones none."""
    texts = [b'{"url":"/product/%d","ms":%d,"who":"somebody"}' % (n * n % 9973, n * 31 % 5000) for n in range(200_000)]
    found = []
    with aggregator.open(root, sealing=sealing) as catalog:
        for name, count in (
            ("t", 200_000),
            ("t", 40_000),
            ("t", 100),
            ("other", 40_000),
            ("other", 40_000),
            ("other", 0),
        ):
            topic = catalog.topic(name) if name in catalog.topics() else catalog.create_topic(name)
            if count:
                topic.append(pa.table({"space": ["s"] * count, "timestamp": range(count), "data": texts[:count]}))
                catalog.seal()
            else:  # segments written without templates are searched for them when merged
                catalog.compact(name)
            with esformat.open(max(root.rglob("*.esdb"), key=lambda path: path.stat().st_mtime_ns)) as segment:
                reader = segment._reader
                held = reader.dictionary(1) if (BlockKind.DICTIONARY, 1, 0) in reader.table else []
                found.append(any(column.templates is not None for column in held))
        assert [catalog.topic(name).scan().count() for name in ("t", "other")] == [240_100, 80_000]
    assert found == [True, True, False, False, False, True]


def test_by_itself(root):
    """Background merges leave few of many segments, level by level, and producers are still recognised."""
    count = 70 if ALL else 24
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t", indexes=["type"])
        for number in range(count):
            topic.append([{"space": "a", "timestamp": number}], producer="p", sequence=number)
            catalog.seal()
        end = time.monotonic() + 60
        while topic.stats()["segments"] > 14 and time.monotonic() < end:
            time.sleep(0.05)
        assert topic.stats()["segments"] <= 14
        assert [event.timestamp for event in topic.read()] == list(range(count))
    (root / "manifest.sqlite").unlink()
    aggregator.rebuild_manifest(root)
    with aggregator.open(root) as catalog:
        again = catalog.topic("t").append([{"space": "a", "timestamp": count - 1}], producer="p", sequence=count - 1)
        assert (again.duplicate, again.first) == (True, count - 1)


@pytest.mark.usefixtures("quiet")
def test_open_scans_finish(root, monkeypatch):
    """A scan begun earlier still reads the merged segments; then their files are deleted."""
    with aggregator.open(root) as catalog, aggregator.open(root, read_only=True) as reader:
        topic = catalog.create_topic("t", indexes=["type"])
        fill(catalog, topic, 6)
        expected = [event.data for event in topic.scan()]
        scans = [iter(topic.scan()), iter(reader.topic("t").scan())]
        begun = [[next(scan).data] for scan in scans]
        topic.compact()
        assert len(list(root.rglob("*.esdb"))) == 14
        assert [event.data for event in reader.topic("t").scan()] == expected
        for found, scan in zip(begun, scans, strict=True):
            assert found + [event.data for event in scan] == expected
        catalog._backend.upkeep.removal.sweep()
        assert len(list(root.rglob("*.esdb"))) == 2


@pytest.mark.usefixtures("quiet")
def test_a_full_disk_changes_nothing(root, monkeypatch):
    """If a merged segment cannot be written, its sources stay, and the next attempt succeeds."""
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t", indexes=["type"])
        fill(catalog, topic, 4)
        before, there = answers(topic), sorted(root.rglob("*.esdb"))

        def full(_):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space left"):
                topic.compact()
        assert sorted(path for path in (root / "segments").rglob("*") if path.is_file()) == there
        assert answers(topic) == before
        assert topic.compact().made == 2
        assert answers(topic) == before


CHILD = """
import re, sys, aggregator
from pathlib import Path
from aggregator.engine.upkeep.upkeep import Upkeep

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024

Upkeep.chores = lambda self: ()  # this process merges when it is told to
with aggregator.open(sys.argv[1]) as catalog:
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = peak()
    assert catalog.compact().made == 1
    print(peak() - before)
"""


@pytest.mark.usefixtures("quiet")
@long
def test_memory_is_bounded(tmp_path, monkeypatch):
    """Memory for merging eight segments is about the same for 26 MB and 154 MB of data."""
    taken = []
    for rows in (16_000, 96_000):
        root = tmp_path / str(rows)
        fill_with_noise(root, rows)
        run = subprocess.run(
            [sys.executable, "-c", CHILD, str(root)], capture_output=True, text=True, check=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        taken.append(int(run.stdout))
    assert taken[1] < taken[0] + 80, f"{taken[0]} MiB for 26 MB, {taken[1]} MiB for 154 MB"


def fill_with_noise(root, rows):
    """Eight segments with this many events of 200 incompressible bytes."""
    chance = np.random.default_rng(1)
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        for number in range(8):
            noise = [None, pa.py_buffer(chance.bytes(rows * 200))]
            data = pa.FixedSizeBinaryArray.from_buffers(pa.binary(200), rows, noise).cast(pa.binary())
            spaces = pa.array(chance.integers(0, 1000, rows).astype(str))
            topic.append(pa.table({"space": spaces, "timestamp": np.arange(rows) + number * rows, "data": data}))
            catalog.seal()
