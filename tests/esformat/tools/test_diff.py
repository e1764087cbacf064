"""`diff` counts the events that only one of two segments has, however they are stored."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from event_model import Row
from event_strategies import Recording, recordings
from hypothesis import given
from hypothesis import strategies as st
from segments import CODECS, write_rows
from small_pieces import cut_small

import esformat
from esformat.tools import diff


def _in_text(row: Row) -> str:
    """The contents of an event, independent of the order of its columns."""
    return repr((row.space, row.grouping, row.timestamp, sorted(row.values.items())))


@examples(60)
@given(st.data(), recordings(), st.sampled_from([1, 3, 1 << 15]))
def test_counts_of_a_model(data: st.DataObject, recording: Recording, batch_rows: int) -> None:
    """Events removed from either side are counted exactly, whatever the order of arrival."""
    rows = recording.rows
    missing = [set(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=3))) if rows else set() for _ in range(2)]
    sides = [[row for i, row in enumerate(rows) if i not in gone] for gone in missing]
    sides[1] = data.draw(st.permutations(sides[1])) if len(sides[1]) < 30 else sides[1]
    facts = [Counter(_in_text(row) for row in side) for side in sides]
    with tempfile.TemporaryDirectory() as directory, cut_small(recording.pieces), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["esformat.tools.diff"], "BATCH_ROWS", batch_rows)
        folder = Path(directory)
        paths = [
            write_rows(folder / f"{i}.esdb", recording, side, data.draw(st.sampled_from(CODECS)))
            for i, side in enumerate(sides)
        ]
        report = diff(*paths)
        assert report.only_left == (facts[0] - facts[1]).total()
        assert report.only_right == (facts[1] - facts[0]).total()
        assert report.common == (facts[0] & facts[1]).total()
        assert report.same == (facts[0] == facts[1])
        assert sum(space.only_left for space in report.spaces) == report.only_left
        assert diff(paths[0], paths[0]).same


NANOSECONDS = pa.time64("ns")
PAIRS = [
    (pa.timestamp("s"), [3 * 10**11, 3 * 10**11 + 1]),
    (pa.timestamp("ns", "UTC"), [1, 2]),
    (pa.date32(), [10_000_000, 10_000_001]),
    (pa.date64(), [86_400_000 * 10_000_000, 0]),
    (pa.duration("s"), [2**62, 2**62 + 1]),
    (NANOSECONDS, [1, 2]),
    (pa.list_(NANOSECONDS), [[1], [2]]),
    (pa.struct([pa.field("a", pa.timestamp("us", "UTC"), nullable=False)]), [{"a": 3 * 10**17}, {"a": 0}]),
    (pa.map_(pa.date32(), pa.duration("ns")), [[(10_000_000, 1)], [(10_000_000, 2)]]),
    (pa.list_(pa.time32("ms"), 1), [[1], [2]]),
    (pa.month_day_nano_interval(), [(1, 2, 3), (1, 2, 4)]),
]


@pytest.mark.parametrize(("kind", "values"), PAIRS, ids=[str(kind) for kind, _ in PAIRS])
def test_times_and_dates(tmp_path: Path, kind: pa.DataType, values: list[object]) -> None:
    """All digits of times are compared, and so are dates that Python cannot represent."""
    paths = [tmp_path / "a.esdb", tmp_path / "b.esdb"]
    for path, row in zip(paths, values, strict=True):
        with esformat.create(path) as writer:
            columns = {"space": ["a", "a"], "timestamp": [1, 2]}
            writer.add_table(pa.table({**columns, "x": pa.array([values[0], row], kind)}))
    report = diff(*paths)
    assert (report.common, report.only_left, report.only_right) == (1, 1, 1)


ZEROS = [
    (pa.float64(), [0.0, -0.0]),
    (pa.float32(), [0.0, -0.0]),
    (pa.float16(), [np.float16(0.0), np.float16(-0.0)]),
    (pa.list_(pa.float64()), [[0.0], [-0.0]]),
    (pa.struct({"a": pa.map_(pa.string(), pa.float32())}), [{"a": [("b", 0.0)]}, {"a": [("b", -0.0)]}]),
]


@pytest.mark.parametrize("others", [["same", "same"], ["this", "that"]])
@pytest.mark.parametrize(("kind", "zeros"), ZEROS, ids=[str(kind) for kind, _ in ZEROS])
def test_zeros(tmp_path: Path, kind: pa.DataType, zeros: list[object], others: list[str]) -> None:
    """-0.0 differs from 0.0, whether or not another event of the batch differs."""
    paths = [tmp_path / "a.esdb", tmp_path / "b.esdb"]
    for path, zero, other in zip(paths, zeros, others, strict=True):
        with esformat.create(path) as writer:
            columns = {"space": ["a", "a", "b"], "timestamp": [1, 2, 3]}
            writer.add_table(pa.table({**columns, "z": pa.array([zero, zeros[0], None], kind), "o": ["x", "x", other]}))
    report = diff(*paths)
    assert (report.spaces[0].space, report.spaces[0].only_left, report.spaces[0].only_right) == ("a", 1, 1)
    assert report.common == (2 if others[0] == others[1] else 1)


def test_many_columns(tmp_path: Path) -> None:
    """Thousands of columns are compared in linear time."""
    columns = {f"c{number}": [number, number] for number in range(3000)}
    with esformat.create(tmp_path / "wide.esdb") as writer:
        writer.add_table(pa.table({"space": ["a", "b"], "timestamp": [1, 2], **columns}))
    started = process_time()
    assert diff(tmp_path / "wide.esdb", tmp_path / "wide.esdb").common == 2
    assert process_time() - started < 2  # 4 to 5 s if each column searched the names of all
