"""Faults at system calls, a slice of `python -m tests.soak.faults`, and background work that cannot start."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from effort import ALL

import aggregator
from aggregator.storage.manifest import Manifest
from tests.soak import tracing

ROOT = Path(__file__).parents[4]


@pytest.mark.skipif(not tracing.POSSIBLE, reason="system calls are watched on Linux on x86-64")
def test_faults_at_system_calls(tmp_path):
    """All promises hold through kills at every kind of call, failing syncs, a full disk and exhausted descriptors."""
    command = [
        sys.executable,
        "-m",
        "tests.soak.faults",
        "--points",
        "40" if ALL else "5",
        "--seconds",
        "10",
        "--open-seconds",
        "60",
    ]
    for mode in ("kill", "torn", "sync", "full", "descriptors"):
        command += ["--mode", mode]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "broken promises: 0;" in done.stdout
    assert "'kill': " in done.stdout  # how many of the other kinds fit into the time depends on the machine


def test_a_lock_that_cannot_be_written(tmp_path, monkeypatch):
    """On a full disk opening fails and releases the lock; with room again it succeeds."""

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(OSError, match="No space left"):
        aggregator.open(tmp_path / "data")
    monkeypatch.undo()
    aggregator.open(tmp_path / "data").close()


def test_opening_that_fails_leaves_no_thread(tmp_path, monkeypatch):
    """No thread works on a catalog whose lock was released."""
    before = set(threading.enumerate())
    real = Manifest.put

    def fail(manifest, key, value):
        if key == "unsynced":
            raise aggregator.ManifestFailedError("the disk is full")
        real(manifest, key, value)

    monkeypatch.setattr(Manifest, "put", fail)
    with pytest.raises(aggregator.ManifestFailedError):
        aggregator.open(tmp_path / "data")
    assert set(threading.enumerate()) <= before  # some threads of an earlier test may have ended


def test_background_work_outlives_a_lack_of_threads(tmp_path, monkeypatch):
    """If the system has no threads, sealing is retried."""
    with aggregator.open(tmp_path / "data") as catalog:
        scheduler = catalog._backend.scheduler
        pool, real, failures = scheduler._pool, scheduler._pool.submit, []

        def submit(*arguments):
            if not failures:
                failures.append(arguments)
                raise RuntimeError("can't start new thread")
            return real(*arguments)

        monkeypatch.setattr(pool, "submit", submit)
        topic = catalog.create_topic("t", roll={"rows": 1})
        topic.append([{"space": "a", "timestamp": 1}])
        deadline = time.monotonic() + 60
        while not topic.stats()["segments"] and time.monotonic() < deadline:
            time.sleep(0.02)
        assert failures
        assert topic.stats()["segments"] == 1


@pytest.mark.skipif(not tracing.POSSIBLE, reason="system calls are watched on Linux on x86-64")
def test_a_change_that_failed_is_brought_back_by_a_crash_unless_it_is_settled(tmp_path):
    """A change that SQLite wrote but could not sync may return after a crash: its files stay until a later change."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.soak.unsynced_change"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "synced, not synced, settled: True True False\n", done.stderr
