"""An opening that failed at the log's first sync was reported as a loss of events by the next one."""

from __future__ import annotations

import errno
import os

import pytest

import aggregator


def test_the_sync_of_a_new_log_file_fails(tmp_path, monkeypatch):
    """The next opening finds all events and reports no loss, although the empty log file was removed."""
    for number in range(2):
        with aggregator.open(tmp_path / "c") as catalog:
            topic = catalog.topic("t") if number else catalog.create_topic("t")
            topic.append([{"space": "a", "timestamp": number, "data": b"x" * 200}])
            catalog.seal()
    with aggregator.open(tmp_path / "c"):
        pass  # removes log files whose events are sealed
    logs = tmp_path / "c" / "log"
    (newest,) = logs.glob("*.log")
    real = os.fsync

    def failing(descriptor):
        if os.fstat(descriptor).st_ino == newest.stat().st_ino:
            raise OSError(errno.EIO, "failed")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="failed"):
        aggregator.open(tmp_path / "c")
    monkeypatch.undo()
    with aggregator.open(tmp_path / "c") as catalog:
        assert catalog.problems() == []
        assert catalog.topic("t").scan().count() == 2
