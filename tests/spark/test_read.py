"""Reading with a real Spark: the same events as without it, with push-down on and off."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from clicks import click_table, in_file_order, write_clicks
from effort import share_of

import esformat
import esformat.spark
from esformat.spark.source import PUSH_DOWN
from esformat.spark.types import convert_batch, spark_arrow_type

NESTED = pa.list_(pa.struct([("x", pa.uint16()), ("y", pa.large_list(pa.string()))]))
START = 1_403_534_919_000_000  # µs, of the clicks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """4,000 clicks in two files of a directory, and a file that is being written."""
    folder = tmp_path_factory.mktemp("read")
    table = click_table(4000)
    (folder / "below").mkdir()
    write_clicks(folder / "a.esdb", table.slice(0, 2500))
    write_clicks(folder / "below" / "b.esdb", table.slice(2500))
    (folder / ".c.esdb.0000.partial").write_bytes(b"half a file")
    return folder


@pytest.fixture(scope="module")
def frame():
    """The events of the directory."""
    return in_file_order(click_table(4000))


def rows(df):
    """The rows of a DataFrame as sorted tuples, times as µs, nulls last."""
    table = df.toArrow()
    if "timestamp" in table.column_names:
        place = table.column_names.index("timestamp")
        table = table.set_column(place, "timestamp", table["timestamp"].cast(pa.int64()))
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


def rows_of(frame):
    """The same tuples of a pandas frame."""
    tuples = frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None)
    return sorted((tuple(row) for row in tuples), key=repr)


FILTERS = {
    "space = 'customer-1'": lambda f: f.space == "customer-1",
    "space IN ('customer-2', 'customer-33', 'nobody')": lambda f: f.space.isin(["customer-2", "customer-33"]),
    "space >= 'customer-2' AND space < 'customer-3'": lambda f: (f.space >= "customer-2") & (f.space < "customer-3"),
    "space > 'customer-2' AND space <= 'customer-3'": lambda f: (f.space > "customer-2") & (f.space <= "customer-3"),
    "space LIKE 'customer-4%'": lambda f: f.space.str.startswith("customer-4"),
    "grouping = ''": lambda f: f.grouping == "",
    "grouping <=> 'web' AND space = 'customer-1'": lambda f: (f.grouping == "web") & (f.space == "customer-1"),
    "timestamp >= '2014-06-23 14:48:40' AND timestamp < '2014-06-23 14:48:41.5'": lambda f: (
        (f.timestamp >= START + 1_000_000) & (f.timestamp < START + 2_500_000)
    ),
    "timestamp = timestamp_micros(1403534920004000)": lambda f: f.timestamp == 1_403_534_920_004_000,
    "type = 'purchase'": lambda f: f.type == "purchase",
    "type IN ('purchase', 'signup') AND country = 'C07'": lambda f: (
        f.type.isin(["purchase", "signup"]) & (f.country == "C07")
    ),
    "country IS NULL AND type = 'cart'": lambda f: f.country.isna() & (f.type == "cart"),
    "NOT (type = 'page')": lambda f: f.type != "page",
    "type = 'purchase' OR space = 'customer-1'": lambda f: (f.type == "purchase") | (f.space == "customer-1"),
    "space = 'customer-1' AND space = 'customer-2'": lambda f: f.space == "",
}


WITHOUT_PUSH_DOWN = share_of(FILTERS, 8)  # Spark applies these filters, too


@pytest.mark.parametrize("filter", share_of(FILTERS, 4))
def test_filters_are_exact(spark, folder, frame, filter, request):
    """A filter returns the same rows as on the events themselves, pushed down or not."""
    expected = rows_of(frame[FILTERS[filter](frame)])
    assert expected or "AND space =" in filter
    for push_down in ("true", "false") if filter in WITHOUT_PUSH_DOWN else ("true",):
        spark.conf.set(PUSH_DOWN, push_down)
        request.addfinalizer(lambda: spark.conf.unset(PUSH_DOWN))
        assert rows(spark.read.format("esdb").load(str(folder)).where(filter)) == expected


def test_one_dataframe_asked_several_things(spark, folder, frame):
    """Filters of one query do not affect another on the same DataFrame, before, after or within it."""
    df = spark.read.format("esdb").load(str(folder))
    pages, carts = df.where("type = 'page'"), df.where("type = 'cart'")
    count = frame.type.value_counts()
    assert df.where("space = 'nobody'").count() == 0
    assert df.count() == 4000
    assert pages.union(carts).count() == count["page"] + count["cart"]
    assert (carts.count(), pages.count(), df.count()) == (count["cart"], count["page"], 4000)


def test_times_that_python_does_not_have(spark, folder):
    """Comparisons with times outside Python's range work, although this version of Spark fails to push such filters."""
    df = spark.read.format("esdb").load(str(folder))
    assert df.where("timestamp < timestamp_micros(253402300800000000)").count() == 4000
    assert df.where("timestamp < timestamp_micros(-62135596800000001)").count() == 0


