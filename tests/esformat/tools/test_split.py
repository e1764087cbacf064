"""`split`: the parts have every event once, in order and within their bounds; together they are the segment."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from effort import ALL, examples, long
from event_strategies import Recording, recordings
from hypothesis import given
from hypothesis import strategies as st
from segments import check_segment, write_rows
from small_pieces import Pieces, cut_small

import esformat
from esformat.tools import merge, split

EVENTS = 4000 if ALL else 1000


@examples(40)
@given(st.data(), recordings(), st.sampled_from(["size", "spaces", "times"]))
def test_parts_are_the_segment(data: st.DataObject, recording: Recording, by: str) -> None:
    """However a file is split, the merged parts equal the segment."""
    rows = recording.rows
    keys = sorted({row.space for row in rows} | {b"b"})
    moments = sorted({row.timestamp for row in rows} | {0})
    with tempfile.TemporaryDirectory() as directory, cut_small(recording.pieces):
        folder = Path(directory)
        path = write_rows(folder / "all.esdb", recording, rows, recording.codec)
        chosen: list = []
        if by == "size":
            parts = split(path, folder, size_bytes=data.draw(st.integers(1, 3000)))
        elif by == "spaces":
            chosen = data.draw(st.lists(st.sampled_from(keys), unique=True).map(sorted))
            parts = split(path, folder, spaces=chosen)
        else:
            chosen = data.draw(st.lists(st.sampled_from(moments), unique=True).map(sorted))
            parts = split(path, folder, times=chosen)
        assert sorted(folder.glob("all-*.esdb")) == parts
        if not rows:
            assert parts == []
            return
        held: list[list] = []
        in_order = sorted(rows, key=lambda row: (row.space, row.grouping, row.timestamp))
        for part in parts:
            number = int(part.stem.removeprefix("all-"))
            edges = [None, *chosen, None]
            low, high = edges[number : number + 2] if by != "size" else (None, None)
            if by == "size":
                with esformat.open(part) as segment:
                    first = sum(map(len, held))
                    held.append(in_order[first : first + segment.num_events])
            else:
                value = "space" if by == "spaces" else "timestamp"
                held.append([
                    row for row in rows
                    if (low is None or getattr(row, value) >= low) and (high is None or getattr(row, value) < high)
                ])  # fmt: skip
            check_segment(part, recording, held[-1])
        assert sum(map(len, held)) == len(rows)
        merge(parts, folder / "again.esdb")
        check_segment(folder / "again.esdb", recording, rows)


@pytest.mark.parametrize(
    "how", [{}, {"size_bytes": 0}, {"size_bytes": 1, "times": [1]}, {"spaces": ["b", "a"]}, {"times": [2, 2]}]
)
def test_wrong_use(tmp_path, how):
    """Invalid arguments are refused, and no file is written."""
    path = tmp_path / "a.esdb"
    with esformat.create(path) as writer:
        writer.add("a", b"", timestamp=1)
    with pytest.raises(esformat.UsageError):
        split(path, tmp_path, **how)
    assert list(tmp_path.iterdir()) == [path]


def test_a_space_in_several_groupings_is_one_part(tmp_path):
    """A split by size never divides a space, even if a block begins with its next grouping."""
    path = tmp_path / "a.esdb"
    with cut_small(Pieces(block_rows=1, leaf_runs=1, leaf_blocks=1, chunk_entries=1)):
        with esformat.create(path) as writer:
            for space, grouping in (("s", ""), ("s", "a"), ("s", "b"), ("t", "")):
                writer.add(space, b"", grouping=grouping, timestamp=1)
        parts = split(path, tmp_path, size_bytes=1)
    held = []
    for part in parts:
        with esformat.open(part) as segment:
            held.append([(event.space, event.grouping) for event in segment.scan()])
    assert held == [[("s", ""), ("s", "a"), ("s", "b")], [("t", "")]]


def test_parts_keep_their_size(tmp_path):
    """No part exceeds the size, including indexes, nor is much smaller; a missing directory is created."""
    path, count = tmp_path / "a.esdb", 60_000
    payload = np.random.default_rng(7).bytes(20 * count)
    table = pa.table({
        "space": [f"s{n % 3000}" for n in range(count)], "timestamp": range(count),
        "data": [payload[20 * n : 20 * n + 20] for n in range(count)], "n": [n * 7919 % 1000 for n in range(count)],
    })  # fmt: skip
    with esformat.create(path, schema=table.schema, indexes=["n"]) as writer:
        writer.add_table(table)
    sizes = [part.stat().st_size for part in split(path, tmp_path / "new" / "folder", size_bytes=400_000)]
    assert len(sizes) > 2
    assert max(sizes) <= 400_000
    assert min(sizes[:-1]) > 150_000
    with esformat.open_many(tmp_path / "new" / "folder") as parts:
        assert parts.num_events == count


@long
def test_parts_keep_their_size_within_blocks(tmp_path):
    """With many spaces per block and payloads of all sizes, only a part with a single space may be larger."""
    path, rng = tmp_path / "a.esdb", np.random.default_rng(7)
    with esformat.create(path, indexes=["n"]) as writer:
        for n in range(EVENTS):
            payload = rng.bytes(int(rng.integers(0, 60)) if n % 500 else 70_001)
            writer.add(f"s{n // 40:05}", payload, timestamp=n, indexes={"n": str(n * 7919 % 10_007)})
    for size in (20_000, 200_000):
        parts = split(path, tmp_path / str(size), size_bytes=size)
        held = {}
        for part in parts:
            with esformat.open(part) as segment:
                held[part] = sum(1 for _ in segment), segment.num_events
        assert sum(events for _, events in held.values()) == EVENTS
        assert [part.stem for part in parts] == [f"a-{number:04}" for number in range(len(parts))]
        assert all(part.stat().st_size <= size or spaces == 1 for part, (spaces, _) in held.items())
        assert len(parts) < 6 * path.stat().st_size / size
