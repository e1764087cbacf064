"""Histories as events: parts of one space's history merged by time."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import aggregator
from aggregator.read import history
from aggregator.read.history import Part, merge_history, ties_are_clear
from esformat.event import make_event

PARTS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, 6), min_size=1, max_size=8)), min_size=1, max_size=6
)


def make_parts(described, reverse, read=None):
    """Parts of sorted times, and all their events in the order of (time, partition, record index)."""
    indexes = {partition: count() for partition, _ in described}
    parts, events = [], []
    for number, (partition, times) in enumerate(described):
        made = []
        for time in sorted(times):
            index = next(indexes[partition])
            made.append(make_event("s", "", time, b"%d:%d" % (partition, index), {}, {}))
            events.append((time, partition, index, made[-1]))
        first = events[-len(made)][2]

        def give(made=made, number=number):
            if read is not None:
                read.append(number)
            return iter(made[::-1] if reverse else made)

        parts.append(Part(min(times), max(times), partition, first, first + len(made) - 1, True, len(made), give))
    ordered = [event for *_, event in sorted(events, key=lambda entry: entry[:3])]
    return parts, ordered[::-1] if reverse else ordered


@examples(200)
@given(PARTS, st.booleans(), st.none() | st.integers(0, 20), st.booleans())
def test_merged_by_time(described, reverse, limit, long):
    """By time, then partition, then record index, or the exact mirror; the first `limit` of them."""
    parts, expected = make_parts(described, reverse)
    assert ties_are_clear(parts)
    with pytest.MonkeyPatch.context() as patch:
        if long:
            patch.setattr(history, "SORTED_EVENTS", 3)
        found = list(merge_history(parts, reverse=reverse, limit=limit))
    if limit is not None:
        found = found[:limit]
        expected = expected[:limit]
    assert [event.data for event in found] == [event.data for event in expected]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_limit_reads_few_parts(reverse):
    """Parts that lie beyond the last event that is wanted are not read; one that ties with it is."""
    described = [(0, [0, 1]), (0, [2, 3]), (0, [3, 4]), (0, [5, 6])]
    read = []
    parts, expected = make_parts(described, reverse, read)
    found = list(merge_history(parts, reverse=reverse, limit=4 if not reverse else 2))
    assert [event.data for event in found] == [event.data for event in expected[: len(found)]]
    assert sorted(read) == ([3] if reverse else [0, 1, 2])


def test_interleaved_record_indexes_are_not_clear():
    """Parts of one partition whose record indexes overlap, and a part whose own ties are out of order."""

    def part(partition, first, last, in_order=True):
        return Part(0, 0, partition, first, last, in_order, 1, lambda: iter(()))

    assert ties_are_clear([part(0, 0, 4), part(0, 5, 9), part(1, 0, 9)])
    assert not ties_are_clear([part(0, 0, 5), part(0, 5, 9)])
    assert not ties_are_clear([part(1, 5, 9), part(1, 0, 20)])
    assert not ties_are_clear([part(0, 0, 4, in_order=False)])


def test_events_are_as_in_tables(tmp_path):
    """Sealed and unsealed events of several partitions: events and table rows say the same, in every kind of scan."""
    with aggregator.open(tmp_path / "catalog") as catalog:
        topic = catalog.create_topic("t", indexes=["kind"])
        for number in range(6):
            table = pa.table(
                {
                    "space": ["a", "b", "a", "a"],
                    "timestamp": pa.array([5, 5, number, 9 - number], pa.int64()),
                    "data": [b"%d-%d" % (number, row) for row in range(4)],
                    "kind": ["x", "x", None, "y"],
                    "amount": pa.array([number, 0, 1, None], pa.int32()),
                }
            )
            topic.append(table, partition=str(number % 2))
            if number in (1, 3):
                catalog.seal()
        for options in (
            {},
            {"reverse": True},
            {"limit": 3},
            {"limit": 4, "reverse": True},
            {"start": 2, "end": 6},
            {"partition": "1"},
            {"columns": ["timestamp", "data", "amount"]},
        ):
            for scan in (topic.scan(space="a", **options), topic.scan_index("kind", "x", space="a", **options)):
                rows = scan.to_table().to_pylist()
                events = list(scan)
                assert len(events) == len(rows)
                for event, row in zip(events, rows, strict=True):
                    assert event.space == "a"
                    assert event.data == row["data"]
                    assert event.columns == {"amount": row["amount"]}
                    if "kind" in row:
                        assert event.indexes == ({} if row["kind"] is None else {"kind": row["kind"]})
