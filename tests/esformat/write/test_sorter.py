"""Events in any order are written to the same file with any memory limit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from clicks import click_table, frame_of, in_file_order
from effort import examples, long, pairs_of, share_of
from event_strategies import Recording, recordings, write_recording
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import Pieces, cut_small

import esformat
from esformat.errors import InvalidEventError
from esformat.write import sorter as event_sorter

SMALL = Pieces(
    block_rows=32, task_blocks=3, leaf_runs=8, min_memory=1, window_rows=200, fan_in=4, index_chunk_rows=200,
    sample_bytes=20_000, min_chunk=3000,
)  # fmt: skip
ORDERS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "as it arrives": lambda table: table,
    "in order": lambda table: ordered(table),
    "backwards": lambda table: ordered(table).take(np.arange(len(table))[::-1]),
    "two halves in order": lambda table: pa.concat_tables([ordered(table.slice(1000)), ordered(table.slice(0, 1000))]),
    "in order but for the last": lambda table: moved(ordered(table), 5, len(table)),
    "in order but for one": lambda table: moved(ordered(table), 1500, 500),
}
KEYS = [("space", "ascending"), ("grouping", "ascending"), ("timestamp", "ascending")]


def ordered(table: pa.Table) -> pa.Table:
    """A table in segment order."""
    return table.sort_by(KEYS)


def moved(table: pa.Table, row: int, to: int) -> pa.Table:
    """A table with one row moved."""
    order = list(range(len(table)))
    order.insert(to, order.pop(row))
    return table.take(order)


def written(path: Path, table: pa.Table, memory: int, cuts: int = 100) -> bytes:
    """The file of a table that is added in slices."""
    with esformat.create(path, indexes=["type", "country"], memory=memory, overwrite=True, threads=2) as writer:
        for first in range(0, len(table), cuts):
            writer.add_table(table.slice(first, cuts))
    return path.read_bytes()


@pytest.fixture(scope="module")
def clicks() -> pa.Table:
    """Events in order of arrival, one of them large."""
    table = click_table(2000)
    data = table["data"].to_pylist()
    data[1234] = b"x" * 50_000
    return table.set_column(3, "data", pa.array(data))


@pytest.fixture
def count(monkeypatch):
    """Count spills, stops, compactions and streamed writes."""
    counts = {"spilled": 0, "stopped": 0, "compacted": 0, "streamed": 0}

    def counted(owner: type, name: str, what: str) -> None:
        honest = getattr(owner, name)

        def wrapped(*args, **kwargs):
            counts[what] += 1
            return honest(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapped)

    counted(event_sorter.EventSorter, "_spill", "spilled")
    counted(event_sorter.EventSorter, "_stop_streaming", "stopped")
    counted(event_sorter.EventSorter, "_compact", "compacted")
    counted(event_sorter.EventSorter, "_stream", "streamed")
    return counts


@pytest.mark.parametrize("order", share_of(ORDERS, 3))
def test_same_bytes_in_any_memory(tmp_path, clicks, order, count):
    """The file is the same with events in memory, spilled, or streamed with a late event."""
    table = ORDERS[order](clicks)
    with cut_small(SMALL):
        whole = written(tmp_path / "whole.esdb", table, 1 << 30)
        assert set(count.values()) == {0}
        for memory in (150_000, 800_000):
            assert written(tmp_path / "small.esdb", table, memory) == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.esdb", "whole.esdb"]
    if order == "as it arrives":
        assert count["compacted"] > 1
    if order.startswith("in order but"):
        assert count["stopped"] > 0
    with esformat.open(tmp_path / "small.esdb") as segment:
        assert frame_of(segment.scan()).equals(in_file_order(table))
    assert not esformat.verify(tmp_path / "small.esdb").problems


def test_events_in_order_are_not_spilled(tmp_path, clicks, count):
    """Ordered events are written as they arrive once their encoding is chosen, without a spill."""
    with cut_small(replace(SMALL, row_overhead=1, column_overhead=1)):
        path = tmp_path / "a.esdb"
        with esformat.create(path, memory=200_000, indexes=["type"]) as writer:
            for first in range(0, 2000, 100):
                writer.add_table(ordered(clicks).slice(first, 100))
    assert count.pop("streamed") > 5
    assert set(count.values()) == {0}


TINY = {
    "min_chunk": [1, 200],
    "task_blocks": [1, 2],
    "task_bytes": [300, 10_000],
    "window_rows": [1, 5, 20],
    "window_bytes": [200, 10_000],
    "fan_in": [2, 3],
    "index_chunk_rows": [1, 4],
    "sample_bytes": [100, 100_000],
}


@examples(60)
@given(recordings(), st.sampled_from([1, 300, 3000, 30_000]), st.booleans(), st.data())
def test_any_events_any_memory(tmp_path_factory, recording: Recording, memory: int, in_order: bool, data):
    """Any events, including ties, are written right, with blocks and chunks of all sizes."""
    directory = tmp_path_factory.mktemp("sorter")
    if in_order:
        rows = sorted(recording.rows, key=lambda row: (row.space, row.grouping, row.timestamp))
        recording = Recording(**(vars(recording) | {"rows": rows}))
    pick = {name: data.draw(st.sampled_from(sizes)) for name, sizes in TINY.items()}
    sizes = replace(recording.pieces, min_memory=1, row_overhead=10, column_overhead=1, flush_events=3, **pick)
    with cut_small(sizes):
        write_recording(recording, directory / "whole.esdb")
        write_recording(recording, directory / "bounded.esdb", memory=memory)
    assert (directory / "bounded.esdb").read_bytes() == (directory / "whole.esdb").read_bytes()


# ---------------------------------------------------------------- streams that fail


def batches_of(table: pa.Table, rows: int, error: Exception | None = None):
    """A stream of a table that ends with an error."""

    def batches():
        yield from table.combine_chunks().to_batches(max_chunksize=rows)
        if error is not None:
            raise error

    return pa.RecordBatchReader.from_batches(table.schema, batches())


BEFORE = {"nothing": 0, "a little": 150, "a lot": 1200}


@pytest.mark.parametrize(
    ("before", "order", "bad"),
    share_of(
        pairs_of(BEFORE, ["as it arrives", "in order", "in order but for one"], ["stream breaks", "bad batch"]), 4
    ),
)
def test_a_stream_is_taken_whole_or_not_at_all(tmp_path, clicks, before, order, bad):
    """A failed stream leaves nothing, whatever was spilled or written; the file has the same bytes as without it."""
    table = ORDERS[order](clicks)
    first, rest = table.slice(0, BEFORE[before]), table.slice(BEFORE[before])
    if bad == "bad batch":
        broken = rest.slice(0, 50).set_column(0, "space", pa.nulls(50, pa.string()))
        failing, error = batches_of(pa.concat_tables([rest, broken]), 50), InvalidEventError
    else:
        failing, error = batches_of(rest, 50, ConnectionError("gone")), OSError
    options = {"indexes": ["type", "country"], "threads": 2}
    with cut_small(replace(SMALL, group_rows=50)):
        with esformat.create(tmp_path / "a.esdb", memory=200_000, **options) as writer:
            if len(first):
                writer.add_table(batches_of(first, 50))
            with pytest.raises(error):
                writer.add_table(failing)
            assert writer.num_events == len(first)
            writer.add_table(rest.select(rest.column_names[::-1]))
        with esformat.create(tmp_path / "b.esdb", **options) as writer:
            writer.add_table(table if len(first) else table.select(table.column_names[::-1]))
    assert (tmp_path / "a.esdb").read_bytes() == (tmp_path / "b.esdb").read_bytes()


def test_where_a_large_table_is_wrong(tmp_path, clicks):
    """The error counts rows within the slice that was checked, and has the row at which it begins."""
    spaces = clicks["space"].to_pylist()
    spaces[1700] = None
    broken = clicks.set_column(0, "space", pa.array(spaces))
    with cut_small(SMALL):
        writer = esformat.create(tmp_path / "a.esdb", memory=300_000)
        with pytest.raises(InvalidEventError) as caught:
            writer.add_table(broken)
        writer.abort()
    row, start = map(int, re.findall(r"row (\d+)", str(caught.value)))
    assert start > 0
    assert row + start == 1700


@long
def test_tied_events_beyond_memory(tmp_path):
    """Events with the same key and time keep their order of arrival through any number of runs."""
    count = 5000
    table = pa.table({"space": ["a"] * count, "timestamp": [7] * count, "n": pa.array(range(count))})
    with cut_small(replace(SMALL, row_overhead=1)), esformat.create(tmp_path / "a.esdb", memory=20_000) as writer:
        writer.add_table(pa.table({"space": ["b"], "timestamp": [0], "n": pa.array([-1])}))
        writer.add_table(table)
    with esformat.open(tmp_path / "a.esdb") as segment:
        assert segment.scan().to_table()["n"].to_pylist() == [*range(count), -1]


# ---------------------------------------------------------------- memory


MEASURED = """
import sys
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import esformat
from esformat.parts import hide_pandas
hide_pandas()

