"""Record indexes are never given twice, also where a crash may have taken acknowledged events with it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from crash_image import crash_image

import aggregator
from aggregator.writing import LOST_INDEXES

EVENTS = pa.table({"space": ["a", "b"], "timestamp": pa.array([1, 2], pa.int64()), "data": [b"x", b"y"]})


def crashed(path, copy):
    """A copy of a catalog as it is while its writer runs: what a crash leaves."""
    crash_image(path, copy)
    return copy


@pytest.mark.parametrize("end", ["closed", "crashed"])
def test_indexes_stay_passed_over(tmp_path, end):
    """A partition that gets nothing in the run after a crash goes on behind the gap in a later one."""
    durability = aggregator.Durability("interval")
    with aggregator.open(tmp_path / "first", durability=durability) as catalog:
        catalog.create_topic("t").append(EVENTS)
        after_crash = crashed(tmp_path / "first", tmp_path / "second")
    with aggregator.open(after_crash) as catalog:
        later = crashed(after_crash, tmp_path / "third") if end == "crashed" else after_crash
    with aggregator.open(later) as catalog:
        receipt = catalog.topic("t").append(EVENTS)
    assert receipt.first == LOST_INDEXES + 2
    with aggregator.open(later) as catalog:
        assert catalog.topic("t").append(EVENTS).first == LOST_INDEXES + 4


def test_nothing_is_passed_over_where_every_append_was_synced(tmp_path):
    """After a crash of a run with `fsync`, indexes go on where they were."""
    with aggregator.open(tmp_path / "first") as catalog:
        catalog.create_topic("t").append(EVENTS)
        after_crash = crashed(tmp_path / "first", tmp_path / "second")
    with aggregator.open(after_crash) as catalog:
        assert catalog.topic("t").append(EVENTS).first == 2
