"""A page by record index reads what it returns, not the whole segment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from effort import share_of
from hypothesis import given
from hypothesis import strategies as st
from noise import noise

import aggregator
import esformat
from aggregator.server.plateau.definitions import Definitions
from aggregator.server.plateau.paging import Pager, Wanted
from aggregator.storage.segments.row_indexes import NEAR_ROWS, RowIndexes, rows_near

PLACES = {"times out of order": 3000, "as appended": 0}
ROWS = 140_000  # more bytes than are sorted together
IO = Path("/proc/self/io")
PEAK = Path("/proc/self/clear_refs")


@given(
    st.one_of(st.permutations(range(40)), st.lists(st.integers(0, 2**40), unique=True, min_size=1, max_size=40)),
    st.booleans(), st.integers(1, 7), st.data(),
)  # fmt: skip
def test_rows_are_those_that_are_wanted(indexes, in_order, size, data):
    """Exactly the rows with record indexes in the span are found, ascending, whatever the order and the gaps."""
    of_row = np.array(sorted(indexes) if in_order else indexes, np.int64) + 1000
    known = RowIndexes(
        (of_row[at : at + size] for at in range(0, len(of_row), size)), len(of_row), min(of_row), max(of_row)
    )
    bound = st.integers(int(min(of_row)) - 5, int(max(of_row)) + 5) | st.sampled_from(of_row.tolist())
    first, end = data.draw(bound), data.draw(st.none() | bound)
    wanted = (of_row >= first) & (True if end is None else of_row < end)
    assert known.rows(first, end).tolist() == np.flatnonzero(wanted).tolist()
    assert known.size_bytes <= (0 if in_order and max(of_row) - min(of_row) < len(of_row) else 8 * len(of_row))


@given(
    st.lists(st.integers(0, 2**40), unique=True, min_size=1, max_size=40) | st.permutations(range(40)), st.data(),
)  # fmt: skip
def test_rows_near_hold_all_that_are_wanted(indexes, data):
    """All wanted rows are in the span, with at most `NEAR_ROWS` others, or None says that the order is too mixed."""
    of_row = np.array(indexes, np.int64) + 1000
    ahead = of_row - np.arange(len(of_row))
    bound = st.integers(int(min(of_row)) - 5, int(max(of_row)) + 5)
    first, end = data.draw(bound), data.draw(st.none() | bound)
    found = rows_near(len(of_row), int(ahead.min()), int(ahead.max()), first, end)
    assert (found is None) == (ahead.max() - ahead.min() > NEAR_ROWS)
    if found is not None:
        low, last = found
        assert 0 <= low <= last <= len(of_row)
        wanted = np.flatnonzero((of_row >= first) & (True if end is None else of_row < end))
        assert set(wanted.tolist()) <= set(range(low, last))


def read_bytes() -> int:
    """The bytes this process has read by system calls so far."""
    return int(IO.read_text().split("rchar: ")[1].split()[0])


@pytest.fixture(scope="module", params=share_of(PLACES, 2), ids=str)
def stored(tmp_path_factory, request):
    """A topic with one segment, its payloads, and the bytes and rows of a block."""
    path = tmp_path_factory.mktemp("catalog")
    chance = np.random.default_rng(7)
    moved = PLACES[request.param]
    times = np.arange(ROWS) * 1000 + (chance.integers(0, moved, ROWS) if moved else 0)
    payloads = noise(chance, ROWS, 128)
    table = pa.table({"space": pa.repeat(pa.scalar(""), ROWS), "timestamp": times, "payload": payloads})
    with aggregator.open(path) as catalog:
        topic = catalog.create_topic("t")
        topic.append(table)
        catalog.seal()
        (file,) = (path / "segments").rglob("*.esdb")
        blocks = esformat.open(file).scan().blocks()[1]
        topic.read(from_index=0, limit=1).to_table()  # read what is cached of a segment
        yield topic, payloads.to_pylist(), file.stat().st_size / blocks, ROWS / blocks


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    """A catalog whose segments were merged and then had events erased; none of them is open."""
    path = tmp_path_factory.mktemp("catalog")
    chance = np.random.default_rng(7)
    with aggregator.open(path, durability="none") as catalog:
        topic = catalog.create_topic("t")
        for part in range(8):
            times = np.arange(part * 10_000, part * 10_000 + 10_000) + chance.integers(0, 5, 10_000)
            payloads = [chance.bytes(60)] * 10_000
            topic.append(pa.table({"space": ["a"] * 10_000, "timestamp": times, "payload": payloads}))
            topic.append(pa.table({"space": ["gone"], "timestamp": [part], "payload": [b""]}))
            catalog.seal()
        catalog.compact()
        topic.erase("gone")
        catalog.compact()
    return path


def test_the_first_page_reads_no_column_of_a_segment(moved, monkeypatch):
    """If record indexes nearly follow the rows, the manifest suffices to find a page's rows, also after rewriting."""
    with aggregator.open(moved) as catalog:
        scanned = []
        scan = esformat.Segment.scan
        monkeypatch.setattr(esformat.Segment, "scan", lambda *args, **more: scanned.append(more) or scan(*args, **more))
        found = catalog.topic("t").read(from_index=40_000, limit=10).to_table()
        indexes = [index for index in range(40_000, 40_020) if (index + 1) % 10_001][:10]
        assert found["record_index"].to_pylist() == indexes
        assert scanned == []