CONDITIONS = {
    "space = 'customer-1'": lambda f: f.space == "customer-1",
    "space IN ('customer-2', 'customer-33', 'nobody') AND type = 'page'": lambda f: (
        f.space.isin(["customer-2", "customer-33"]) & (f.type == "page")
    ),
    "space BETWEEN 'customer-2' AND 'customer-3' AND country > 'C05'": lambda f: (
        (f.space >= "customer-2") & (f.space <= "customer-3") & (f.country > "C05")
    ),
    "space like 'customer-4%' and country is null": lambda f: f.space.str.startswith("customer-4") & f.country.isna(),
    "timestamp >= '2014-06-23T14:48:40Z' AND timestamp < '2014-06-23 14:48:41.500'": lambda f: (
        (f.timestamp >= START + 1_000_000) & (f.timestamp < START + 2_500_000)
    ),
    "`type` IN ('purchase', 'signup') AND country IS NOT NULL": lambda f: (
        f.type.isin(["purchase", "signup"]) & f.country.notna()
    ),
}


@pytest.mark.parametrize("condition", share_of(CONDITIONS, 2))
def test_where(spark, folder, frame, condition):
    """The option is exact even if the columns that it names are not read."""
    chosen = frame[CONDITIONS[condition](frame)]
    assert len(chosen)
    assert rows(esformat.spark.read(spark, str(folder), where=condition)) == rows_of(chosen)
    narrow = esformat.spark.read(spark, str(folder), where=condition, columns=["data"])
    assert rows(narrow) == rows_of(chosen[["data"]])


@pytest.mark.parametrize(("zone", "hour"), [("GMT-08:00", 20), ("UTC+3", 9), ("+5", 7), ("UT-1", 13)])
def test_where_in_zones_as_spark_spells_them(spark, tmp_path, request, zone, hour):
    """Times without a zone are in the session's zone, in every spelling."""
    request.addfinalizer(lambda: spark.conf.set("spark.sql.session.timeZone", "UTC"))
    with esformat.create(tmp_path / "a.esdb") as writer:
        writer.add("a", b"", timestamp=dt.datetime(2026, 3, 1, hour, tzinfo=dt.UTC))
    spark.conf.set("spark.sql.session.timeZone", zone)
    asked = "timestamp = '2026-03-01 12:00:00'"
    assert spark.read.format("esdb").load(str(tmp_path)).where(asked).count() == 1
    assert esformat.spark.read(spark, str(tmp_path), where=asked).count() == 1


def test_file_directory_and_pattern(spark, folder):
    """A file, a directory and a pattern each name the right files; a file that is being written is skipped."""
    load = spark.read.format("esdb").load
    assert load(str(folder / "a.esdb")).count() == 2500
    assert load(str(folder)).count() == 4000
    assert load(f"{folder}/*/[ab].esdb").count() == 1500
    assert load((folder / "a.esdb").as_uri()).count() == 2500


