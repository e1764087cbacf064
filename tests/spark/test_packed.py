"""Packed rows: their events equal those of an ordinary read, whatever the query."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from effort import share_of
from pyspark.sql import types
from small_pieces import Pieces, cut_small

import esformat
import esformat.spark
from esformat import UsageError
from esformat.spark import packed, spark_sql
from esformat.spark.options import ReadOptions
from esformat.spark.packed import PackedReader, can_be_packed, packed_schema, unpacked_schema
from esformat.spark.reader import SegmentReader
from esformat.spark.source import EsdbDataSource

SPACE = types.StructField("space", types.StringType(), nullable=False)
GROUPING = types.StructField("grouping", types.StringType(), nullable=False)
TIME = types.StructField("timestamp", types.TimestampType(), nullable=False)
NUMBER = types.StructField("n", types.LongType())
TYPE = types.StructField("type", types.StringType())
START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """2,000 events in two segments of many leaves: one space with 900, many with a few, groupings in some."""
    path = tmp_path_factory.mktemp("packed")
    n = np.arange(2000)
    table = pa.table(
        {
            "space": ["large" if i < 900 else f"s{i % 157}" for i in n],
            "grouping": ["web" if i % 5 == 0 else "" for i in n],
            "timestamp": pa.array([START + dt.timedelta(minutes=int(i)) for i in n], pa.timestamp("us", "UTC")),
            "n": pa.array([None if i % 7 == 0 else int(i) for i in n], pa.int64()),
            "type": [("page", "cart")[i % 2] for i in n],
        }
    )
    with cut_small(Pieces(block_rows=32, leaf_blocks=4, leaf_runs=16)):
        for name, part in {"a": table.slice(0, 1300), "b": table.slice(1300)}.items():
            with esformat.create(path / f"{name}.esdb", indexes=["type"]) as writer:
                writer.add_table(part)
    return path


def test_what_can_be_packed():
    """Only key columns, or one column of fixed width, can be packed."""
    for columns in ([SPACE], [SPACE, GROUPING], [TIME], [NUMBER]):
        schema = types.StructType(columns)
        assert can_be_packed(schema)
        assert unpacked_schema(packed_schema(schema)) == schema
    for columns in (
        [TYPE],
        [TIME, NUMBER],
        [SPACE, TYPE],
        [SPACE, TIME],
        [types.StructField("price", types.DecimalType(9, 2))],
    ):
        assert not can_be_packed(types.StructType(columns))


def test_option_without_its_schema(folder):
    """The option without a packed schema is refused: `esformat.spark.sql` sets both."""
    for columns in ([SPACE, GROUPING, TIME], [SPACE], packed_schema(types.StructType([TIME, NUMBER])).fields):
        source = EsdbDataSource({"path": str(folder), "packed": "true"})
        with pytest.raises(UsageError, match="packed"):
            source.reader(types.StructType(columns))


def rows_of(reader):
    """The rows of a reader's tasks."""
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def events_of(row):
    """The events of a packed row."""
    (many,) = (name for name in row if name == packed.EVENTS or isinstance(row[name], list))
    values = [None] * row[many] if many == packed.EVENTS else row[many]
    rest = {name: value for name, value in row.items() if name != packed.EVENTS}
    return [rest | ({} if many == packed.EVENTS else {many: value}) for value in values]


