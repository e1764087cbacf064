"""An opening that fails at the log's first sync is no loss: the next one finds all, and reports nothing."""

from __future__ import annotations

import errno
import os

import pytest

import aggregator


def test_the_sync_of_a_new_log_file_fails(tmp_path, monkeypatch):
    """The file that was there, with nothing in it yet, told how far the log came; it was taken away."""
    for number in range(2):
        with aggregator.open(tmp_path / "c") as catalog:
            topic = catalog.topic("t") if number else catalog.create_topic("t")
            topic.append([{"space": "a", "timestamp": number, "data": b"x" * 200}])
            catalog.seal()
    with aggregator.open(tmp_path / "c"):
        pass  # lets go of the log's files whose events are sealed
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
