"""The ordered union of sorted streams."""

from __future__ import annotations

from itertools import islice

import pyarrow as pa
import pytest
from event_strategies import HIGHEST, LOWEST
from hypothesis import given
from hypothesis import strategies as st

from esformat.read import union
from esformat.read.union import Stream

SCHEMA = pa.schema([("name", pa.string()), ("timestamp", pa.timestamp("us", "UTC")), ("from", pa.int64())])
TIMES = st.integers(-1, 2) | st.sampled_from([LOWEST, LOWEST + 1, HIGHEST - 1, HIGHEST])
ROWS = st.lists(st.tuples(st.sampled_from(["", "a", "b"]), TIMES), max_size=12)


def batch(rows):
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


@given(
    st.lists(ROWS, max_size=5), st.integers(1, 4), st.sampled_from([1, 3, 100]), st.booleans(),
    st.sampled_from([("name", "timestamp"), ("timestamp", "name"), ("timestamp",)]), st.booleans(), st.integers(0, 3),
)  # fmt: skip
def test_union_is_a_stable_sort(contents, batch_rows, least, reverse, keys, lean, slack):
    """Equal rows are ordered by stream, then as within it, whatever the batches; a reverse union has them reversed."""
    places = [["name", "timestamp"].index(key) for key in keys]

    def key(row):
        return tuple(row[place] for place in places)

    streams, expected = [], []
    for place, rows in enumerate(contents):
        ordered = [(*row, place * 100 + n) for n, row in enumerate(sorted(rows, key=key))]
        expected += ordered
        given_rows = ordered[::-1] if reverse else ordered
        if given_rows:
            pieces = [batch(given_rows[at : at + batch_rows]) for at in range(0, len(given_rows), batch_rows)]
            (bound,) = key(given_rows[0])[:1]
            if isinstance(bound, int):  # a bound may lie before the first row
                bound = min(bound + slack, HIGHEST) if reverse else max(bound - slack, LOWEST)
            streams.append(Stream((bound,), place, lambda pieces=pieces: iter(pieces)))
    expected.sort(key=key)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(union, "LEAST_ROWS", least)
        patch.setattr(union, "BUFFERED_ROWS", least)
        merged = union.union(streams, keys, ["from"], reverse=reverse, lean=lean)
        found = [row for part in merged for row in part.to_pydict()["from"]]
    assert found == [row[2] for row in (expected[::-1] if reverse else expected)]


def test_a_stream_is_opened_when_its_turn_comes():
    """A stream that begins after others end is opened only then."""
    opened = []

    def stream(place):
        def read():
            opened.append(place)
            yield batch([("", place * 10, 0), ("", place * 10 + 1, 0)])

        return Stream((place * 10,), place, read)

    merged = union.union([stream(place) for place in (2, 0, 1)], ["timestamp"])
    next(merged)
    assert opened == [0]
    assert len(list(merged)) == 2
    assert opened == [0, 1, 2]


def test_many_streams_are_opened_when_they_are_near():
    """Of a thousand consecutive streams the first rows open at most three; only the requested columns are returned."""
    opened = []

    def stream(place):
        def read():
            opened.append(place)
            yield batch([("x", 10 * place, 0), ("y", 10 * place + 5, 0)])

        return Stream((10 * place,), place, read)

    merged = union.union(map(stream, range(1000)), ["timestamp"], ["name"], lean=True)
    assert [part.to_pydict() for part in islice(merged, 2)] == [{"name": ["x", "y"]}] * 2
    assert len(opened) <= 3


@pytest.mark.parametrize("lean", [False, True])
def test_streams_without_rows(lean):
    """A stream may be empty."""
    empty = Stream((0,), 5, lambda: iter(()))
    only = Stream((3,), 1, lambda: iter([batch([("a", 3, 7)])]))
    assert [part["from"].to_pylist() for part in union.union([empty, only, empty], ["timestamp"], lean=lean)] == [[7]]
    assert list(union.union([empty], ["timestamp"], lean=lean)) == list(union.union([], ["timestamp"])) == []


def test_a_batch_without_rows_is_passed_over():
    """A batch without rows is skipped."""
    parts = [batch([]), batch([("", 1, 1)]), batch([]), batch([("", 3, 3)])]
    other = Stream((2,), 1, lambda: iter([batch([("", 2, 2)])]))
    merged = union.union([Stream((1,), 0, lambda: iter(parts)), other], ["timestamp"])
    assert [row for part in merged for row in part["from"].to_pylist()] == [1, 2, 3]
