"""If a column had a type that Polars lacks, `scan_esdb` failed for the file, even if the column was not selected.

Selecting such a column panicked; seconds that do not fit milliseconds came back as other times.
"""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

import esformat
from esformat.polars import scan_esdb

LARGE = Decimal("12345678901234567890123456789012345678.25")
INTERVAL = pa.array([pa.MonthDayNano([1, -2, 500_000_000]), None])
SECONDS = pa.array([1_700_000_000, None], pa.int64())
TIMES = SECONDS.cast(pa.timestamp("s"))
COLUMNS = {
    "interval": (INTERVAL, ["P1M-2DT0.5S", None]),
    "intervals": (pa.ListArray.from_arrays([0, 1, 2], INTERVAL), ['["P1M-2DT0.5S"]', "[null]"]),
    "wider": (pa.array([LARGE, None], pa.decimal256(42, 2)), [str(LARGE), None]),
    "wide": (pa.array([Decimal("1.25"), None], pa.decimal256(20, 2)), [Decimal("1.25"), None]),
    "inside": (pa.array([[{"a": LARGE}], None], pa.list_(pa.struct({"a": pa.decimal256(42, 2)}))),
               [[{"a": str(LARGE)}], None]),
    "thousands": (pa.array([Decimal("12E3"), None], pa.decimal128(5, -3)), [Decimal(12000), None]),
    "no bytes": (pa.array([b"", None], pa.binary(0)), [b"", None]),
    "nothing": (pa.array([[], None], pa.list_(pa.float32(), 0)), [[], None]),
    "seconds": (TIMES, pl.Series(TIMES.cast(pa.timestamp("ms"))).to_list()),
    "elsewhere": (SECONDS.cast(pa.timestamp("s", "+05:30")),
                  pl.Series(SECONDS.cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("ms", "UTC"))).to_list()),
    "nowhere": (pa.array([5, None], pa.timestamp("ns", "Mars/Olympus Mons")),
                pl.Series(pa.array([5, None], pa.timestamp("ns", "UTC"))).to_list()),
}  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.esdb"


def write(path, column):
    table = pa.table({"space": ["a", "b"], "timestamp": [1, 2], "kind": ["x", "y"], "v": column})
    with esformat.create(path, indexes=["kind"]) as writer:
        writer.add_table(table)


@pytest.mark.parametrize("name", COLUMNS)
def test_types_that_polars_lacks(path, name):
    """Such values are returned in another type, and other columns as usual."""
    column, expected = COLUMNS[name]
    write(path, column)
    frame = scan_esdb(path)
    assert frame.filter(pl.col("kind") == "y").select("space").collect().to_series().to_list() == ["b"]
    found = frame.collect()
    assert found["v"].to_list() == expected
    assert found.schema == frame.collect_schema()
    assert frame.filter(pl.col("v").is_null(), pl.col("kind") == "x").collect().is_empty()


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("s", "UTC"), pa.duration("s")], ids=str)
def test_seconds_out_of_range(path, kind):
    """Seconds beyond 64 bits of milliseconds are refused with the name of the column, and only if it is selected."""
    write(path, pa.array([1 << 62, 0], pa.int64()).cast(kind))
    assert scan_esdb(path).select("kind").collect().height == 2
    with pytest.raises(esformat.UsageError, match=r"column 'v' cannot be read: .*; select other columns"):
        scan_esdb(path).collect()
