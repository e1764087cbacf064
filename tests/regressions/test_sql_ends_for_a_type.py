"""If a column had a type that DuckDB lacks, no statement over its table worked, or the process crashed."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

import aggregator
import esformat
import esformat.duckdb

LARGE = Decimal("12345678901234567890123456789012345678.25")
COLUMNS = {
    "half": (pa.array([1.5, None], pa.float16()), [1.5, None]),
    "halves": (pa.array([[1.5, 2], None], pa.list_(pa.float16(), 2)), [(1.5, 2.0), None]),
    "nothing": (pa.array([[], None], pa.list_(pa.float32(), 0)), [[], None]),
    "inside": (
        pa.array([{"a": [[]], "b": 0.5}, None], pa.struct({"a": pa.list_(pa.list_(pa.int8(), 0)), "b": pa.float16()})),
        [{"a": [[]], "b": 0.5}, None],
    ),
    "by name": (pa.array([[("a", 0.5)], None], pa.map_(pa.string(), pa.float16())), [{"a": 0.5}, None]),
    "thousands": (pa.array([Decimal("12E3"), None], pa.decimal128(5, -3)), [Decimal(12000), None]),
    "wide": (pa.array([Decimal("1.25"), None], pa.decimal256(20, 2)), [Decimal("1.25"), None]),
    "wider": (pa.array([LARGE, None], pa.decimal256(42, 2)), [str(LARGE), None]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_types_that_duckdb_lacks(tmp_path, name):
    """Such values are returned in another type, other columns as usual: of topics, sealed or not, and of files."""
    column, expected = COLUMNS[name]
    table = pa.table({"space": ["a", "b"], "timestamp": [1, 2], "kind": ["x", "y"], "v": column})
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", indexes=["kind"])
        for _ in range(2):
            topic.append(table)
            for statement in (
                "SELECT v FROM t WHERE kind = 'x'",
                "SELECT v FROM t WHERE timestamp < '1970-01-01 00:00:00.000002'",
            ):
                assert {repr(v) for (v,) in catalog.sql(statement).fetchall()} == {repr(expected[0])}
            (count, filled) = catalog.sql("SELECT count(*), count(v) FROM t WHERE space >= 'a'").fetchall()[0]
            assert count == 2 * filled
            catalog.seal()
        assert catalog.sql("SELECT kind, count(*) FROM t GROUP BY 1 ORDER BY 1").fetchall() == [("x", 2), ("y", 2)]
    with esformat.create(tmp_path / "a.esdb", schema=table.schema, indexes=["kind"]) as writer:
        writer.add_table(table)
    with esformat.open(tmp_path / "a.esdb") as segment:
        assert [v for (v,) in segment.sql("SELECT v FROM events ORDER BY timestamp").fetchall()] == expected
    with esformat.duckdb.connect() as connection:
        rows = connection.sql(f"SELECT v FROM '{tmp_path / 'a.esdb'}' ORDER BY timestamp").fetchall()
        assert [v for (v,) in rows] == expected


def test_decimals_that_grow_together(tmp_path):
    """Decimals whose common type has more digits than DuckDB supports can be queried."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        for kind in (pa.decimal128(38, 0), pa.decimal128(10, 2)):
            topic.append(pa.table({"space": ["a"], "timestamp": [1], "v": pa.array([Decimal(7)], kind)}))
        assert catalog.sql("SELECT count(*), max(v) FROM t").fetchall() == [(2, "7.00")]
