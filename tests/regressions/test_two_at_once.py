"""Concurrent operations of two threads that failed or had wrong results."""

from __future__ import annotations

import sys
import threading

import pyarrow as pa
import pytest

import aggregator
from aggregator import topic as topic_module
from aggregator.engine.upkeep import residue as traces
from aggregator.storage.segments import table as segment_table
from aggregator.storage.state.streams import StreamIndex
from esformat.tools import merge

WAIT_S = 60


def rows(*times):
    return [{"space": "a", "timestamp": time} for time in times]


@pytest.fixture
def root(tmp_path, quiet):
    """The directory of a catalog without background removal or merging."""
    return tmp_path / "events"


@pytest.fixture
def catalog(root):
    with aggregator.open(root) as catalog:
        yield catalog


@pytest.fixture
def topic(catalog):
    """A topic with two segments."""
    topic = catalog.create_topic("t", roll={"age": "1h"})
    for number in range(2):
        topic.append(rows(number))
        catalog.seal()
    return topic


def once(monkeypatch, owner, name, act):
    """Do something before the next call of a function."""
    real = getattr(owner, name)

    def called(*args, **options):
        monkeypatch.setattr(owner, name, real)
        act()
        return real(*args, **options)

    monkeypatch.setattr(owner, name, called)


def test_traces_while_segments_are_merged(topic, monkeypatch):
    """A search for traces during a merge finds them in the files that existed when it began."""
    once(monkeypatch, traces, "_holds", topic.compact)
    found = topic.traces("a")
    assert found.visible == 2
    assert len(found.segments) == 2


def test_segments_that_go_while_they_are_merged(catalog, topic, monkeypatch):
    """Files that retention removes while they are merged do not stop other merges."""
    topic.set_policy(retention={"age": "1h"})

    def remove():
        assert topic.retain()
        for number in (1, 2):
            catalog._backend.pool.forget(number)

    once(monkeypatch, sys.modules[merge.__module__], "plan_assembly", remove)
    assert catalog.compact().merged == 0
    assert topic.scan().count() == 0
    assert catalog.problems() == []


def test_traces_in_a_process_that_does_not_know_the_newest_columns(root, topic, monkeypatch):
    """A search for traces in a reader ignores events, and columns, that are newer than its beginning."""
    with aggregator.open(root, read_only=True) as reader:
        seen = reader.topic("t")

        def add():
            topic.append([{"space": "a", "timestamp": 5, "more": 1}])

        once(monkeypatch, topic_module, "look_for", add)
        assert seen.traces("a").visible == 2


def test_accepting_losses_while_segments_are_merged(catalog, topic, monkeypatch):
    """`accept_losses` does not report segments that were merged meanwhile."""
    once(monkeypatch, type(catalog._backend.layout), "segment", topic.compact)
    assert catalog.accept_losses() == []
    assert catalog.problems() == []
    assert topic.scan().count() == 2


def test_two_policies(root, catalog, topic, monkeypatch):
    """Two threads that change a topic's policies do not revert each other's changes."""
    other = threading.Thread(target=topic.set_policy, kwargs={"retention": {"segments": 5}})

    def meanwhile():
        other.start()
        other.join(0.2)

    once(monkeypatch, catalog._backend.manifest, "set_policy", meanwhile)
    topic.set_policy(roll={"rows": 7})
    other.join(WAIT_S)
    assert (topic.roll.rows, topic.retention.segments) == (7, 5)
    with aggregator.open(root, read_only=True) as reader:
        again = reader.topic("t")
        assert (again.roll.rows, again.retention.segments) == (7, 5)


def test_stats_while_a_topic_is_made(catalog, topic, monkeypatch):
    """Statistics that were begun before a topic was created do not include it."""
    once(monkeypatch, topic_module, "topic_stats", lambda: catalog.create_topic("another"))
    assert list(catalog.stats()["topics"]) == ["t"]
    assert topic.name == "t"


def test_appending_to_a_topic_that_is_being_made(catalog, monkeypatch):
    """A new topic has its columns as soon as it can be found, so that narrower batches do not get others."""
    manifest = catalog._backend.manifest
    once(monkeypatch, manifest, "add_schema", lambda: catalog.topic("new").append(rows(1)))
    topic = catalog.create_topic("new", pa.schema([("data", pa.binary()), ("n", pa.int64())]))
    topic.append(rows(2))
    assert len({known.family for known in topic._topic.schemas.values()}) == 1


def test_streams_are_written_only_when_something_came(catalog, monkeypatch):
    """Topics with binary keys and removed segments do not cause the stream index to be written each second."""
    binary = catalog.create_topic("binary", keys="binary")
    binary.append([{"space": b"a", "timestamp": 1}])
    catalog.write({"app": "web"}, [{"msg": "hello"}])
    catalog.seal()
    streams = catalog._backend.streams
    streams.keep()
    written = []
    monkeypatch.setattr(catalog._backend.manifest, "keep_streams", lambda *_: written.append(1))
    StreamIndex.keep(streams)
    assert not written


def test_verifying_while_retention_clears_up(catalog, monkeypatch):
    """`verify` checks every segment, even if the table of segments is rebuilt because many were removed."""
    monkeypatch.setattr(segment_table, "_LEAST_CAPACITY", 2)
    monkeypatch.setattr(segment_table, "_MANY_GONE", 2)
    topic = catalog.create_topic("t", roll={"age": "1h"})
    for number in range(6):
        topic.append(rows(number))
        catalog.seal()
    newest = list(topic._topic.segments.view())[-1]
    path = catalog._backend.layout.segment(newest.number)
    path.write_bytes(path.read_bytes()[:-20] + bytes(20))
    topic.set_policy(retention={"segments": 2})
    halfway, verified = threading.Event(), threading.Event()

    def wait():
        halfway.set()
        verified.wait(0.2)

    once(monkeypatch, segment_table.SegmentTable, "add", wait)
    retaining = threading.Thread(target=topic.retain)
    retaining.start()
    assert halfway.wait(WAIT_S)
    problems = catalog.verify()
    verified.set()
    retaining.join(WAIT_S)
    assert len(problems) == 1