def test_schema(spark, folder):
    """Columns, types and nullability come from the footers."""
    df = spark.read.format("esdb").load(str(folder))
    assert df.schema.simpleString() == (
        "struct<space:string,grouping:string,timestamp:timestamp,data:binary,type:string,country:string>"
    )
    assert [field.nullable for field in df.schema] == [False, False, False, True, True, True]


def test_columns(spark, folder, frame):
    """The option or a narrowed schema selects the columns and their order."""
    expected = rows_of(frame[["type", "timestamp"]])
    read = spark.read.format("esdb")
    assert rows(read.option("columns", "type, timestamp").load(str(folder))) == expected
    narrowed = spark.read.format("esdb").schema("type string, timestamp timestamp").load(str(folder))
    assert rows(narrowed) == expected
    assert narrowed.columns == ["type", "timestamp"]


def test_partitions_are_even(spark, folder):
    """The number of tasks is as requested, as far as there are leaves; each event is in one of them."""
    df = spark.read.format("esdb").option("partitions", 2).load(str(folder))
    counts = df.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert sorted(counts) == [1500, 2500]


MISTAKES = {
    "unknown option 'colums'": lambda read: read.option("colums", "type"),
    "option 'partitions' must be a whole number from 1, not '0'": lambda read: read.option("partitions", 0),
    "option 'partitionBytes' must be a size above zero": lambda read: read.option("partitionBytes", "many"),
    "no column 'nix'": lambda read: read.option("columns", "type,nix"),
    "column 'type' is string, not int": lambda read: read.schema("type int"),
    "name different columns": lambda read: read.option("columns", "type").schema("country string"),
}


@pytest.mark.parametrize("message", share_of(MISTAKES, 3))
def test_mistakes(spark, folder, message):
    """A wrong option or name is refused with the reason before anything runs."""
    with pytest.raises(Exception, match=message):
        MISTAKES[message](spark.read.format("esdb")).load(str(folder)).count()


def test_nothing_there(spark, tmp_path):
    with pytest.raises(Exception, match=r"no \.esdb file"):
        spark.read.format("esdb").load(str(tmp_path)).count()


def test_every_type(spark, tmp_path):
    """Values of every Spark type survive writing and reading an .esdb file."""
    table = pa.table(
        {
            "space": ["a", "b"],
            "timestamp": pa.array([-1, 1 << 50], pa.timestamp("us", "UTC")),
            "small": pa.array([255, None], pa.uint8()),
            "large": pa.array([(1 << 64) - 1, 0], pa.uint64()),
            "half": pa.array([0.5, None], pa.float16()),
            "day": pa.array([86_400_000, None], pa.date64()),
            "nanos": pa.array([1, None], pa.timestamp("ns", "UTC")),
            "naive": pa.array([1, None], pa.timestamp("ms")),
            "long": pa.array([1, None], pa.duration("s")),
            "fixed": pa.array([b"abc", None], pa.binary(3)),
            "nested": pa.array([[{"x": 1, "y": ["z"]}], None], NESTED),
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8())),
            "price": pa.array([None, "1.50"], pa.string()).cast(pa.decimal128(9, 2)),
        }
    )  # fmt: skip
    with esformat.create(tmp_path / "types.esdb") as writer:
        writer.add_table(table)
    df = spark.read.format("esdb").load(str(tmp_path))
    assert df.schema["small"].dataType.simpleString() == "smallint"
    assert df.schema["nanos"].dataType.simpleString() == "bigint"
    found = df.orderBy("space").drop("grouping").toArrow()
    for name in table.column_names:
        stored = table[name].cast(found.schema.field(name).type)
        assert found[name].to_pylist() == stored.to_pylist(), name


PAIRS = [[{"x": 1}, None], None, [{"x": 2}, {"x": 3}]]


