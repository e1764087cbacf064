"""Files of the Go ESDB are read exactly as written: every event and index entry, in both directions."""

from __future__ import annotations

from collections import Counter

import pytest
from effort import ALL, share_of
from go_files import ARCHIVES, STREAMS, added, go_archive, go_stream, in_order, path_of, shown

from esformat import UsageError, customerio


@pytest.fixture(params=ARCHIVES + STREAMS)
def file(request):
    """An open file and its events in scan order."""
    events = added(request.param)
    with customerio.open(path_of(request.param)) as opened:
        yield opened, events if request.param in STREAMS else in_order(events)


def backwards(opened, events):
    """Events in the order of a reverse scan."""
    return events[::-1] if opened.kind == "stream" else in_order(events, reverse=True)


def test_scan(file):
    """Scans return every event, also in reverse, with ties in input order; counts, columns and time span agree."""
    opened, events = file
    assert shown(opened.scan()) == events
    assert shown(opened.scan(reverse=True)) == backwards(opened, events)
    assert opened.num_events == opened.scan().count() == len(events)
    assert opened.scan().to_table()["data"].to_pylist() == [event.data for event in events]
    times = [event.timestamp for event in events]
    assert (opened.min_timestamp, opened.max_timestamp) == (min(times), max(times))


def test_index_entries(file):
    """Every index value is found, in the file and within each space, with its number of events."""
    opened, events = file
    names = {name for event in events for name in event.indexes}
    assert set(opened.indexes) == names
    for name in names:
        counts = Counter(event.indexes[name] for event in events if name in event.indexes)
        assert dict(opened.index_values(name).items()) == counts
        for value in counts:
            wanted = [event for event in events if event.indexes.get(name) == value]
            assert shown(opened.scan_index(name, value)) == wanted
            assert shown(opened.scan_index(name, value, reverse=True)) == backwards(opened, wanted)


def test_spaces(file):
    """Each space is found by key, with its groupings and its history, merged by time."""
    opened, events = file
    counts = Counter(event.space for event in events)
    assert opened.num_spaces == len(counts)
    listed = {key.encode() if isinstance(key, str) else key: count for key, count in opened.spaces().items()}
    assert listed == counts
    assert list(listed) == sorted(counts)
    for key in share_of(list(counts)[::7], 3):
        mine = [event for event in events if event.space == key]
        space = opened.find(key)
        assert space.num_events == len(space) == counts[key]
        if opened.kind == "archive":
            mine.sort(key=lambda event: event.timestamp)
        assert shown(space.scan()) == mine
        newest = sorted(mine, key=lambda event: event.timestamp, reverse=True)  # ties stay in input order
        assert shown(space.scan(reverse=True)) == (mine[::-1] if opened.kind == "stream" else newest)
        groupings = {
            (name.encode() if isinstance(name, str) else name): count for name, count in space.groupings().items()
        }
        assert groupings == Counter(event.grouping for event in mine)
        for grouping in groupings:
            assert shown(space.scan(grouping=grouping)) == [e for e in mine if e.grouping == grouping]


def test_small_groups(monkeypatch):
    """An archive is read the same if it is decoded one space and a few rows at a time."""
    monkeypatch.setattr("esformat.customerio.archive.GROUP_BYTES", 1)
    monkeypatch.setattr("esformat.customerio.archive_events.BATCH_ROWS", 3)
    with customerio.open(path_of("many_spaces")) as archive:
        events = in_order(added("many_spaces"))
        assert shown(archive.scan(reverse=True)) == in_order(events, reverse=True)
        if ALL:
            assert shown(archive.scan()) == events


def test_small_stretches(monkeypatch):
    """A stream is read the same if it is read in parts smaller than an event; index chains cross the parts."""
    monkeypatch.setattr("esformat.customerio.stream.STRETCH_BYTES", 100)
    monkeypatch.setattr("esformat.customerio.stream.BATCH_ROWS", 1)
    for name in share_of(STREAMS, 3):
        with customerio.open(path_of(name)) as stream:
            assert shown(stream.scan()) == added(name)
            assert shown(stream.scan(reverse=True)) == added(name)[::-1]