@pytest.mark.skipif(not IO.exists(), reason="counts what a process reads, where the system tells")
@pytest.mark.parametrize("limit", [10, 10_000])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_page_reads_its_blocks(stored, limit, reverse):
    """A page of any size, forward or backward, reads its own blocks and at most one more at each end."""
    topic, payloads, block_bytes, block_rows = stored
    start = ROWS // 2
    before = read_bytes()
    found = topic.read(from_index=start, limit=limit, reverse=reverse).to_table()
    assert read_bytes() - before < (limit / block_rows + 2.5) * block_bytes
    rows = range(start, start - limit, -1) if reverse else range(start, start + limit)
    assert found["record_index"].to_pylist() == list(rows)
    assert found["payload"].to_pylist() == [payloads[row] for row in rows]


@pytest.mark.skipif(not IO.exists(), reason="counts what a process reads, where the system tells")
def test_a_page_of_a_time_reads_its_blocks(stored):
    """Blocks without events in the requested time are not read, nor those after the last."""
    topic, payloads, block_bytes, _ = stored
    span = {"start": 100_000_000, "end": 100_050_000}
    before = read_bytes()
    found = topic.read(from_index=0, limit=1000, **span).to_table()
    assert read_bytes() - before < 4 * block_bytes
    assert 45 <= len(found) <= 55
    assert found["payload"].to_pylist() == [payloads[row] for row in found["record_index"].to_pylist()]
    assert found["record_index"].to_pylist() == sorted(found["record_index"].to_pylist())


@pytest.mark.skipif(not PEAK.exists(), reason="asks the system for the most memory that was used")
def test_memory_of_a_page(tmp_path):
    """A page takes little memory whatever is around it, and ends with the record that fills its bytes."""
    rows = 45_000
    text = "x" * 2900
    with aggregator.open(tmp_path, durability="none") as catalog:
        topic = catalog.create_topic("t")
        for first in range(0, rows, 10_000):
            payloads = [f"{row:>100}{text}" for row in range(first, first + 10_000)]
            times = np.arange(first, first + 10_000)
            topic.append(pa.table({"space": [""] * 10_000, "timestamp": times, "payload": payloads}))
        catalog.seal()
        pager, wanted = Pager(Definitions(catalog)), Wanted(10_000, 10_240_000)
        pager.page(topic, {"0": 0}, Wanted(1, 1000))
        pa.default_memory_pool().release_unused()
        PEAK.write_text("5")  # count from here on
        idle = memory("VmRSS")
        found = pager.page(topic, {"0": rows // 3}, wanted)
        assert memory("VmHWM") - idle < 80 << 20
        assert found.status == "ByteLimited"
        assert 10_240_000 <= found.records.nbytes < 10_250_000
        assert found.next["0"] == rows // 3 + len(found.records)
        assert len(found.records) > 3000


def memory(name):
    """The memory of this process in bytes, as the system reports it."""
    line = next(line for line in PEAK.with_name("status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10