ASKED = {
    "spaces": ([SPACE], ""),
    "spaces and groupings": ([SPACE, GROUPING], ""),
    "groupings of some spaces": ([GROUPING], "space IN ('large', 's3', 'nobody')"),
    "spaces of one grouping": ([SPACE], "grouping = 'web' AND space >= 's1'"),
    "spaces with another condition": ([SPACE], "n > 950 AND n < 1200"),
    "times": ([TIME], ""),
    "times of a type": ([TIME], "type = 'cart'"),
    "numbers of some time": ([NUMBER], "timestamp >= '2026-03-01T10:00:00Z'"),
    "numbers of no space": ([NUMBER], "space = 'nobody'"),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(("most", "partitions"), [(64, 5), (2048, 1)])
def test_the_same_events(folder, asked, most, partitions, monkeypatch):
    """The events are in the same order, and no row has more events than allowed."""
    monkeypatch.setattr(packed, "MOST_EVENTS", most)
    monkeypatch.setattr(packed, "LEAVES", 3)
    columns, where = ASKED[asked]
    schema = types.StructType(columns)
    options = ReadOptions.parse({"path": str(folder), "where": where, "partitions": str(partitions)})
    known = pa.schema({"space": pa.string(), "grouping": pa.string(), "n": pa.int64(), "type": pa.string(),
                       "timestamp": pa.timestamp("us", "UTC")})  # fmt: skip
    expected = rows_of(SegmentReader(options, schema, known))
    found = [events_of(row) for row in rows_of(PackedReader(options, schema, known))]
    assert [event for events in found for event in events] == expected
    assert all(0 < len(events) <= most for events in found)
    if len(expected) > 500:
        assert len(found) < len(expected) / 2


QUERIES = {
    "SELECT space, concat(space, count(*)) FROM EVENTS GROUP BY space, rand(1) > 2": True,
    "SELECT space, grouping FROM EVENTS": True,
    "SELECT sum(n), count(n), count(*) FROM EVENTS": True,
    "SELECT sum(unix_micros(timestamp)) FROM EVENTS WHERE space = 'large' OR type = 'cart' AND space > 's5'": False,
    "SELECT sum(n), count(*) FROM EVENTS WHERE space = 'large'": True,
    "SELECT space, max(n) FROM EVENTS WHERE n > 5 OR n IS NULL GROUP BY space": False,
    "SELECT a.space, count(*) FROM EVENTS a JOIN EVENTS b ON a.space = b.space WHERE a.space <> 'large' GROUP BY 1":
        True,
    "SELECT count(DISTINCT type) FROM EVENTS": False,
    "SELECT max(n), sum(unix_micros(timestamp)) FROM EVENTS": False,
}  # fmt: skip


@pytest.mark.parametrize("asked", share_of(QUERIES, 5))
def test_queries(spark, folder, asked, monkeypatch):
    """Queries that need keys alone or one column receive packed rows and return the same as with plain rows."""
    monkeypatch.setattr(spark_sql, "FEW_EVENTS", 0)
    spark.read.format("esdb").load(str(folder)).createOrReplaceTempView("plain_rows")
    expected = spark.sql(asked.replace("EVENTS", "plain_rows"))
    query = asked.replace("EVENTS", f"esdb.`{folder}`")
    ours = esformat.spark.sql(spark, query)
    assert ours.schema == expected.schema
    assert sorted(map(repr, ours.collect())) == sorted(map(repr, expected.collect()))
    plan = esformat.spark.sql(spark, f"EXPLAIN {query}").collect()[0].plan
    assert ("Generate" in plan) == QUERIES[asked]


COUNTED = {
    "SELECT space, count(*) FROM EVENTS GROUP BY space": True,
    "select COUNT( * ) AS n, space from EVENTS group by all having Count(1) > 12 order by count(*) desc, space": True,
    "SELECT count(*), max(n) FROM (SELECT space, count(*) AS n FROM EVENTS e GROUP BY space)": True,
    "SELECT 100 * count(*) / 7 AS share, min(space), max(upper(grouping)) FROM EVENTS WHERE space LIKE '%1%'": True,
    "SELECT count(*), min(space) FROM EVENTS WHERE space LIKE '%none%'": True,
    "SELECT DISTINCT space, grouping FROM EVENTS": True,
    "SELECT upper(name), count(1) FROM (SELECT space AS name FROM EVENTS WHERE hash(space) > 0) GROUP BY 1": False,
    "WITH n AS (SELECT space, count(*) c FROM EVENTS GROUP BY space) SELECT sum(c), count(*) FROM n": True,
    "SELECT space, count(*) FILTER (WHERE grouping = 'web') FROM EVENTS GROUP BY space": False,
    "SELECT space, count(*) * 2 FROM EVENTS GROUP BY space": False,  # the column would have another name
    "SELECT space, count(grouping) FROM EVENTS GROUP BY space": False,
    "SELECT count(DISTINCT space), count(*) FROM EVENTS": False,
    "SELECT space, count(*), sum(length(space)) FROM EVENTS GROUP BY space": False,
    "SELECT count(*) FROM EVENTS WHERE rand(7) < 2 AND space LIKE '%s%'": False,
    "SELECT space, count(*), count(*) OVER () FROM EVENTS GROUP BY space": False,
    "SELECT space, grouping, count(*) FROM EVENTS GROUP BY ROLLUP (space, grouping)": False,
    "SELECT count(*) FROM (SELECT DISTINCT * FROM (SELECT space, grouping FROM EVENTS))": True,
    "SELECT DISTINCT * FROM (SELECT space, grouping FROM EVENTS) WHERE grouping <> 'x'": True,
    "SELECT space FROM EVENTS GROUP BY space HAVING count(*) > 12": True,
    "SELECT space, count(*) FROM EVENTS GROUP BY space ORDER BY count(*) DESC, space LIMIT 3": True,
    "SELECT 'count(*)', space, count(*) -- count(*)\n FROM EVENTS GROUP BY space": True,
    "SELECT count(*), (SELECT count(*) FROM VALUES (1), (2)) FROM EVENTS WHERE space LIKE '%s%'": True,
    "SELECT space, count(*) FROM EVENTS GROUP BY space UNION ALL SELECT 'all', count(*) FROM VALUES (1)": True,
    "SELECT space, collect_list(grouping), count(*) FROM EVENTS GROUP BY space": False,
}  # fmt: skip


def shape(frame):
    """Columns without metadata: Spark marks a column name that it generated, while ours is explicit."""
    return [(each.name, each.dataType, each.nullable) for each in frame.schema]


@pytest.mark.parametrize("asked", share_of(COUNTED, 12))
def test_counted(spark, folder, asked, monkeypatch):
    """If events are only counted by their keys, Spark creates no row for each, and the answer is the same."""
    monkeypatch.setattr(spark_sql, "FEW_EVENTS", 0)
    monkeypatch.setattr(packed, "MOST_EVENTS", 7)
    spark.read.format("esdb").load(str(folder)).createOrReplaceTempView("plain_rows")
    expected = spark.sql(asked.replace("EVENTS", "plain_rows"))
    query = asked.replace("EVENTS", f"esdb.`{folder}`")
    ours = esformat.spark.sql(spark, query)
    assert shape(ours) == shape(expected)
    assert sorted(map(repr, ours.collect())) == sorted(map(repr, expected.collect()))
    plan = esformat.spark.sql(spark, f"EXPLAIN EXTENDED {query}").collect()[0].plan
    assert ("Generate" not in plan) == COUNTED[asked]