def test_states_of_streams():
    """A stream reports whether it was closed, and the size of a torn event at its end."""
    states = {}
    for name in STREAMS:
        with customerio.open(path_of(name)) as stream:
            states[name] = (stream.is_closed, stream.torn_bytes)
    assert states == {"stream_open": (False, 0), "stream_closed": (True, 0), "stream_torn": (False, 7)}


def test_a_segment_is_not_one(write):
    """A segment is refused, and the error names `esformat.open`."""
    segment = write([("a", b"x", 1)])
    with pytest.raises(UsageError, match=r"esformat\.open"):
        customerio.open(segment.path)


GO_EVENTS = [
    (60, {"tag:red": "1", "tag:blue": "1"}), (60, {"tag:red": "2"}), (60, {"tag": "x"}), (70, {"tag:red": "1"}),
    (50, {"url": "http://x:80/", "tag:blue": "1"}), (60, {"a": "b:1", "a:b": "2"}), (60, {"c": "d:1", "c:d": "1"}),
    (60, {"tag:red": "1", "url": "http://y"}), (40, {}),
]  # fmt: skip
"""Seconds and indexes: names with colons, which Go accepts, one a prefix of another, and both in one event."""


def keys_of(indexes):
    return {f"{name}:{value}" for name, value in indexes.items()}


def check_odd_names(opened, payloads):
    """Check that each event has its index entries once, and that each index scan finds its events."""
    found = {event.data: event.indexes for event in opened.scan()}
    assert {data: {entry.rstrip(":") for entry in keys_of(held)} for data, held in found.items()} == {
        data: keys_of(held) for data, (_, held) in payloads.items()
    }
    assert found[b"0"] == {"tag:red": "1", "tag:blue": "1"}
    assert found[b"2"] == {"tag": "x"}
    assert found[b"4"] == {"url": "http://x:80/", "tag:blue": "1"}
    for name in opened.indexes:
        for value, count in opened.index_values(name).items():
            entry = f"{name}:{value}".rstrip(":")
            wanted = {data for data, (_, held) in payloads.items() if entry in keys_of(held)}
            assert {event.data for event in opened.scan_index(name, value)} == wanted
            assert count == len(wanted)


def test_index_names_with_colons_in_an_archive(tmp_path):
    """Index names with colons, which Go accepts, are read from an archive; no event has two values of one index."""
    payloads = {str(n).encode(): event for n, event in enumerate(GO_EVENTS)}
    events = [(data, seconds, "xy"[n % 2], held) for n, (data, (seconds, held)) in enumerate(payloads.items())]
    path = tmp_path / "odd.esdb"
    path.write_bytes(go_archive({b"s": events}))
    with customerio.open(path) as archive:
        check_odd_names(archive, payloads)
        space = archive["s"]
        newest = sorted(payloads, key=lambda data: payloads[data][0], reverse=True)
        for name in archive.indexes:
            for value in archive.index_values(name):
                entry = f"{name}:{value}".rstrip(":")
                wanted = [data for data in newest if entry in keys_of(payloads[data][1])]
                assert [event.data for event in space.scan_index(name, value, reverse=True)] == wanted
        assert [event.data for event in archive["s"].scan_index("tag", "red:1", reverse=True)] == [b"3", b"0", b"7"]


def test_index_names_with_colons_in_a_stream(tmp_path):
    """The same is true of a stream that is read in parts."""
    payloads = {str(n).encode(): event for n, event in enumerate(GO_EVENTS)}
    path = tmp_path / "odd.esdbstream"
    path.write_bytes(go_stream([(data, held) for data, (_, held) in payloads.items()]))
    with customerio.open(path) as stream:
        check_odd_names(stream, payloads)
        assert [event.data for event in stream.scan_index("tag", "red:1")] == [b"0", b"3", b"7"]
