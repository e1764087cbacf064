"""If a topic's limit had no room for another segment, merging never ended, and the catalog could not be closed."""

from __future__ import annotations

import os
import threading

import pyarrow as pa
import pytest

import aggregator
from aggregator.policy import Tuning

WAIT_S = 60
FAN_IN = Tuning().fan_in


def events(first, count=50):
    data = [os.urandom(200) for _ in range(count)]
    return pa.table({"space": ["s"] * count, "timestamp": range(first, first + count), "data": data})


def segments(topic):
    return list(topic._topic.segments.view())


def seal_some(catalog, topic, count):
    for _ in range(count):
        topic.append(events(0))
        catalog.seal(topic.name)


@pytest.fixture
def catalog(tmp_path, quiet):
    """A catalog that merges only on demand."""
    with aggregator.open(tmp_path / "events") as catalog:
        yield catalog


def test_no_room_below_a_topics_limit(catalog):
    """The search for segments to merge ends if there is no room to merge them."""
    topic = catalog.create_topic("t", roll={"age": "1h"})
    topic.append(events(0, count=1500), "large")
    catalog.seal()
    large = segments(topic)
    seal_some(catalog, topic, FAN_IN)
    small = sum(segment.size_bytes for segment in segments(topic)[1:])
    topic.set_policy(retention={"bytes": 12 * small})
    upkeep = catalog._backend.upkeep
    scan = topic.scan().batches()
    next(scan)
    upkeep.removal.retire(topic._topic, large, "test")  # the scan keeps it on disk
    looking = threading.Thread(target=upkeep._compact_by_itself, daemon=True)
    looking.start()
    looking.join(WAIT_S)
    assert not looking.is_alive()
    assert len(segments(topic)) == FAN_IN
    del scan
    upkeep.removal.sweep()
    upkeep._look_after = 0
    upkeep._compact_by_itself()
    assert len(segments(topic)) == 1


def test_merged_after_an_erasure(catalog):
    """Segments not merged because of an erasure are merged after it, even if no segment was added or removed."""
    topic = catalog.create_topic("t", roll={"age": "1h"})
    other = catalog.create_topic("other", roll={"age": "1h"})
    seal_some(catalog, topic, FAN_IN)
    other.append(events(0))  # keeps the log
    topic.erase("nobody")
    upkeep = catalog._backend.upkeep
    upkeep._compact_by_itself()
    assert topic.erasures() == ("nobody",)
    assert len(segments(topic)) == FAN_IN
    catalog.seal("other")
    upkeep._look_after = 0
    upkeep._compact_by_itself()
    assert topic.erasures() == ()
    assert len(segments(topic)) == 1


def test_a_damaged_segment_holds_up_nothing_else(catalog):
    """A missing segment stops neither erasures nor merges elsewhere, and is reported meanwhile."""
    first = catalog.create_topic("first", roll={"age": "1h"})
    second = catalog.create_topic("second", roll={"age": "1h"})
    for topic in (first, second):
        seal_some(catalog, topic, FAN_IN)
        topic.append(pa.table({"space": ["customer"], "timestamp": [0], "data": [b"x"]}))
        catalog.seal()
    writing = catalog._backend
    for segment in (segments(first)[0], segments(first)[-1]):
        writing.layout.segment(segment.number).unlink()
        writing.pool.forget(segment.number)
    for topic in (first, second):
        writing.upkeep.erasures.hide(topic._topic, b"customer", 1)
    with pytest.raises(aggregator.SegmentMissingError):
        writing.upkeep._compact_by_itself()
    assert second.erasures() == ()
    assert first.erasures() == ("customer",)
    writing.upkeep._look_after = 0
    with pytest.raises(aggregator.SegmentMissingError):
        writing.upkeep._compact_by_itself()
    assert len(segments(second)) == 1
    with pytest.raises(aggregator.SegmentMissingError):
        catalog.compact()
    catalog.accept_losses()
    writing.upkeep._look_after = 0
    writing.upkeep._compact_by_itself()
    assert first.erasures() == ()


def test_a_segment_with_wrong_bytes_is_passed_over(catalog):
    """A segment that cannot be merged is reported as a problem; its neighbours are merged without it."""
    topic = catalog.create_topic("t", roll={"age": "1h"})
    seal_some(catalog, topic, FAN_IN + 1)
    writing = catalog._backend
    bad = segments(topic)[1]
    path = writing.layout.segment(bad.number)
    stored = bytearray(path.read_bytes())
    middle = len(stored) // 2
    stored[middle - 200 : middle + 200] = bytes(400)
    path.write_bytes(stored)
    for _ in range(2):
        writing.upkeep._look_after = 0
        writing.upkeep._compact_by_itself()
    assert sorted(segment.level for segment in segments(topic)) == [0, 1]
    (problem,) = catalog.problems()
    assert problem.subject.endswith(f"{bad.number:012d}.esdb")
    assert "cannot be merged" in problem.message
