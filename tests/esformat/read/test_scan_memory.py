"""Scans of large events that compress well: their memory is limited in bytes, not in rows or stored bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from effort import share_of
from small_pieces import Pieces, cut_small

import esformat

FILES, EVENTS, EVENT_BYTES = 8, 600, 20_000
MOST_GROWTH = 150 << 20  # was four times the payloads of the files
MOST_BATCH = 16 << 20
READ = """
import resource, sys
import esformat
from esformat.parts import hide_pandas
hide_pandas()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with esformat.open_many(sys.argv[2:]) as files:
    if sys.argv[1] == "events":
        print(sum(1 for _ in files.scan()), 0)
    else:
        sizes = [(len(batch), batch.nbytes) for batch in files.scan(reverse=sys.argv[1] == "reverse").batches()]
        print(sum(rows for rows, _ in sizes), max(size for _, size in sizes))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.fixture(scope="module")
def wide_files(tmp_path_factory) -> list[Path]:
    """Files with 12 MB of payloads each that are small on disk, and whose events interleave in time."""
    folder = tmp_path_factory.mktemp("wide")
    text = b"x" * EVENT_BYTES
    for number in range(FILES):
        times = pa.array(np.arange(EVENTS) * FILES + number, pa.timestamp("us", "UTC"))
        data = pa.array([text + b"%d" % row for row in range(EVENTS)])
        with esformat.create(folder / f"{number}.esdb", codec="lz4") as writer:
            writer.add_table(pa.table({"space": pa.repeat("s", EVENTS), "timestamp": times, "data": data}))
    return sorted(folder.iterdir())


@pytest.mark.parametrize("form", share_of(["batches", "reverse", "events"], 3))
def test_many_files_of_large_events(wide_files, form):
    """A process that reads the files as one has small batches and limited resident memory."""
    environment = os.environ | {"PYTHONPATH": str(Path(esformat.__file__).parents[1])}
    command = [sys.executable, "-c", READ, form, *map(str, wide_files)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    rows, largest, growth = map(int, done.stdout.split())
    assert rows == FILES * EVENTS
    assert largest <= MOST_BATCH
    assert growth << 10 <= MOST_GROWTH


@pytest.mark.parametrize("reverse", [False, True])
def test_batches_of_one_file(wide_files, reverse):
    """Batches of a long result have their usual size, not that of all blocks of one read."""
    with esformat.open(wide_files[0]) as segment:
        sizes = [batch.nbytes for batch in segment.scan(reverse=reverse).batches()]
    assert sum(sizes) > EVENTS * EVENT_BYTES
    assert max(sizes) <= 9 << 20


def test_blocks_of_one_huge_event_each(tmp_path):
    """24 blocks may expand to a gigabyte: once the size of one is known, the next are read singly."""
    size = 9 << 20
    with esformat.create(tmp_path / "huge.esdb", codec="lz4") as writer:
        for row in range(8):
            data = pa.array([b"y" * size], pa.binary())
            writer.add_table(pa.table({"space": ["s"], "timestamp": [row], "data": data}))
    with esformat.open(tmp_path / "huge.esdb") as segment:
        assert [len(batch) for batch in segment.scan(columns=["data"]).batches()] == [4, 1, 1, 1, 1]


def test_full_blocks_come_eight_at_first(tmp_path):
    """The first batch has eight full blocks, each of at most 1 MiB, so that one group serves a page of 10,000 rows."""
    count = 10 * 2048
    with esformat.create(tmp_path / "full.esdb") as writer:
        writer.add_table(pa.table({"space": ["s"] * count, "timestamp": range(count), "data": [b"y"] * count}))
    with esformat.open(tmp_path / "full.esdb") as segment:
        assert [len(batch) for batch in segment.scan(columns=["data"]).batches()] == [8 * 2048, 2 * 2048]


def test_rare_rows_that_are_large(tmp_path):
    """Batches of rare rows are limited in bytes: the first group tells how large the rows are."""
    size = 1 << 20
    with cut_small(Pieces(block_rows=16, leaf_blocks=4, batch_blocks=3)):
        with esformat.create(tmp_path / "a.esdb", codec="lz4") as writer:
            for n in range(600):
                writer.add(f"s{n % 20:02d}", b"x" * (size if 200 <= n < 240 else 100), timestamp=n)
        with esformat.open(tmp_path / "a.esdb") as segment:
            batches = list(segment.scan(start=200, end=240).batches())
    assert sum(map(len, batches)) == 40
    assert max(map(len, batches)) == 8


@pytest.mark.parametrize("reverse", [False, True])
def test_rare_rows_come_together(tmp_path, reverse):
    """Rare rows of many block groups are combined in few batches."""
    with cut_small(Pieces(block_rows=16, leaf_blocks=4, batch_blocks=3)):
        with esformat.create(tmp_path / "a.esdb") as writer:
            for n in range(3000):
                writer.add(f"s{n % 100:02d}", b"x" * 100, timestamp=n)
        with esformat.open(tmp_path / "a.esdb") as segment:
            scan = segment.scan(start=1000, end=1100, reverse=reverse)
            together, apart = list(scan.batches()), list(scan.in_batches_of(1000).batches())
    assert pa.Table.from_batches(together).equals(pa.Table.from_batches(apart))
    assert sum(map(len, together)) == 100
    assert 4 <= len(together) <= 8
    assert len(apart) >= 2 * len(together)
