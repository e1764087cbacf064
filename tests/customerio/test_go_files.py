"""What the Go ESDB wrote reads back exactly as it was added: every event, every index entry, both ways."""

from __future__ import annotations

from collections import Counter

import pytest

from esformat import UsageError, customerio

from .go_files import ARCHIVES, STREAMS, added, in_order, path_of, shown


@pytest.fixture(params=ARCHIVES + STREAMS)
def file(request):
    """An open file and its events in the order of a scan."""
    events = added(request.param)
    with customerio.open(path_of(request.param)) as opened:
        yield opened, events if request.param in STREAMS else in_order(events)


def test_scan(file):
    """Every event is there; reverse is the mirror; counts, columns and time span agree."""
    opened, events = file
    assert shown(opened.scan()) == events
    assert shown(opened.scan(reverse=True)) == events[::-1]
    assert opened.num_events == opened.scan().count() == len(events)
    assert opened.scan().to_table()["data"].to_pylist() == [event.data for event in events]
    times = [event.timestamp for event in events]
    assert (opened.min_timestamp, opened.max_timestamp) == (min(times), max(times))


def test_index_entries(file):
    """Every value of every index, over the file and within each space, and how many events have it."""
    opened, events = file
    names = {name for event in events for name in event.indexes}
    assert set(opened.indexes) == names
    for name in names:
        counts = Counter(event.indexes[name] for event in events if name in event.indexes)
        assert dict(opened.index_values(name).items()) == counts
        for value in counts:
            wanted = [event for event in events if event.indexes.get(name) == value]
            assert shown(opened.scan_index(name, value)) == wanted
            assert shown(opened.scan_index(name, value, reverse=True)) == wanted[::-1]


def test_spaces(file):
    """Each space by its key, its groupings, and its history with groupings merged by time."""
    opened, events = file
    counts = Counter(event.space for event in events)
    assert opened.num_spaces == len(counts)
    listed = {key.encode() if isinstance(key, str) else key: count for key, count in opened.spaces().items()}
    assert listed == counts
    assert list(listed) == sorted(counts)
    for key in list(counts)[::7]:
        mine = [event for event in events if event.space == key]
        space = opened.find(key)
        assert space.num_events == len(space) == counts[key]
        if opened.kind == "archive":
            mine.sort(key=lambda event: event.timestamp)
        assert shown(space.scan()) == mine
        assert shown(space.scan(reverse=True)) == mine[::-1]
        groupings = {
            (name.encode() if isinstance(name, str) else name): count for name, count in space.groupings().items()
        }
        assert groupings == Counter(event.grouping for event in mine)
        for grouping in groupings:
            assert shown(space.scan(grouping=grouping)) == [e for e in mine if e.grouping == grouping]


def test_small_groups(monkeypatch):
    """An archive reads the same where it is decoded space by space and given a few rows at a time."""
    monkeypatch.setattr("esformat.customerio.archive.GROUP_BYTES", 1)
    monkeypatch.setattr("esformat.customerio.archive_events.BATCH_ROWS", 3)
    with customerio.open(path_of("many_spaces")) as archive:
        events = in_order(added("many_spaces"))
        assert shown(archive.scan()) == events
        assert shown(archive.scan(reverse=True)) == events[::-1]


def test_small_stretches(monkeypatch):
    """A stream reads the same where a stretch is smaller than an event; chains of indexes cross stretches."""
    monkeypatch.setattr("esformat.customerio.stream.STRETCH_BYTES", 100)
    monkeypatch.setattr("esformat.customerio.stream.BATCH_ROWS", 1)
    for name in STREAMS:
        with customerio.open(path_of(name)) as stream:
            assert shown(stream.scan()) == added(name)
            assert shown(stream.scan(reverse=True)) == added(name)[::-1]


def test_states_of_streams():
    """A stream tells whether it was closed, and how many bytes of a torn event it ends in."""
    states = {}
    for name in STREAMS:
        with customerio.open(path_of(name)) as stream:
            states[name] = (stream.is_closed, stream.torn_bytes)
    assert states == {"stream_open": (False, 0), "stream_closed": (True, 0), "stream_torn": (False, 7)}


def test_a_segment_is_not_one(write):
    """A file of our own is named as such."""
    segment = write([("a", b"x", 1)])
    with pytest.raises(UsageError, match=r"esformat\.open"):
        customerio.open(segment.path)