path, kind, memory = sys.argv[1:]
rng = np.random.default_rng(1)

def status(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) >> 10

def small(batches):
    pages = pa.array([b'{"page": %d, "session": "0123456789abcdef"}' % page for page in range(977)])
    for number in range(batches):
        count = 50_000
        users = rng.integers(0, 10**6, count)
        yield pa.table({
            "space": pc.binary_join_element_wise("user", pa.array(users).cast(pa.string()), "-"),
            "timestamp": pa.array(number * count + rng.integers(0, count, count)),
            "data": pages.take(pa.array(users % 977)),
            "request": pa.array(number * count + np.arange(count)),
        })

def large():
    for number in range(40):
        yield pa.table({"space": [f"s{number * 7 % 40:02}"], "timestamp": [number], "data": [rng.bytes(3 << 20)],
                        "request": [number]})

def keys():
    for number in range(12):
        names = [f"{n:06}" + "k" * 65_000 for n in rng.integers(0, 10**6, 100).tolist()]
        yield pa.table({"space": names, "timestamp": range(100), "data": [b"x"] * 100, "request": range(100)})

made = {"small": lambda: small(8), "large": large, "keys": keys}[kind]
with esformat.create(path + ".warm", indexes=["request"]) as writer:
    writer.add_table(next(iter(small(1))))
before, total = status("VmHWM"), 0
with esformat.create(path, indexes=["request"], memory=memory) as writer:
    for table in made():
        total += table.nbytes
        writer.add_table(table)
print(status("VmHWM") - before, total >> 20)
"""


@pytest.mark.parametrize(
    ("kind", "memory", "most_mib", "events"),
    [
        pytest.param("small", "24MiB", 80, 400_000, marks=long),
        ("large", "20MiB", 140, 40),
        pytest.param("keys", "48MiB", 160, 1200, marks=long),
    ],
)
def test_memory_stays_bounded(tmp_path, kind, memory, most_mib, events):
    """Unsorted events beyond the limit use bounded memory: many with a unique index value, large ones, and long keys.

    Without a limit they take 140, 300 and 320 MiB.
    """
    environment = os.environ | {"PYTHONPATH": str(Path(esformat.__file__).parents[1])}
    command = [sys.executable, "-c", MEASURED, str(tmp_path / "a.esdb"), kind, memory]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    added, total = map(int, done.stdout.split())
    assert total > 25
    assert added < most_mib, f"{added} MiB more for {total} MiB of events"
    with esformat.open(tmp_path / "a.esdb") as segment:
        assert segment.num_events == events
