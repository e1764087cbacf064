"""The ordered union equals a stable sort of everything, and opens a source no earlier than it must."""

from __future__ import annotations

from itertools import islice

import pyarrow as pa
from effort import examples
from event_strategies import HIGHEST, LOWEST
from hypothesis import given
from hypothesis import strategies as st

from esformat.read.merge import Source, merge_by_time

KIND = pa.timestamp("us", "UTC")
moments = st.integers(-3, 9) | st.sampled_from([LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST])
runs = st.lists(st.lists(moments, min_size=1, max_size=8).map(sorted), max_size=6)


def batch(rows: list[tuple[int, str]]) -> pa.RecordBatch:
    """Rows of (time, name)."""
    times = pa.array([time for time, _ in rows], pa.int64()).cast(KIND)
    return pa.record_batch({"timestamp": times, "name": pa.array([name for _, name in rows])})


def named(runs: list[list[int]]) -> list[list[tuple[int, str]]]:
    """Times with names that tell each row from every other."""
    return [[(time, f"{run}.{row}") for row, time in enumerate(times)] for run, times in enumerate(runs)]


def source(number: int, rows: list[tuple[int, str]], size: int, *, reverse: bool = False, slack: int = 0) -> Source:
    """A source that gives its rows a few at a time; its bound may be lower than its first row."""
    ordered = rows[::-1] if reverse else rows
    bound = ~rows[-1][0] if reverse else rows[0][0]
    batches = [batch(ordered[at : at + size]) for at in range(0, len(ordered), size)]
    return Source(max(bound - slack, LOWEST), -number if reverse else number, lambda: iter(batches))


def merged(sources: list[Source], *, reverse: bool = False) -> list[tuple[int, str]]:
    """The union's rows."""
    tables = [pa.Table.from_batches([b]) for b in merge_by_time(sources, ["timestamp", "name"], reverse=reverse)]
    return [
        pair
        for table in tables
        for pair in zip(table["timestamp"].cast("int64").to_pylist(), table["name"].to_pylist(), strict=True)
    ]


@examples(200)
@given(runs, st.integers(1, 4), st.integers(0, 3), st.randoms())
def test_union_is_a_stable_sort(runs, size, slack, random):
    """Ties by source, then by order within it; backwards the exact mirror."""
    rows = named(runs)
    expected = sorted((row for run in rows for row in run), key=lambda row: row[0])
    for reverse in (False, True):
        sources = [source(n, run, size, reverse=reverse, slack=slack) for n, run in enumerate(rows)]
        random.shuffle(sources)
        assert merged(sources, reverse=reverse) == (expected[::-1] if reverse else expected)


def test_only_the_columns_asked_for():
    """Time orders the rows, but is given only where it is wanted."""
    (only,) = merge_by_time([source(0, [(1, "a"), (2, "b")], 5)], ["name"])
    assert only.to_pydict() == {"name": ["a", "b"]}


def test_sources_are_opened_when_they_are_near():
    """A thousand sources one after another: reading the first rows opens two or three."""
    opened = []

    def open_source(number: int):
        def batches():
            opened.append(number)
            yield batch([(10 * number, "x"), (10 * number + 5, "y")])

        return batches

    sources = [Source(10 * n, n, open_source(n)) for n in range(1000)]
    assert len(list(islice(merge_by_time(sources, ["name"]), 2))) == 2
    assert len(opened) <= 3


def test_sources_without_rows():
    """A source may turn out to be empty."""
    empty = Source(0, 5, lambda: iter(()))
    assert merged([empty, source(1, [(3, "a")], 1), empty]) == [(3, "a")]
    assert merged([empty]) == []
    assert merged([]) == []
