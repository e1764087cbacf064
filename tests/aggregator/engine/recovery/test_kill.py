"""kill -9 under load: every acknowledged event is there once, batches are whole, and retries are recognised."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import effort
import pytest
from ingest_child import batch

import aggregator

ROOT = Path(__file__).parents[4]
LONGEST_S = 0.6 if effort.ALL else 0.3


def run_and_kill(root, durability, roll_rows, seconds, threads=4):
    """Start a child, kill it, and return what it acknowledged: (partition, producer, sequence, first, last)."""
    command = [sys.executable, str(ROOT / "tests/support/ingest_child.py"), str(root), durability, str(roll_rows)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*command, str(threads)], stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline()]  # it is running
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.read().splitlines(keepends=True)
    assert child.returncode == -signal.SIGKILL
    whole = [line.split() for line in lines if line.endswith(b"\n")]
    return [(a.decode(), b.decode(), *map(int, rest)) for a, b, *rest in whole]


def check(root, acknowledged):
    """Open the catalog and compare it with the acknowledged batches."""
    began = time.monotonic()
    with aggregator.open(root) as catalog:
        assert time.monotonic() - began < 60
        assert catalog.problems() == []
        topic = catalog.topic("t")
        stored = defaultdict(list)
        for partition in topic.partitions:
            table = topic.read(partition).to_table()
            indexes = table["record_index"].to_pylist()
            assert indexes == list(range(len(indexes)))
            for index, data in zip(indexes, table["data"].to_pylist(), strict=True):
                producer, sequence, _ = data.split(b"/")
                stored[partition, producer.decode(), int(sequence)].append((index, data))
        for (_, producer, sequence), found in stored.items():  # every event of a batch, in order, once
            assert [data for _, data in found] == batch(producer, sequence)["data"].to_pylist()
        for partition, producer, sequence, first, last in acknowledged:
            found = stored[partition, producer, sequence]
            assert [index for index, _ in found] == list(range(first, last + 1))
        assert topic.scan().count() == sum(map(len, stored.values()))
        for partition, producer, sequence, first, _ in acknowledged[-3:]:
            again = topic.append(batch(producer, sequence), partition, producer=producer, sequence=sequence)
            assert (again.duplicate, again.first) == (True, first)
    return len(stored)


@pytest.mark.parametrize(
    ("durability", "roll_rows"),
    [
        ("fsync", 200),
        pytest.param("fsync", 10**6, marks=effort.long),
        pytest.param("interval:50ms", 500, marks=effort.long),
    ],
)
def test_killed_while_ingesting(tmp_path, durability, roll_rows):
    """The same catalog survives several kills, with constant sealing or without any."""
    acknowledged = []
    chance = random.Random(roll_rows)
    for _ in range(3 if effort.ALL else 2):
        acknowledged += run_and_kill(tmp_path / "data", durability, roll_rows, chance.uniform(0.05, LONGEST_S))
        if durability == "fsync":
            assert check(tmp_path / "data", acknowledged) >= len(set(acknowledged))
    if durability != "fsync":  # record indexes jump after each crash and are never reused
        with aggregator.open(tmp_path / "data") as catalog:
            topic = catalog.topic("t")
            for partition in topic.partitions:
                indexes = topic.read(partition).to_table()["record_index"].to_pylist()
                assert indexes == sorted(set(indexes))
            found = set(topic.scan(columns=["data"]).to_table()["data"].to_pylist())
            for _, producer, sequence, _, _ in acknowledged:
                assert found >= set(batch(producer, sequence)["data"].to_pylist())
