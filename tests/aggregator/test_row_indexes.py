"""A page by record index reads what it gives, not its segment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggregator
from aggregator.row_indexes import MOST_BETWEEN, RowIndexes

ROWS = 140_000  # more bytes than are put into order as a whole
IO = Path("/proc/self/io")


@given(
    st.one_of(st.permutations(range(40)), st.lists(st.integers(0, 10**6), unique=True, max_size=40).map(sorted)),
    st.integers(-5, 60), st.none() | st.integers(-5, 60), st.integers(1, 9_000),
)  # fmt: skip
def test_runs_hold_what_is_wanted(indexes, first, end, spread):
    """Every wanted row lies in a run; runs are apart, ascending, and none has more others in a row than it may."""
    of_row = np.repeat(np.array(indexes, np.int64) * spread, 1 if indexes == sorted(indexes) else spread)
    of_row = of_row + np.tile(np.arange(spread), len(indexes))[: len(of_row)] if len(of_row) > len(indexes) else of_row
    first, end = first * spread, None if end is None else end * spread
    runs, wanted = RowIndexes(of_row).runs(first, end)
    mask = (of_row >= first) & (True if end is None else of_row < end)
    assert wanted == mask.sum()
    held = np.zeros(len(of_row), np.bool_)
    for low, last in runs:
        assert mask[low]
        assert mask[last - 1]
        assert not held[low:last].any()
        held[low:last] = True
        assert np.diff(np.flatnonzero(mask[low:last])).max(initial=1) <= MOST_BETWEEN
    assert runs == sorted(runs)
    assert not (mask & ~held).any()


def read_bytes() -> int:
    """What this process has read by system calls so far."""
    return int(IO.read_text().split("rchar: ")[1].split()[0])


@pytest.mark.skipif(not IO.exists(), reason="counts what a process reads, where the system tells")
@pytest.mark.parametrize("jitter", [0, 3000], ids=["as appended", "times out of order"])
def test_a_page_reads_its_blocks(tmp_path, jitter):
    """Forward and back: a page of ten records reads a block or two of its segment."""
    chance = np.random.default_rng(7)
    times = np.arange(ROWS) * 1000 + (chance.integers(0, jitter, ROWS) if jitter else 0)
    payloads = [chance.bytes(128) for _ in range(ROWS)]
    table = pa.table({"space": pa.repeat(pa.scalar(""), ROWS), "timestamp": times, "payload": payloads})
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("t")
        topic.append(table)
        catalog.seal()
        (segment,) = (tmp_path / "segments").rglob("*.esdb")
        topic.read(from_index=0, limit=1).to_table()  # what is kept of a segment is read now
        for start, reverse in ((ROWS // 2, False), (ROWS // 3, True)):
            before = read_bytes()
            found = topic.read(from_index=start, limit=10, reverse=reverse).to_table()
            assert read_bytes() - before < segment.stat().st_size / 20
            rows = range(start, start - 10, -1) if reverse else range(start, start + 10)
            assert found["record_index"].to_pylist() == list(rows)
            assert found["payload"].to_pylist() == [payloads[row] for row in rows]
