"""Times in a zone that the reader's machine lacks, as in a container without tzdata, are shown in UTC.

Their conversion to Python objects raised ArrowInvalid about a missing module, for events from files and topics.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

import aggregator
import esformat

THERE = pa.timestamp("us", "Mars/Olympus Mons")
MOMENT = dt.datetime(2026, 3, 1, 8, 0, 5, tzinfo=dt.UTC)


def table() -> pa.Table:
    """Two events, one of them with a time beyond Python's range."""
    last = pa.array([2**62], pa.timestamp("us", "UTC"))
    times = pa.concat_arrays([pa.array([MOMENT]).cast(pa.timestamp("us", "UTC")), last]).cast(THERE)
    return pa.table(
        {
            "space": ["a", "b"],
            "timestamp": [1, 2],
            "at": times,
            "seen": pa.array([[{"at": MOMENT}], None], pa.list_(pa.struct([("at", pa.timestamp("us", "UTC"))]))).cast(
                pa.list_(pa.struct([("at", THERE)]))
            ),
        }
    )


def check(events: list[esformat.Event]) -> None:
    """Check that the first time is as written, except for the zone."""
    assert events[0].columns["at"] == MOMENT
    assert events[0].columns["at"].utcoffset() == dt.timedelta(0)
    assert events[0].columns["seen"] == [{"at": MOMENT}]
    assert events[1].space == "b"


def test_events_of_a_file(tmp_path):
    """Events are right in the whole file and in one space; a table keeps the zone."""
    with esformat.create(tmp_path / "a.esdb") as writer:
        writer.add_table(table())
    with esformat.open(tmp_path / "a.esdb") as segment:
        check(list(segment.scan()))
        (event,) = segment.find("a").scan()
        assert event.columns["at"] == MOMENT
        assert segment.scan().to_table().schema.field("at").type == THERE


def test_events_of_a_topic(tmp_path):
    """Events of a topic are right, sealed or not."""
    with aggregator.open(tmp_path / "c") as catalog:
        topic = catalog.create_topic("t")
        topic.append(table())
        check(list(topic.scan()))
        catalog.seal()
        check(list(topic.scan()))
