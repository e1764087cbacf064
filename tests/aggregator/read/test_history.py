"""Histories as events: parts of one space's history merged by time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import NamedTuple

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import aggregator
from aggregator.read import history
from aggregator.read.history import Opened, merge_history
from esformat.event import Event, make_event

PARTS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, 6), min_size=1, max_size=8)), min_size=1, max_size=6
)


class Part(NamedTuple):
    """A part and the function that returns its contents."""

    min_timestamp: int
    max_timestamp: int
    partition: int
    first_index: int
    last_index: int
    row_bytes: int
    has: Callable[[bool], list[Event] | Opened | None]


def open_part(part, at_once):
    """Open a part for `merge_history`."""
    return part.has(at_once)


def make_parts(described, reverse, read=None):
    """Parts with sorted times, and all their events ordered by (time, partition, record index)."""
    indexes = {partition: count() for partition, _ in described}
    parts, events = [], []
    for number, (partition, times) in enumerate(described):
        made = []
        for time in sorted(times):
            index = next(indexes[partition])
            made.append(make_event("s", "", time, b"%d:%d" % (partition, index), {}, {}))
            events.append((time, partition, index, made[-1]))
        first = events[-len(made)][2]

        def give(at_once, made=made[::-1] if reverse else made, number=number):
            if read is not None:
                read.append(number)
            return made if at_once and number % 2 else Opened(True, len(made), lambda: iter(made))

        parts.append(Part(min(times), max(times), partition, first, first + len(made) - 1, 100, give))
    ordered = [event for *_, event in sorted(events, key=lambda entry: entry[:3])]
    return parts, ordered[::-1] if reverse else ordered


@examples(200)
@given(PARTS, st.booleans(), st.none() | st.integers(0, 20), st.booleans())
def test_merged_by_time(described, reverse, limit, long):
    """Events are merged by time, partition and record index, or the exact mirror, up to `limit`."""
    parts, expected = make_parts(described, reverse)
    with pytest.MonkeyPatch.context() as patch:
        if long:
            patch.setattr(history, "SORTED_EVENTS", 3)
        found = list(merge_history(parts, open_part, reverse=reverse, limit=limit))
    if limit is not None:
        found = found[:limit]
        expected = expected[:limit]
    assert [event.data for event in found] == [event.data for event in expected]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_limit_reads_few_parts(reverse):
    """Parts beyond the last wanted event are not opened; a part that ties with it is."""
    described = [(0, [0, 1]), (0, [2, 3]), (0, [3, 4]), (0, [5, 6])]
    read = []
    parts, expected = make_parts(described, reverse, read)
    found = list(merge_history(parts, open_part, reverse=reverse, limit=4 if not reverse else 2))
    assert [event.data for event in found] == [event.data for event in expected[: len(found)]]
    assert sorted(read) == ([3] if reverse else [0, 1, 2])


@pytest.mark.parametrize("limit", [None, 5])
def test_interleaved_record_indexes_are_not_clear(limit):
    """Parts of one partition with overlapping record indexes, or with unordered ties, cannot be merged this way."""

    def part(partition, first, last, in_order=True):
        return Part(0, 0, partition, first, last, 1, lambda _: Opened(in_order, 1, lambda: iter(())))

    def is_clear(*parts):
        return merge_history(parts, open_part, reverse=False, limit=limit) is not None

    assert is_clear(part(0, 0, 4), part(0, 5, 9), part(1, 0, 9))
    assert not is_clear(part(0, 0, 5), part(0, 5, 9))
    assert not is_clear(part(1, 5, 9), part(1, 0, 20))
    assert not is_clear(part(0, 0, 4, in_order=False))


@pytest.mark.parametrize("limit", [None, 4])
@pytest.mark.parametrize("described", [[(0, [0, 1, 2, 3])], [(0, [0]), (0, [1, 2, 3])]])
def test_few_are_few(described, limit):
    """With `few`, None is returned if there may be more rows or bytes than that."""
    parts, expected = make_parts(described, reverse=False)
    assert list(merge_history(parts, open_part, reverse=False, limit=limit, few=(4, 400))) == expected
    assert merge_history(parts, open_part, reverse=False, limit=limit, few=(3, 400)) is None
    assert merge_history(parts, open_part, reverse=False, limit=limit, few=(4, 399)) is None


def test_long_histories_are_merged_as_they_are_read(monkeypatch):
    """After as many events as are sorted together, further parts are streamed."""
    monkeypatch.setattr(history, "SORTED_EVENTS", 3)
    asked = []
    parts, expected = make_parts([(0, [0, 1]), (0, [2, 3]), (0, [4, 5]), (0, [6, 7])], reverse=False)

    def opened(part, at_once):
        asked.append(at_once)
        return part.has(at_once)

    assert list(merge_history(parts, opened, reverse=False, limit=None)) == expected
    assert asked == [True, True, False, False]


def test_events_are_as_in_tables(tmp_path):
    """Events and table rows agree for sealed and unsealed events of several partitions, in every kind of scan."""
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


@pytest.mark.parametrize("keys", ["text", "binary"])
def test_short_answers_are_as_long_ones(tmp_path, monkeypatch, keys):
    """Tables built from events, for short histories, equal those of segments and unsealed batches."""
    spaces = ["a", "b", "a", "a"] if keys == "text" else [b"a\xff", b"b", b"a\xff", b"a\xff"]
    read_as_events = []
    with aggregator.open(tmp_path / "catalog") as catalog:
        topic = catalog.create_topic("t", indexes=["kind", "code"], keys=keys)
        for number in range(4):
            columns = {
                "space": spaces,
                "timestamp": pa.array([5, 5, number, 2**62 - number], pa.int64()),
                "data": [b"%d-%d\xff" % (number, row) for row in range(4)],
                "kind": ["x", "x", None, "y"],
                "code": pa.array([1, -(2**63), None, 2**63 - 1], pa.int64()),
                "text": ["", "é", None, "z"],
                "number": pa.array([2**64 - 1, 0, None, 1], pa.uint64()),
                "share": [0.1, float("inf"), None, -0.0],
                "done": [True, False, None, True],
            }
            table = pa.concat_tables([pa.table(columns)] * 8)  # unsealed batches with more rows than count as few
            topic.append(table, partition=str(number % 2))
            if number == 1:
                catalog.seal()
        options = [{}, {"reverse": True}, {"limit": 3}, {"limit": 4, "reverse": True}, {"start": 2, "end": 6}]
        options += [{"partition": "1"}, {"columns": ["data", "code"]}, {"columns": ["timestamp", "kind", "done"]}]
        for some in options:
            for scan in (topic.scan(space=spaces[0], **some), topic.scan_index("kind", "x", space=spaces[0], **some)):
                with monkeypatch.context() as patch:
                    patch.setattr("aggregator.read.scan.FEW_VALUES", 0)
                    expected = scan.to_table()
                with monkeypatch.context() as patch:
                    merged = merge_history
                    patch.setattr(
                        "aggregator.read.scan.merge_history",
                        lambda *given, merged=merged, **more: read_as_events.append(1) or merged(*given, **more),
                    )
                    found = scan.to_table()
                    patch.setattr("aggregator.read.scan.FEW_VALUES", len(found) * len(found.schema) - 1)
                    assert scan.to_table().equals(expected)  # which begins and finds too many
                assert found.equals(expected)
                assert found.schema.equals(expected.schema)
    assert len(read_as_events) == 4 * len(options)