@pytest.mark.parametrize("item", [pa.struct([pa.field("x", pa.int32(), nullable=False)]), pa.struct({"x": pa.uint8()})])
def test_lists_of_one_length(tmp_path, item):
    """Fixed-size lists become lists, also within null structs whose members are never null."""
    with esformat.create(tmp_path / "a.esdb") as writer:
        pairs = pa.array(PAIRS, pa.list_(item, 2))
        writer.add_table(pa.table({"space": ["a"] * 3, "timestamp": [1, 2, 3], "pair": pairs}))
    with esformat.open(tmp_path / "a.esdb") as segment:
        (batch,) = segment.scan(columns=["pair"]).batches()
        kinds = pa.schema([("pair", spark_arrow_type(batch.schema.field("pair").type))])
        for first in range(3):
            found = convert_batch(batch.slice(first), kinds)
            found.validate(full=True)
            assert found.schema == kinds
            assert found["pair"].to_pylist() == PAIRS[first:]


def test_mixed_schemas(spark, tmp_path):
    """A column that some files lack is null there, integers become the wider type, other differences are refused."""
    for name, columns in {
        "a": {"n": pa.array([1], pa.int32()), "type": ["x"]},
        "b": {"n": pa.array([1 << 40], pa.int64()), "more": [2.5]},
    }.items():
        with esformat.create(tmp_path / f"{name}.esdb", indexes=["n"]) as writer:
            writer.add_table(pa.table({"space": [name], "timestamp": [1], **columns}))
    df = spark.read.format("esdb").load(str(tmp_path))
    assert sorted(df.select("space", "n", "type", "more").collect()) == [("a", 1, "x", None), ("b", 1 << 40, None, 2.5)]
    assert df.where("n = 1").count() == 1
    with esformat.create(tmp_path / "c.esdb") as writer:
        writer.add_table(pa.table({"space": ["c"], "timestamp": [1], "type": [7]}))
    with pytest.raises(Exception, match=r"column 'type' is int64 in .*c\.esdb and string in .*a\.esdb"):
        spark.read.format("esdb").load(str(tmp_path)).count()
    assert spark.read.format("esdb").option("columns", "space,n").load(str(tmp_path)).count() == 3


def test_replaced_while_it_is_read(spark, folder, tmp_path):
    """If a file was replaced before a task opens it, the task fails and never mixes the two."""
    write_clicks(tmp_path / "x.esdb", click_table(100))
    planned = spark.read.format("esdb").load(str(tmp_path)).rdd  # the read is planned here
    planned.getNumPartitions()
    write_clicks(tmp_path / "x.esdb", click_table(100, seed=8), overwrite=True)
    with pytest.raises(Exception, match="changed since the read was planned"):
        planned.count()


def test_a_view_of_what_was_replaced(spark, tmp_path):
    """Spark keeps the plan of a view, so the message suggests a remedy; `esformat.spark.sql` plans again."""
    events = spark.range(9).selectExpr("'a' AS space", "timestamp_micros(id) AS timestamp")
    esformat.spark.write(events, str(tmp_path))
    spark.read.format("esdb").load(str(tmp_path)).createOrReplaceTempView("replaced")
    assert spark.sql("FROM replaced").count() == 9
    esformat.spark.write(events.limit(5), str(tmp_path), mode="overwrite")
    with pytest.raises(Exception, match=r"the segment was removed .* create it again with spark\.read"):
        spark.sql("FROM replaced").count()
    assert esformat.spark.sql(spark, "SELECT count(*) FROM replaced").collect() == [(5,)]
    spark.read.format("esdb").load(str(tmp_path)).createOrReplaceTempView("replaced")
    assert spark.sql("FROM replaced").count() == 5


def test_temporary_view(spark, folder, frame):
    """SQL runs over a view of the files."""
    spark.read.format("esdb").load(str(folder)).createOrReplaceTempView("clicks")
    found = spark.sql("SELECT type, count(*) FROM clicks WHERE space = 'customer-1' GROUP BY type").collect()
    expected = frame[frame.space == "customer-1"].groupby("type").size()
    assert dict(found) == expected.to_dict()
