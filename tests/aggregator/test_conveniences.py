"""Conveniences of topics and segments: get or create, keys and values, times as text, plain loops."""

from __future__ import annotations

import datetime as dt
import os

import pyarrow as pa
import pytest

import aggregator
import esformat
from aggregator import TopicExistsError
from esformat import InvalidEventError, UnknownIndexError, UsageError

HOUR = 3_600_000_000


@pytest.fixture
def catalog(tmp_path):
    with aggregator.open(tmp_path / "data", durability="none") as opened:
        yield opened


def test_get_or_create(catalog):
    """`create_topic` with `exist_ok` returns the same topic; with other indexes or keys it is refused."""
    made = catalog.create_topic("t", indexes=["kind"], exist_ok=True)
    made.append([{"space": "s", "timestamp": 1, "kind": "a"}])
    again = catalog.create_topic("t", indexes=["kind"], retention={"bytes": "1 GiB"}, exist_ok=True)
    assert (again.scan().count(), again.retention) == (1, made.retention)
    for other in ({"indexes": []}, {"indexes": ["kind"], "keys": "binary"}):
        with pytest.raises(TopicExistsError, match="with keys of text and the indexes kind"):
            catalog.create_topic("t", exist_ok=True, **other)
    with pytest.raises(TopicExistsError):
        catalog.create_topic("t", indexes=["kind"])


def test_spaces_and_index_values(catalog):
    """Spaces and index values cover segments, partitions and unsealed events, without erased ones."""
    topic = catalog.create_topic("t", indexes=["kind"])
    assert (topic.spaces(), topic.index_values("kind")) == ({}, {})
    topic.append([{"space": "b", "timestamp": 1, "kind": "x"}, {"space": "a", "timestamp": 2, "kind": None}])
    catalog.seal()
    topic.append([{"space": "b", "timestamp": 3, "kind": "w"}], "p1")
    assert list(topic.spaces().items()) == [("a", 1), ("b", 2)]
    assert list(topic.index_values("kind").items()) == [("w", 1), ("x", 1)]
    topic.append([{"space": "c", "timestamp": 4, "kind": 7}])
    assert topic.index_values("kind") == {"7": 1, "w": 1, "x": 1}
    topic.erase("b")
    assert (topic.spaces(), topic.index_values("kind")) == ({"a": 1, "c": 1}, {"7": 1})
    with pytest.raises(UnknownIndexError, match="no index 'other'"):
        topic.index_values("other")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T01:00:00Z", HOUR), ("1970-01-01T02:00:00+01:00", HOUR), ("1970-01-01 01:00", HOUR),
        ("1970-01-02", 24 * HOUR), ("1970-01-01T00:00:00.000007Z", 7), ("1970-01-01T00:00:00.000007000Z", 7),
    ],
)  # fmt: skip
def test_times_as_text(catalog, tmp_path, text, moment):
    """Times may be ISO 8601 text, in UTC unless a zone is named, for topics, files and several files."""
    topic = catalog.create_topic("t")
    rows = pa.table({"space": ["s"] * 3, "timestamp": [moment - 1, moment, moment + 1]})
    topic.append(rows)
    with esformat.create(tmp_path / "t.esdb") as writer:
        writer.add_table(rows)
    with esformat.open(tmp_path / "t.esdb") as segment, esformat.open_many([tmp_path / "t.esdb"]) as files:
        for read in (topic.scan, segment.scan, segment["s"].scan, files.scan):
            assert [event.timestamp for event in read(start=text)] == [moment, moment + 1]
            assert [event.timestamp for event in read(end=text)] == [moment - 1]


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "1970-01-01T00:00:00.0000001Z"])
def test_times_that_are_none(catalog, text):
    """Times that cannot be read, or not exactly, are refused."""
    topic = catalog.create_topic("t")
    with pytest.raises(InvalidEventError, match="start"):
        topic.scan(start=text)
    with pytest.raises(InvalidEventError, match="no time zone"):
        topic.scan(start=dt.datetime(2026, 1, 1))


def test_loops_over_spaces(tmp_path):
    """Iterating a segment returns its keys, like a mapping."""
    with esformat.create(tmp_path / "t.esdb") as writer:
        writer.add_table(pa.table({"space": ["b", "a", "b"], "timestamp": [1, 2, 3]}))
    with esformat.open(tmp_path / "t.esdb") as segment, esformat.open_many([tmp_path / "t.esdb"]) as files:
        for read in (segment, files):
            assert list(read) == ["a", "b"]
            assert all(space in read and read[space].key == space for space in read)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_no_file(tmp_path):
    """A named pipe is refused immediately; opening it used to wait forever for a writer."""
    os.mkfifo(tmp_path / "pipe.esdb")
    for read in (esformat.open, esformat.open_many):
        with pytest.raises(UsageError, match="it has no random access"):
            read(str(tmp_path / "pipe.esdb"))


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**64, 10**400])
def test_whole_numbers_that_are_too_large(catalog, number):
    """An integer that is too large is refused with the event and the range, and nothing is stored."""
    topic = catalog.create_topic("t")
    with pytest.raises(InvalidEventError, match=rf"column 'n' .* event 1 has {number.bit_length()} bits") as refused:
        topic.append([{"space": "s", "timestamp": 1, "n": 1}, {"space": "s", "timestamp": 2, "n": number}])
    assert "Decimal" in (refused.value.hint or "")
    assert topic.scan().count() == 0
    topic.append([{"space": "s", "timestamp": 1, "n": -(2**63)}, {"space": "s", "timestamp": 2, "n": 2**63 - 1}])
    assert topic.scan().to_table()["n"].to_pylist() == [-(2**63), 2**63 - 1]
