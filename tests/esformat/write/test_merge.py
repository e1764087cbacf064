"""Merging sorted runs is a stable sort of all events, however few are in memory at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.format.schema import EventSchema, Field
from esformat.write.block_encoder import SortedRows
from esformat.write.merge import SortedRunMerge
from esformat.write.rows import OrderedRows
from esformat.write.spill import SpilledSortedRun

SCHEMA = EventSchema((Field("n", pa.int64()), Field("data", pa.binary())), binary_keys=True)
KEYS = st.sampled_from([b"", b"a", b"a\0", b"b", b"\xff", b"k" * 200])
TIMES = st.one_of(st.integers(0, 3), st.sampled_from([-(1 << 63), (1 << 63) - 1]))
EVENTS = st.lists(st.lists(st.tuples(KEYS, st.sampled_from([b"", b"g"]), TIMES), max_size=25), min_size=1, max_size=6)


def run_of(directory: Path, events: list, first: int, chunk_bytes: int, pool: ThreadPoolExecutor) -> SpilledSortedRun:
    """A run of events, numbered from `first` in order of arrival."""
    run = SpilledSortedRun(directory)
    if events:
        columns = [pa.array(column, kind) for column, kind in zip(zip(*events, strict=True), KINDS, strict=True)]
        numbers = pa.array(range(first, first + len(events)))
        data = pa.array([b"x" * (n % 7) for n in range(len(events))])
        table = pa.table([*columns, numbers, data], SCHEMA.arrow.names).cast(SCHEMA.arrow)
        run.add(OrderedRows.of_tables([table], SCHEMA), chunk_bytes, pool, 2)
    return run


KINDS = (pa.binary(), pa.binary(), pa.int64())


def seen(rows: SortedRows) -> list:
    """Events as tuples, with their numbers."""
    edges = [*rows.run_starts.tolist(), len(rows.timestamps)]
    keys = [
        pair
        for pair, first, last in zip(
            zip(rows.spaces.to_pylist(), rows.groupings.to_pylist(), strict=True), edges[:-1], edges[1:], strict=True
        )
        for _ in range(first, last)
    ]
    numbers = rows.columns[0].to_pylist()
    return [(*pair, time, n) for pair, time, n in zip(keys, rows.timestamps.tolist(), numbers, strict=True)]


@examples(150)
@given(EVENTS, st.sampled_from([1, 100, 1000]), st.sampled_from([1, 300, 3000]))
def test_merging_is_sorting(tmp_path_factory, runs, chunk_bytes, step_bytes):
    """Events are ordered by space, grouping and time; ties by run, then by position in the run."""
    directory = tmp_path_factory.mktemp("merge")
    everything, opened = [], []
    with ThreadPoolExecutor(2) as pool:
        for events in runs:
            opened.append(run_of(directory, events, len(everything), chunk_bytes, pool))
            everything += [(*event, len(everything) + place) for place, event in enumerate(events)]
    merge = SortedRunMerge(opened, SCHEMA, step_bytes)
    found, steps = [], 0
    while not merge.done:
        step = merge.step()
        assert step.count
        found += seen(step.rows(0, step.count))
        steps += 1
    for run in opened:
        run.close()
    assert found == sorted(everything, key=lambda event: event[:3])
    if chunk_bytes == 1 and step_bytes == 1 and len(runs) == 1:
        assert steps == len(everything)


def test_earlier_events_come_first(tmp_path):
    """Rows put in front stay there, before equal ones."""
    with ThreadPoolExecutor(1) as pool:
        run = run_of(tmp_path, [(b"a", b"", 1), (b"b", b"", 2)], 10, 1000, pool)
        first = run_of(tmp_path, [(b"a", b"", 0), (b"a", b"", 1)], 0, 1000, pool)
    before = SortedRunMerge([first], SCHEMA, 1000).step()
    step = SortedRunMerge([run], SCHEMA, 1000).step(before.rows(0, 2))
    assert [event[3] for event in seen(step.rows(0, step.count))] == [0, 1, 10, 11]
    run.close()
    first.close()


@pytest.mark.parametrize("empty", [[], [[]], [[], []]])
def test_nothing_to_merge(tmp_path, empty):
    """A merge of empty runs is done immediately."""
    with ThreadPoolExecutor(1) as pool:
        runs = [run_of(tmp_path, events, 0, 100, pool) for events in empty]
    assert SortedRunMerge(runs, SCHEMA, 100).done
    for run in runs:
        run.close()
