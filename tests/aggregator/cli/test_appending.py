"""Appending batches from a file: errors that are retried, and errors that end it."""

from __future__ import annotations

import pyarrow as pa
import pytest

import aggregator
from aggregator.cli.shared import appending


def test_a_disk_that_stays_full_ends_it(tmp_path, monkeypatch, capsys):
    """A disk that stays full ends the append, after waiting for retention. Events already stored are reported."""
    monkeypatch.setattr(appending, "DISK_PATIENCE_S", 0.2)
    batch = pa.record_batch({"space": ["a"], "timestamp": pa.array([1], pa.timestamp("us", "UTC"))})
    root = tmp_path / "data"
    with aggregator.open(root) as catalog:
        summary = appending.append_batches(catalog.create_topic("t"), [batch], "0", batch_rows=10)
    with (
        aggregator.open(root, limits={"min_available_bytes": 1 << 60}) as catalog,
        pytest.raises(aggregator.DiskFullError),
    ):
        appending.append_batches(catalog.topic("t"), [batch], "0", batch_rows=10, summary=summary)
    assert summary.overloads > 0
    assert "t keeps 1 event appended before the error" in capsys.readouterr().err
