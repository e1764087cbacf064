"""Events made in bulk have the values passed for them, in both directions."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.events import Column, Columns, Event, row_events, run_events
from esformat.errors import CorruptSegmentError

int64s = st.integers(-(1 << 63), (1 << 63) - 1)


def facts(events):
    """The contents of the events."""
    return [(e.space, e.grouping, e.timestamp, e.data, e.indexes, e.columns) for e in events]


def numbered(count):
    """Columns that identify every row: an index with some nulls, and a number."""
    kinds = [None if n % 3 == 0 else f"kind {n}" for n in range(count)]
    return Columns(lambda: [Column("kind", True, kinds), Column("number", False, list(range(count)))])


def other_facts(row):
    """The same for one row."""
    return ({} if row % 3 == 0 else {"kind": f"kind {row}"}), {"number": row}


@examples(100)
@given(st.lists(int64s, max_size=20), st.integers(0, 5), st.booleans(), st.booleans(), st.data())
def test_events_of_a_run(times, first, has_data, reverse, data):
    """The events of a run have consecutive rows from a first one, or any rows."""
    payload = [b"%d" % n for n in range(len(times))] if has_data else None
    rows = data.draw(st.none() | st.lists(st.integers(0, 24), min_size=len(times), max_size=len(times)))
    events = run_events("s", "g", np.array(times, np.int64), payload, first, rows, numbered(25), reverse)
    expected = [
        ("s", "g", time, payload and payload[n], *other_facts(first + n if rows is None else rows[n]))
        for n, time in enumerate(times)
    ]
    assert facts(events) == (expected[::-1] if reverse else expected)


@examples(100)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.booleans(), st.booleans(), st.data())
def test_events_of_rows(block_rows, several, reverse, data):
    """Events may be of several blocks, of some rows of them, or of a part of these."""
    total = sum(block_rows)
    starts = np.cumsum([0, *block_rows[:-1]])
    picked = data.draw(st.none() | st.lists(st.integers(0, total - 1), unique=True).map(sorted))
    count = total if picked is None else len(picked)
    first = data.draw(st.integers(0, count))
    last = data.draw(st.integers(first, count))
    spaces = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    groupings = data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    events = row_events(
        ["a", "b", "c"], np.array(spaces, np.int64), ["x", "y"] if several else ["x"], np.array(groupings, np.int64),
        np.arange(count), [b"%d" % n for n in range(first, last)], first, last,
        [numbered(rows) for rows in block_rows], starts, None if picked is None else np.array(picked, np.int64),
        reverse,
    )  # fmt: skip
    expected = []
    for n in range(first, last):
        row = n if picked is None else picked[n]
        block = max(b for b, start in enumerate(starts.tolist()) if start <= row)
        grouping = "xy"[groupings[n]] if several else "x"
        expected.append(("abc"[spaces[n]], grouping, n, b"%d" % n, *other_facts(row - int(starts[block]))))
    assert facts(events) == (expected[::-1] if reverse else expected)


NUMBERS = np.zeros(3, np.int64)
ROWS = (["s"], NUMBERS, ["g"], NUMBERS, NUMBERS, [b"", b"", b""], 0, 3, [numbered(3)], NUMBERS[:1], None, False)


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (1, NUMBERS[:2]), (1, NUMBERS + 1), (1, NUMBERS - 1), (2, ["g", "h", "i"]), (4, NUMBERS[:2]), (5, [b""]),
        (6, -1), (6, 4), (7, 4), (8, []), (9, NUMBERS), (10, NUMBERS[:2]),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit(place, wrong):
    """Arguments that do not fit each other are refused."""
    assert len(row_events(*ROWS)) == 3
    given = [*ROWS]
    given[place] = wrong
    if place == 2:
        given[3] = NUMBERS + 3
    with pytest.raises((ValueError, IndexError)):
        row_events(*given)


def test_runs_that_do_not_fit():
    """Payloads and rows must be as many as times."""
    with pytest.raises(ValueError, match="different lengths"):
        run_events("s", "", NUMBERS, [b""], 0, None, numbered(3), False)
    with pytest.raises(ValueError, match="different lengths"):
        run_events("s", "", NUMBERS, None, 0, [1], numbered(3), False)


def test_codes():
    """A code names its value; a code without a value is damage, and a row beyond the codes is an IndexError."""
    columns = Columns(lambda: [Column("kind", True, [None, "a"], codes=b"\1\0\2")])
    events = run_events("s", "", np.arange(4), None, 0, None, columns, False)
    assert [event.indexes for event in events[:2]] == [{"kind": "a"}, {}]
    with pytest.raises(CorruptSegmentError, match="no value"):
        _ = events[2].indexes
    with pytest.raises(IndexError):
        _ = events[3].indexes


def test_columns_are_loaded_once_and_let_go():
    """Columns are loaded once, at their first use, and freed with the last event, together with their source."""
    loads = []

    class Made(list):
        """A list that can have weak references."""

    made = Made([Column("n", False, [1, 2])])
    watched = weakref.ref(made)

    def load(made=made):
        loads.append(1)
        return made

    events = run_events("s", "", np.arange(2), None, 0, None, Columns(load), False)
    assert not loads
    assert [event.columns for event in events] == [{"n": 1}, {"n": 2}]
    assert loads == [1]
    del made, load, events
    gc.collect()
    assert watched() is None
    assert all(type(event) is Event for event in run_events("s", "", np.arange(2), None, 0, None, numbered(2), True))
