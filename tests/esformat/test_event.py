"""Events as Python values: compared, hashed, shown and pickled; timestamps of both kinds."""

from __future__ import annotations

import copy
import datetime as dt
import pickle

import numpy as np
import pandas as pd
import pytest
from small_pieces import Pieces, cut_small

import esformat
from esformat.errors import InvalidEventError
from esformat.event import MAX_TIMESTAMP, MIN_TIMESTAMP, make_event, to_microseconds

FACTS = ("customer-1", "web", 1_403_534_919_000_000, b'{"url": "/"}', {"type": "page"}, {"amount": 2.5})


@pytest.fixture
def events(write):
    """The same events, read by every method."""
    rows = [("a", b"x", 5, "g", {"type": "page"}), ("a", b"y", 5, "g"), ("a", b"z", 7, "h", {"type": "é"})]
    segment = write(rows, indexes=["type"])
    ways = [segment.scan(), segment["a"].scan(), segment["a"].scan(grouping="g"), segment.scan_index("type", "é")]
    return [list(way) for way in ways]


def test_names_of_its_facts():
    """An event has the named attributes."""
    event = make_event(*FACTS)
    assert (event.space, event.grouping, event.timestamp, event.data, event.indexes, event.columns) == FACTS
    assert event.time == dt.datetime(2014, 6, 23, 14, 48, 39, tzinfo=dt.UTC)


def test_what_an_event_gives_is_the_callers_own():
    """Changes to the dict that was passed or returned do not change an event."""
    indexes = {"type": "page"}
    event = make_event("a", "", 1, b"", indexes, {})
    indexes["type"] = "other"
    event.indexes["type"] = "other"
    event.columns["x"] = 1
    assert (event.indexes, event.columns) == ({"type": "page"}, {})


def test_events_equal_however_they_were_read(events):
    """Events are equal by all their attributes, whichever scan read them."""
    everything, of_space, of_grouping, of_index = events
    assert everything == of_space
    assert everything[:2] == of_grouping
    assert everything[2:] == of_index
    for one, other in zip(everything, of_space, strict=True):
        assert one == other
        assert (one != other) is False
        assert hash(one) == hash(other)
    assert len(set(everything + of_space)) == 3
    assert everything[0] != everything[1]


@pytest.mark.parametrize("place", range(6))
def test_events_differ_in_every_fact(place):
    """Events that differ in any one attribute are not equal."""
    changed = list(FACTS)
    changed[place] = ["other", "other", 0, b"other", {}, {}][place]
    assert make_event(*changed) != make_event(*FACTS)


def test_an_event_equals_events_only():
    """An event does not equal a tuple of its attributes, nor anything else."""
    event = make_event(*FACTS)
    assert event != FACTS
    assert event != "customer-1"


def test_nobody_changes_or_makes_events():
    """Events are immutable and cannot be constructed."""
    event = make_event(*FACTS)
    for name in ("space", "grouping", "timestamp", "data", "indexes", "columns", "other"):
        with pytest.raises(AttributeError):
            setattr(event, name, "other")
    with pytest.raises(TypeError, match="made by scans"):
        esformat.Event()


@pytest.mark.parametrize(
    "again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"]
)
def test_events_survive(events, again):
    """A pickled or copied event keeps all its attributes and needs no file."""
    for event in [*events[0], *events[1], make_event(*FACTS)]:
        other = again(event)
        assert other == event
        assert type(other) is esformat.Event
        assert (other.indexes, other.columns, other.time) == (event.indexes, event.columns, event.time)


def test_repr_says_what_there_is():
    """The repr leaves out empty attributes."""
    assert repr(make_event("a", "", -5, None, {}, {})) == "Event(space='a', grouping='', timestamp=-5, data=None)"
    assert repr(make_event(b"\xff", b"g", 5, b"x", {"type": "page"}, {"n": None})) == (
        "Event(space=b'\\xff', grouping=b'g', timestamp=5, data=b'x', indexes={'type': 'page'}, columns={'n': None})"
    )


@pytest.mark.parametrize("block_rows", [1, 2, 1024])
def test_indexes_after_the_segment_is_closed(write, block_rows):
    """The indexes of an event from any scan can be read after the file is closed, even if stored as codes."""
    with cut_small(Pieces(block_rows=block_rows)):
        repeated = write([("a", b"x", n, "", {"type": f"t{n % 2}"}) for n in range(40)], indexes=["type"])
        kept = [*repeated.scan(limit=30), *repeated["a"].scan(reverse=True)]
    repeated.close()
    assert [event.indexes["type"] for event in kept] == [f"t{event.timestamp % 2}" for event in kept]
    segment = write([("a", b"x", n, "", {"type": f"t{n}"}) for n in range(5)], indexes=["type"])
    kept = [*segment.scan(), *segment["a"].scan(), *segment["a"].scan(reverse=True), *segment.scan_index("type", "t3")]
    segment.close()
    assert [event.indexes["type"] for event in kept] == [
        *(f"t{n}" for n in [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 4, 3, 2, 1, 0]),
        "t3",
    ]
    assert all(event.columns == {} for event in kept)


TIMES = [
    (0, 0),
    (MIN_TIMESTAMP, MIN_TIMESTAMP),
    (MAX_TIMESTAMP, MAX_TIMESTAMP),
    (np.int64(7), 7),
    (np.uint8(7), 7),
    (dt.datetime(1970, 1, 1, tzinfo=dt.UTC), 0),
    (dt.datetime(1, 1, 1, tzinfo=dt.UTC), -62_135_596_800_000_000),
    (dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC), 253_402_300_799_999_999),
    (dt.datetime(2014, 6, 23, 16, 48, 39, 1, dt.timezone(dt.timedelta(hours=2))), 1_403_534_919_000_001),
]


@pytest.mark.parametrize(("moment", "expected"), TIMES)
def test_moments(moment, expected):
    """Integers of any type and aware datetimes of any zone are timestamps."""
    assert to_microseconds(moment) == expected
    assert type(to_microseconds(moment)) is int


@pytest.mark.parametrize(
    "moment", [dt.datetime(2014, 6, 23), dt.date(2014, 6, 23), 1.0, "2014", None, True, 2**63, b"1", np.float64(1)]
)
def test_what_is_no_moment(moment):
    """The error for an invalid timestamp names the argument."""
    with pytest.raises(InvalidEventError, match=r"^start "):
        to_microseconds(moment, "start")


def test_moments_of_pandas():
    """A pandas timestamp is a datetime; nanoseconds that do not fit microseconds are an error."""
    assert to_microseconds(pd.Timestamp(1_403_534_919_000_001_000, tz="UTC")) == 1_403_534_919_000_001
    with pytest.raises(InvalidEventError, match=r"timestamp 2014.* does not fit microseconds; keep the nanoseconds"):
        to_microseconds(pd.Timestamp(1_403_534_919_000_001_001, tz="UTC"))
    with pytest.raises(InvalidEventError, match="NaT has no time zone"):
        to_microseconds(pd.NaT)


def test_time_beyond_datetime():
    """Beyond the year 9999, where Python's datetime ends, `time` raises OverflowError."""
    with pytest.raises(OverflowError):
        _ = make_event("a", "", MAX_TIMESTAMP, b"", {}, {}).time
