"""Retention and compaction while eight readers scan: no error, no gap, and bounded size."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from effort import long
from reading_child import read_until

import aggregator
from aggregator.engine.upkeep.upkeep import LOG_SHARE, Upkeep
from aggregator.policy import Tuning
from aggregator.storage.segments.pool import SegmentPool

ROOT = Path(__file__).parents[4]
BATCHES = int(os.environ.get("KEEPING_HOUSE_BATCHES", "100"))
LIMIT = 12_000_000
PAUSES = (0.02, 0.05, 0.1, 0.2)


class Source:
    """Append batches to three partitions in turn."""

    def __init__(self, topic):
        self.topic = topic
        self.events = self.batches = 0

    def append(self, rows):
        spaces = pa.array([f"s{n % 50}" for n in range(rows)])
        data = pa.array([os.urandom(200) for _ in range(rows)])
        table = pa.table({"space": spaces, "timestamp": range(self.events, self.events + rows), "data": data})
        self.topic.append(table, str(self.batches % 3))  # retention never refuses an append
        self.events += rows
        self.batches += 1


@long
@pytest.mark.parametrize(
    ("limits", "retention"),
    [
        pytest.param({"max_bytes": LIMIT}, None, id="catalog"),
        pytest.param(None, {"bytes": LIMIT}, id="topic"),
    ],
)
def test_eight_readers(tmp_path, monkeypatch, limits, retention):
    """Four threads and four processes scan, with pauses, during seals, merges, rewrites and removals: no append is
    refused, and each retention pass leaves at most 1.1 times the limit, not counting files that scans still read and
    the excess of the log over its share, which waits for sealing.
    """
    left: list[tuple[int, int]] = []
    real = Upkeep._retain

    def retain(self, topics):
        done = real(self, topics)
        usage = self.usage()
        kept = usage.segments + (usage.other - max(0, usage.log - LIMIT // LOG_SHARE) if limits else 0)
        left.append((kept, usage.waiting))
        return done

    monkeypatch.setattr(Upkeep, "_retain", retain)
    root = tmp_path / "data"
    child = [sys.executable, str(ROOT / "tests/support/reading_child.py"), str(root)]
    with aggregator.open(root, limits=limits, durability="none", tuning=Tuning(fan_in=3)) as catalog:
        topic = catalog.create_topic("t", roll={"rows": 100}, retention=retention)
        source = Source(topic)
        beside = catalog.create_topic("beside", roll={"rows": 100})
        while source.events < 45_000 or not topic.stats()["min_timestamp"]:  # retention works from the start
            source.append(500)
            catalog.seal()
        readers = [
            subprocess.Popen(
                [*child, str(pause)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
            for pause in PAUSES
        ]  # fmt: skip
        assert all(reader.stdout is not None and reader.stdout.readline() == "ready\n" for reader in readers)
        Source(beside).append(200)
        over = False
        levels, first = set(), topic.stats()["min_timestamp"]
        with ThreadPoolExecutor(len(PAUSES)) as pool:
            threads = [pool.submit(read_until, lambda: over, topic, pause) for pause in PAUSES]
            for number in range(BATCHES):
                source.append(100)
                if number == BATCHES // 2:
                    beside.erase("s7")
                levels |= {info.level for info in topic._topic.segments.view()}
                time.sleep(0.02)
            over = True
            outputs = [reader.communicate("")[0] for reader in readers]
            scans = [thread.result() for thread in threads] + [int(output) for output in outputs]
        stats = catalog.stats()
        assert stats["background"] is None
        assert topic.stats()["min_timestamp"] > first  # retention has worked
        assert len(levels) > 1  # and so has compaction
        assert min(scans) > 0
        largest, waiting = map(max, zip(*left, strict=True))
        assert largest <= 1.1 * LIMIT, f"{largest:,} bytes"
        assert catalog._backend.upkeep.erasures.rewritten
        print(f"{source.events:,} events, {sum(scans)} scans, at most {largest:,} bytes after {len(left)} passes")
        print(f"at most {waiting:,} bytes waited for scans")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("call", [1, 2, 3])
@pytest.mark.parametrize("erased", [False, True])
def test_retention_is_quicker(tmp_path, monkeypatch, erased, call):
    """Segments that expire while they are merged or rewritten are skipped and not reported as missing."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        for first in range(0, 80, 10):
            topic.append([{"space": f"s{n % 3}", "timestamp": n} for n in range(first, first + 10)])
            catalog.seal()
        if erased:
            topic.erase("s1")
        real, calls = SegmentPool.get, []

        def get(pool, info):
            calls.append(info.number)
            if len(calls) == call:
                topic.set_policy(retention={"segments": 0})
                catalog.retain()
            return real(pool, info)

        monkeypatch.setattr(SegmentPool, "get", get)
        report = catalog.compact()
        assert len(calls) >= call
        assert (report.merged, topic.scan().count()) == (0, 0)
        assert not catalog.problems()
        assert not list((tmp_path / "data" / "segments").rglob("*.esdb*"))
