"""Histograms of scans and statements equal counting all times, and read little."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from effort import share_of
from still import no_background

import aggregator
from aggregator import InvalidRequestError
from aggregator.engine.upkeep.rewrite import Rewriter
from aggregator.read import time_counts
from esformat.parts import Cache

SPAN = 10_000_000


def make(path):
    """Two partitions, eight segments and unsealed events; an erased space; streams in another topic."""
    catalog = aggregator.open(path, durability="none")
    topic = catalog.create_topic("clicks", indexes=["type"], roll={"rows": 10**6})
    rng = np.random.default_rng(5)
    for number in range(9):
        times = np.sort(rng.integers(number * SPAN, (number + 1) * SPAN, 500))
        table = pa.table(
            {
                "space": [f"s{n}" for n in rng.integers(0, 9, 500)], "grouping": [f"g{n % 2}" for n in range(500)],
                "timestamp": pa.array(times, pa.timestamp("us", "UTC")), "data": [b"x"] * 500,
                "type": [f"t{n}" for n in rng.integers(0, 4, 500)],
            }
        )  # fmt: skip
        topic.append(table, partition=str(number % 2))
        if number < 8:
            catalog.seal("clicks")
    catalog.write({"app": "web"}, [{"ts": SPAN + n * 1000, "msg": "ok" if n % 3 else "ERROR"} for n in range(900)])
    return catalog


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    """A catalog that no test changes."""
    with make(tmp_path_factory.mktemp("histograms") / "c") as made:
        yield made


def check(found, times, buckets=60):
    """Check that the histogram counts these times."""
    assert found.total == len(times)
    assert len(found.counts) <= buckets
    for (low, high), count in zip(found.spans(), found.counts, strict=True):
        assert count == np.count_nonzero((times >= low) & (times < high))


def times_of(answer):
    return answer.to_table()["timestamp"].cast(pa.int64()).to_numpy()


QUESTIONS = [
    {}, {"start": 25_000_000}, {"end": 31_000_001}, {"start": 15_000_000, "end": 16_000_000}, {"space": "s3"},
    {"space": "s3", "start": 4 * SPAN}, {"space": "s3", "grouping": "g1"}, {"partition": "1"}, {"space": "nobody"},
    {"start": 10**15},
]  # fmt: skip


@pytest.mark.parametrize("options", QUESTIONS, ids=str)
def test_scans(catalog, options):
    """Histograms are right for every kind of scan, also by index, with few and many spans."""
    topic = catalog.topic("clicks")
    for buckets in share_of((7, 2, 900, 60), 2):
        check(topic.scan(**options).histogram(buckets), times_of(topic.scan(**options)), buckets)
        answer = topic.scan_index("type", "t1", **options)
        check(answer.histogram(buckets), times_of(answer), buckets)


STATEMENTS = [
    "SELECT", "SELECT FROM topic = clicks", "SELECT FROM topic = clicks AND space = s3", "SELECT FROM {app=web}",
    "SELECT FROM {app=web} WHERE msg = ERROR", "SELECT WHERE type = t1", "SELECT FROM partition = 1",
    'SELECT FROM topic = clicks RANGE ["1970-01-01T00:00:25Z":"1970-01-01T00:00:45Z"]', "SELECT FROM nothing = here",
]  # fmt: skip


@pytest.mark.parametrize("text", share_of(STATEMENTS, 2))
def test_statements(catalog, text):
    """Histograms are right for streams, topics and both; LIMIT is ignored, `start` and `end` apply."""
    check(catalog.query(text).histogram(), times_of(catalog.query(text)))
    check(catalog.query(f"{text} LIMIT 3").histogram(), times_of(catalog.query(text)))
    narrowed = catalog.query(text, start=25_000_000, end=30_000_000)
    check(narrowed.histogram(20), times_of(narrowed), 20)
    assert all(25_000_000 <= time < 30_000_000 for time in times_of(narrowed))


def test_hidden_events_do_not_count(tmp_path):
    """An erased space is gone from the histogram immediately."""
    with make(tmp_path / "c") as catalog:
        topic = catalog.topic("clicks")
        before = topic.scan().histogram().total
        erased = topic.erase("s3").events
        assert erased > 0
        check(topic.scan().histogram(), times_of(topic.scan()))
        check(
            catalog.query("SELECT FROM topic = clicks").histogram(),
            times_of(catalog.query("SELECT FROM topic = clicks")),
        )
        assert topic.scan().histogram().total == before - erased


def test_segments_in_one_span_are_not_read(catalog, monkeypatch):
    """For a segment within one span the manifest suffices, for a scan and for a statement."""
    read = []
    real = time_counts.segment_times
    monkeypatch.setattr(
        time_counts,
        "segment_times",
        lambda pool, info, *rest, **more: read.append(info) or real(pool, info, *rest, **more),
    )
    topic = catalog.topic("clicks")
    assert topic.scan().histogram(2).total == 4500
    assert catalog.query("SELECT FROM topic = clicks").histogram(2).total == 4500
    assert not read
    monkeypatch.setattr(topic.scan()._pool, "counts", Cache(1 << 20))  # other tests may have counted the same spans
    found = topic.scan().histogram(100)
    assert len(read) == 8
    assert topic.scan().histogram(100) == catalog.query("SELECT FROM topic = clicks").histogram(100) == found
    assert len(read) == 8  # once each
    low, high = found.start_us, found.start_us + 60 * found.width_us
    part = topic.scan(start=low + 1, end=high)
    check(part.histogram(61), times_of(part), 61)  # spans of the same width, from whole segments and parts


def test_limits_are_refused(catalog):
    """A histogram of a limited scan, or by record index, is refused."""
    topic = catalog.topic("clicks")
    for answer in (topic.scan(limit=10), topic.read("0")):
        with pytest.raises(InvalidRequestError, match="a histogram counts all events by time"):
            answer.histogram()
    with pytest.raises(InvalidRequestError, match="start and end apply only to a SELECT"):
        catalog.query("SHOW PARTITIONS", start=1)


def test_segment_facts(catalog):
    """Segments are listed by time with their rows and times; unsealed events are in none."""
    segments = catalog.topic("clicks").segments()
    assert sum(each["rows"] for each in segments) == 4000
    assert [each["min_timestamp"] for each in segments] == sorted(each["min_timestamp"] for each in segments)
    assert {each["partition"] for each in segments} == {"0", "1"}
    assert all(each["bytes"] > 0 and each["first_index"] <= each["last_index"] for each in segments)
    assert {each["state"] for each in segments} == {"sealed"}


def test_states_of_segments(tmp_path):
    """Segments report whether they may contain an erased space, and whether they are being merged."""
    with no_background(), aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        for n in range(4):
            topic.append([{"space": f"{'abab'[n]}{m}", "timestamp": n} for m in range(9)])
            catalog.seal("t")
        topic.erase("a5")
        assert [each["state"] for each in topic.segments()] == ["erasing", "sealed"] * 2
        topic.append([{"space": "a5", "timestamp": 9}])  # which is not erased
        catalog.seal("t")
        assert [each["state"] for each in topic.segments()] == [*["erasing", "sealed"] * 2, "sealed"]
        seen = []
        made = Rewriter._progress
        with mock.patch.object(Rewriter, "_progress", lambda *given: (seen.append(states(topic)), made(*given))):
            topic.compact()
        assert any(state.count("merging") > 1 for state in seen)
        assert {each["state"] for each in topic.segments()} == {"sealed"}


def states(topic):
    return [each["state"] for each in topic.segments()]
