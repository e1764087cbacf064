"""`esformat.spark.sql`: it pushes a query's columns, conditions and limits to the source and changes no answer."""

from __future__ import annotations

import datetime as dt
import decimal
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import examples, long, share_of
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

import aggregator
import aggregator.spark
import esformat
import esformat.spark
from esformat import UsageError
from esformat.spark import spark_sql, stand_ins

START = dt.datetime(2026, 3, 28, 22, tzinfo=dt.UTC)  # Vienna's clocks go forward three hours later
COUNT = 400


def events():
    """Events with values of every kind that compares by its own rules, nulls included."""
    n = range(COUNT)
    return pa.table(
        {
            "space": [f"s{i % 7}" if i % 7 else "" for i in n],
            "grouping": [("web", "app", "")[i % 3] for i in n],
            "timestamp": pa.array([START + dt.timedelta(minutes=i, microseconds=i % 2) for i in n]).cast(
                pa.timestamp("us", "UTC")
            ),
            "data": pa.array([None if i % 11 == 0 else bytes([i % 5]) for i in n], pa.binary()),
            "type": [None if i % 9 == 0 else ("page", "cart", "it's", "ä%_\\", "Page")[i % 5] for i in n],
            "n": pa.array([None if i % 8 == 0 else i % 13 - 6 for i in n], pa.int64()),
            "x": pa.array([(None, math.nan, -0.0, 0.0, 1.5, -math.inf)[i % 6] for i in n], pa.float64()),
            "ok": pa.array([(None, True, False)[i % 3] for i in n], pa.bool_()),
            "price": pa.array([None if i % 10 == 0 else decimal.Decimal(i % 17) / 4 for i in n], pa.decimal128(9, 2)),
            "day": pa.array([None if i % 12 == 0 else dt.date(2026, 3, 1 + i % 28) for i in n], pa.date32()),
            "naive": pa.array(
                [None if i % 7 == 0 else START.replace(tzinfo=None) + dt.timedelta(hours=i % 30) for i in n],
                pa.timestamp("us"),
            ),
        }
    )


@pytest.fixture(scope="module")
def both(spark, tmp_path_factory):
    """The same events as two segments and as Parquet, which is a view called `parquet_events`."""
    folder = tmp_path_factory.mktemp("spark_sql")
    table = events()
    for name, part in {"a": table.slice(0, 250), "b": table.slice(250)}.items():
        with esformat.create(folder / f"{name}.esdb", indexes=["type"]) as writer:
            writer.add_table(part)
    pq.write_table(table, folder / "events.parquet", coerce_timestamps="us")
    spark.read.parquet(str(folder / "events.parquet")).createOrReplaceTempView("parquet_events")
    return folder


def answer(df):
    """The rows as text, sorted, so that NaN equals itself."""
    return sorted(map(repr, df.collect()))


def explained(spark, query):
    """The lines of EXPLAIN about the pushed parts, and the plan below them."""
    text = esformat.spark.sql(spark, f"EXPLAIN {query}").collect()[0].plan
    head, _, plan = text.partition("\n\n")
    return head.splitlines()[1:], plan


# ------------------------------------------------------------ answers do not change

COLUMNS = ["space", "grouping", "timestamp", "data", "type", "n", "x", "ok", "price", "day", "naive"]
LITERALS = {
    "space": ["'s1'", "''", "'s'", "'zz'", "NULL"],
    "grouping": ["'web'", "''"],
    "timestamp": [
        "'2026-03-29 00:30:00'", "'2026-03-29 02:30:00'", "TIMESTAMP '2026-03-29 01:00:00Z'", "'2026-03-29'",
        "TIMESTAMP '0001-01-01 00:00:00Z'",
    ],
    "data": ["X'01'", "X''", "'\x02'"],
    "type": ["'page'", "'it\\'s'", "'PAGE'", "5", "'ä%_\\\\\\\\'", "NULL"],
    "n": ["0", "-6", "3.5", "'4'", "99999999999", "NULL"],
    "x": ["0", "1.5", "double('NaN')", "-1", "NULL"],
    "ok": ["TRUE", "FALSE", "NULL"],
    "price": ["1.25", "2", "0.001", "'3.00'", "1e0"],
    "day": ["'2026-03-11'", "DATE '2026-03-15'", "TIMESTAMP '2026-03-15 12:00:00'"],
    "naive": ["'2026-03-29 02:00:00'", "TIMESTAMP_NTZ '2026-03-29 05:00:00'", "DATE '2026-03-29'"],
}  # fmt: skip


@st.composite
def comparison(draw, alias):
    """One condition on a column, whose name has random upper and lower case."""
    column = draw(st.sampled_from(COLUMNS))
    name = alias + draw(st.sampled_from([column, column.upper(), f"`{column}`"]))
    literal = st.sampled_from(LITERALS[column])
    kind = draw(st.sampled_from(["compare", "flipped", "in", "between", "null", "safe", "like", "call", "columns"]))
    if kind == "compare":
        return f"{name} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=']))} {draw(literal)}"
    if kind == "flipped":
        return f"{draw(literal)} {draw(st.sampled_from(['=', '<', '>=']))} {name}"
    if kind == "in":
        values = draw(st.lists(literal, min_size=1, max_size=3))
        values += ["'x'"] * 12 if column == "type" and draw(st.booleans()) else []  # which Spark turns into a set
        values += [f"'{n}'" for n in range(12)] if len(values) > 12 else []
        return f"{name} {draw(st.sampled_from(['', 'NOT ']))}IN ({', '.join(values)})"
    if kind == "between":
        return f"{name} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {draw(literal)} AND {draw(literal)}"
    if kind == "null":
        return f"{name} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == "safe":
        return f"{name} <=> {draw(literal)}"
    if kind == "like" and column in ("space", "type", "grouping"):
        pattern = draw(st.sampled_from(["p%", "%", "s_%", "%e", "s1"]))
        return f"{name} LIKE '{pattern}'"
    if kind == "call" and column == "type":
        return f"lower({name}) = 'page'"
    return f"{alias}n {draw(st.sampled_from(['=', '<', '<=>']))} {alias}price"


@st.composite
def condition(draw, alias, depth=2):
    """Comparisons joined by AND, OR and NOT."""
    if depth == 0 or draw(st.booleans()):
        return draw(comparison(alias))
    if draw(st.integers(0, 3)) == 0:
        return f"NOT ({draw(condition(alias, depth - 1))})"
    one, two = draw(condition(alias, depth - 1)), draw(condition(alias, depth - 1))
    return f"({one} {draw(st.sampled_from(['AND', 'OR']))} {two})"


@st.composite
def query(draw):
    """A query of one of several shapes; EVENTS stands for the source."""
    columns = ", ".join(draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=4, unique=True)))
    one, two = draw(condition("")), draw(condition("b."))
    a, b = draw(st.sampled_from(COLUMNS)), draw(st.sampled_from(COLUMNS))
    return draw(
        st.sampled_from(
            [
                f"SELECT {columns} FROM EVENTS WHERE {one}",
                f"SELECT * FROM EVENTS WHERE {one}",
                f"SELECT count(*) FROM EVENTS WHERE {one}",
                f"SELECT count(space), count(type), max(timestamp) FROM EVENTS WHERE {one}",
                f"SELECT {columns}, count(*) FROM EVENTS WHERE {one} GROUP BY {columns} HAVING count(*) > 1",
                f"SELECT DISTINCT {columns} FROM EVENTS e WHERE {one}",
                f"SELECT min({a}), max({b}) AS {b}, count({a}), count(*), max({a}), count(*) FROM EVENTS WHERE {one}",
                f"SELECT max({a}), min({b}), count({b}) FROM EVENTS",
                f"SELECT max({a}), count(DISTINCT {b}), count(*) FILTER (WHERE n > 0) FROM EVENTS WHERE {one}",
                f"SELECT max({a}) FROM (SELECT * FROM EVENTS WHERE {one} LIMIT 100000)",
                f"SELECT count({a}), max({a}) FROM EVENTS HAVING count(*) > 5",
                "SELECT count(*) FROM (SELECT * FROM EVENTS LIMIT 7)",
                f"SELECT count(*) FROM (SELECT type FROM EVENTS WHERE {one} LIMIT 5)",
                f"SELECT a.n, b.type, count(*) FROM EVENTS a JOIN EVENTS b USING (timestamp) WHERE {two} GROUP BY 1, 2",
                f"SELECT a.n, b.price FROM EVENTS a LEFT JOIN EVENTS b ON a.n = b.n AND {two} WHERE a.n < -4",
                f"SELECT count(b.n) FROM EVENTS LEFT JOIN (SELECT * FROM EVENTS b WHERE {two}) b USING (timestamp)",
                f"SELECT count(*) FROM EVENTS a WHERE EXISTS (SELECT 1 FROM EVENTS b WHERE b.n = a.n AND {two})",
                f"SELECT type FROM EVENTS a WHERE n NOT IN (SELECT b.n FROM EVENTS b WHERE b.n > 3 AND {two})",
                f"SELECT count(*) FROM EVENTS WHERE n > (SELECT avg(n) FROM EVENTS b WHERE {two})",
                f"WITH q AS (SELECT * FROM EVENTS WHERE {one}) SELECT sum(a.n) FROM q a JOIN q b USING (timestamp)",
                f"WITH q AS (SELECT * FROM EVENTS) SELECT 7 FROM q WHERE {one} UNION ALL SELECT n FROM q b WHERE {two}",
                f"SELECT count(*) FROM (SELECT * FROM EVENTS WHERE {one} UNION ALL SELECT * FROM EVENTS b WHERE {two})",
                f"SELECT n, type FROM (SELECT n, type FROM EVENTS EXCEPT SELECT n, type FROM EVENTS b WHERE {two})",
                f"SELECT sum(n) OVER (PARTITION BY space) FROM EVENTS WHERE {one}",
                f"SELECT named_struct('a', type, 'b', n).a AS c FROM EVENTS WHERE {one}",
                f"SELECT 1 FROM EVENTS WHERE {one}",
            ]
        )
    )


ZONES = ("UTC", "Europe/Vienna")
FEW = (0, 100, 500)


def test_random_queries(spark, both, request, monkeypatch):
    """Joins, subqueries, groups and conditions of all kinds return the same through `esformat.spark.sql` as from
    Parquet.
    Events are read by the driver, or by tasks if there are more than `few`.
    """
    request.addfinalizer(lambda: spark.conf.set("spark.sql.session.timeZone", "UTC"))
    esformat.spark.view(spark, "events_view", str(both))

    @examples(8)
    @given(query(), st.sampled_from([f"esdb.`{both}`", "events_view"]), st.sampled_from(ZONES), st.sampled_from(FEW))
    @example("SELECT count(space), count(1) FROM EVENTS WHERE space = ''", f"esdb.`{both}`", "UTC", 0)
    @example("SELECT count(*) FROM EVENTS WHERE x > 1 OR timestamp < '2026-03-29 02:30:00'", "events_view", ZONES[1], 0)
    @example("SELECT count(*) FROM EVENTS WHERE NOT (type <=> 'page')", f"esdb.`{both}`", "UTC", 500)
    def ask(text, source, zone, few):
        monkeypatch.setattr(spark_sql, "FEW_EVENTS", few)
        spark.conf.set("spark.sql.session.timeZone", zone)
        asked = text.replace("EVENTS", source)
        try:
            expected = answer(spark.sql(text.replace("EVENTS", "parquet_events")))
        except PySparkException as error:
            with pytest.raises(type(error)):
                esformat.spark.sql(spark, asked).collect()
        else:
            assert answer(esformat.spark.sql(spark, asked)) == expected, asked

    ask()


# ------------------------------------------------------------ what is pushed

HANDED = {
    "SELECT count(*) FROM CLICKS": "no columns",
    "SELECT count(*) FROM CLICKS WHERE SPACE = 's1'": "no columns; where space = 's1'",
    "SELECT max(Timestamp) FROM CLICKS": "columns timestamp",
    "SELECT n FROM CLICKS WHERE type = 'page' AND NOT n IN (1, 2)": (
        "columns n; where NOT (n IN (1, 2)) AND type = 'page'"
    ),
    "SELECT n FROM CLICKS WHERE timestamp >= '2026-03-29' AND lower(type) = 'x'": (
        "columns timestamp, type, n; where timestamp >= TIMESTAMP '2026-03-29T00:00:00+00:00' AND type IS NOT NULL"
    ),
    "SELECT n FROM CLICKS WHERE x > 1": "columns n, x; where x IS NOT NULL",
    "SELECT space, n FROM CLICKS LIMIT 3": "columns space, n; limit 3",
    "SELECT n FROM CLICKS WHERE timestamp > now()": "columns timestamp, n",
    "SELECT n FROM CLICKS a JOIN parquet_events b USING (n) WHERE a.type LIKE 'p%'": (
        "columns type, n; where n IS NOT NULL AND type LIKE 'p%'"
    ),
}


@pytest.mark.parametrize("asked", share_of(HANDED, 4))
def test_handed_over(spark, both, asked):
    """EXPLAIN shows columns, conditions and limits as the source receives them."""
    lines, _ = explained(spark, asked.replace("CLICKS", f"esdb.`{both}`"))
    (line,) = lines
    told, _, wheres = line.removeprefix(f"esdb.`{both}`: ").partition("where ")
    expected, _, conditions = HANDED[asked].partition("where ")
    assert (told, sorted(wheres.split(" AND "))) == (expected, sorted(conditions.split(" AND ")))


def test_counts_read_no_event(spark, both):
    """The number of all events, or of one space, is read from the files' directories."""
    for condition in ("", " WHERE space = 's1'"):
        asked = f"SELECT count(*) FROM esdb.`{both}`{condition}"
        _, plan = explained(spark, asked)
        assert "BatchScan" not in plan
        counted = spark.sql(f"SELECT count(*) FROM parquet_events{condition}").collect()
        assert esformat.spark.sql(spark, asked).collect() == counted


def test_no_events_with_lists(spark, tmp_path):
    """Nested columns of no events are empty, like all others, whichever columns are selected."""
    table = events().append_column("seen", pa.array([[{"at": n}] for n in range(COUNT)]))
    with esformat.create(tmp_path / "a.esdb") as writer:
        writer.add_table(table)
    asked = f"SELECT {{}} FROM esdb.`{tmp_path}` WHERE space = 'nobody'"
    assert esformat.spark.sql(spark, asked.format("seen")).collect() == []
    assert esformat.spark.sql(spark, asked.format("n")).collect() == []


@long
def test_few_events_start_no_task(spark, both, monkeypatch):
    """Few events, by the files' own counts, are read in the driver; more, in number or bytes, are read by Spark's
    tasks.
    """
    asked = f"SELECT n, data FROM esdb.`{both}` WHERE type = 'cart'"
    expected = answer(spark.sql(asked.replace(f"esdb.`{both}`", "parquet_events")))
    count = len(expected)
    few = spark_sql.FEW_BYTES
    for events, held, name in (
        (count, few, "LocalTableScan"), (count - 1, few, "BatchScan"), (count, 500, "BatchScan")
    ):  # fmt: skip
        monkeypatch.setattr(spark_sql, "FEW_EVENTS", events)
        monkeypatch.setattr(spark_sql, "FEW_BYTES", held)
        assert name in explained(spark, asked)[1]
        assert answer(esformat.spark.sql(spark, asked)) == expected


FIGURES = {
    "SELECT count(*), max(timestamp) AS last, MIN(Timestamp) FROM EVENTS": True,
    "SELECT count(space), count(grouping) FROM EVENTS": True,
    "SELECT max(timestamp), max(timestamp), min(space), max(space), count(*) FROM EVENTS WHERE space = 's1'": True,
    "SELECT count(n), max(n), min(price), max(data), min(type), max(day), max(naive), max(ok) FROM EVENTS": True,
    "SELECT count(*), max(n), max(type), min(space) FROM EVENTS WHERE type = 'cart' AND space = 'nobody'": True,
    "SELECT count(*), max(timestamp) FROM (SELECT * FROM EVENTS WHERE type = 'cart' AND n > 0)": True,
    "SELECT max(timestamp) - min(timestamp) FROM EVENTS": False,
    "SELECT max(x), min(x) FROM EVENTS": False,  # for Spark, NaN is the largest number
    "SELECT count(*), max(timestamp) FROM EVENTS WHERE x > 0": False,
    "SELECT count(DISTINCT n), max(n) FROM EVENTS": False,
    "SELECT count(*) FILTER (WHERE n > 0) FROM EVENTS": False,
    "SELECT max(timestamp) FROM EVENTS GROUP BY space": False,
    "SELECT max(timestamp) FROM EVENTS WHERE n > (SELECT avg(n) FROM EVENTS)": False,
    "SELECT max(n) FROM (SELECT n FROM EVENTS LIMIT 100000)": False,
    "SELECT sum(n), max(n) FROM EVENTS": False,
}


@pytest.mark.parametrize("asked", share_of(FIGURES, 5))
def test_figures(spark, both, asked):
    """One row of counts and extremes, from the files' facts or from few events, is computed without Spark's
    aggregation.
    """
    ours = esformat.spark.sql(spark, asked.replace("EVENTS", f"esdb.`{both}`"))
    expected = spark.sql(asked.replace("EVENTS", "parquet_events"))
    assert (answer(ours), ours.columns, ours.dtypes) == (answer(expected), expected.columns, expected.dtypes)
    _, plan = explained(spark, asked.replace("EVENTS", f"esdb.`{both}`"))
    assert ("Aggregate" not in plan) == FIGURES[asked]


def test_times_of_many_events_read_none(spark, both, monkeypatch):
    """If there are more events than a driver reads, the first and last time come from the files' facts."""
    monkeypatch.setattr(spark_sql, "FEW_EVENTS", 0)
    asked = f"SELECT max(timestamp), count(*), min(timestamp) FROM esdb.`{both}`"
    assert "Aggregate" not in explained(spark, asked)[1]
    times = sorted(row["timestamp"] for row in events().to_pylist())
    assert esformat.spark.sql(spark, f"{asked} LIMIT 5").collect() == [
        (times[-1].replace(tzinfo=None), COUNT, times[0].replace(tzinfo=None))
    ]
    assert "Aggregate" in explained(spark, asked.replace("max(timestamp)", "max(n)"))[1]


@long
def test_stand_ins_are_kept(spark, both, monkeypatch):
    """Stand-ins are reused: at most as many exist for one set of columns as one query names. Their names are dropped
    with each query.
    """
    made = []
    one = stand_ins._made
    monkeypatch.setattr(stand_ins, "_made", lambda *each: made.append(each) or one(*each))
    twice = f"SELECT count(*) FROM esdb.`{both}` a JOIN esdb.`{both}/a.esdb` b ON a.n = b.n AND a.type = b.type"
    expected = spark.sql(
        "SELECT count(*) FROM parquet_events a JOIN (SELECT * FROM parquet_events ORDER BY timestamp LIMIT 250) b "
        "ON a.n = b.n AND a.type = b.type"
    ).collect()
    assert esformat.spark.sql(spark, twice).collect() == expected
    few = len(made)
    assert few <= 2
    assert esformat.spark.sql(spark, twice).collect() == expected
    assert esformat.spark.sql(spark, f"SELECT n FROM esdb.`{both}` WHERE n = 3").count() > 0
    assert len(made) == few
    assert not [name for name in spark.catalog.listTables() if name.name.startswith("_esdb")]


@long
def test_names_elsewhere(spark, both):
    """String literals, comments, and names that the query defines stay unchanged; several sources are kept apart."""
    asked = f"""-- esdb.`nowhere`
        WITH events_view AS (SELECT 'esdb.`{both}`' AS text)
        SELECT text, (SELECT count(*) FROM esdb.`{both}/a.esdb`), (SELECT count(*) FROM ESDB.`{both}/b.esdb`)
        FROM events_view /* esdb.`nowhere` */"""
    esformat.spark.view(spark, "events_view", str(both))
    assert esformat.spark.sql(spark, asked).collect() == [(f"esdb.`{both}`", 250, 150)]
    assert esformat.spark.sql(spark, "SELECT 1 AS one").collect() == [(1,)]
    assert not [name for name in spark.catalog.listTables() if name.name.startswith("_esdb")]
    with pytest.raises(UsageError, match=r"no \.esdb file"):
        esformat.spark.sql(spark, f"SELECT * FROM esdb.`{both}/*.none`")


@long
def test_other_sources(spark, both):
    """Files of other formats, named in the same way, are read by Spark."""
    asked = (
        f"SELECT count(*) FROM parquet.`{both}/events.parquet` p JOIN esdb.`{both}` e USING (timestamp) WHERE p.n = 3"
    )
    assert (
        esformat.spark.sql(spark, asked).collect()
        == spark.sql("SELECT count(*) FROM parquet_events WHERE n = 3").collect()
    )


def test_file_path(spark, both):
    """The file path column exists if the query names it."""
    asked = f"SELECT _file_path, count(*) FROM esdb.`{both}` GROUP BY 1 ORDER BY 1"
    assert esformat.spark.sql(spark, asked).collect() == [(f"{both}/a.esdb", 250), (f"{both}/b.esdb", 150)]


@long
def test_view_keeps_its_options(spark, both):
    """The condition of a view applies to every query, in addition to the query's own."""
    esformat.spark.view(spark, "some", str(both), where="n > 0 OR n < -3", pathGlobFilter="a*")
    asked = "SELECT count(*) FROM some WHERE type = 'page' OR type = 'cart'"
    lines, _ = explained(spark, asked)
    assert lines == ["some: columns type; where (type = 'page' OR type = 'cart')"]
    esformat.spark.view(spark, "few", str(both), limit=3)
    assert esformat.spark.sql(spark, "SELECT count(*) FROM few").collect() == [(3,)]
    kept = sum(
        1 for row in events().slice(0, 250).to_pylist()
        if row["n"] is not None and (row["n"] > 0 or row["n"] < -3) and row["type"] in ("page", "cart")
    )  # fmt: skip
    assert kept
    assert esformat.spark.sql(spark, asked).collect() == [(kept,)] == spark.sql(asked).collect()


@long
def test_catalog_views(spark, tmp_path):
    """A view of a catalog's topic also reads only what the query needs."""
    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        catalog.create_topic("clicks", indexes=["type"]).append(events())
    aggregator.spark.read(spark, str(tmp_path / "data"), "clicks").createOrReplaceTempView("topic")
    asked = "SELECT n, count(*) FROM topic WHERE type = 'cart' AND timestamp < '2026-03-29' GROUP BY n"
    lines, _ = explained(spark, asked)
    assert lines[0].startswith("topic: columns timestamp, n; where ")
    expected = answer(spark.sql(asked.replace("topic", "parquet_events")))
    assert answer(esformat.spark.sql(spark, asked)) == expected
    assert esformat.spark.sql(spark, "SELECT count(*) FROM topic").collect() == [(COUNT,)]


@long
def test_tables(spark, both, tmp_path):
    """A table USING esdb is read through `esformat.spark.sql`; if Spark cannot do something with it, the message
    suggests an alternative.
    """
    spark.sql(f"CREATE TABLE held USING esdb LOCATION '{both}'")
    try:
        assert esformat.spark.sql(spark, "SELECT count(*) FROM held WHERE space = 's1'").collect() == [(57,)]
        lines, _ = explained(spark, "SELECT max(n) FROM default.held WHERE type = 'cart'")
        assert lines == ["default.held: columns n; where type = 'cart'"]
        with pytest.raises(Exception, match=r"esformat\.spark\.sql\(spark"):
            spark.sql("SELECT * FROM held").count()
        with pytest.raises(Exception, match=r"esformat\.spark\.write\(df, path\)"):
            spark.table("parquet_events").write.insertInto("held")
    finally:
        spark.sql("DROP TABLE held")
    with pytest.raises(Exception, match=r"esformat\.spark\.write\(df, path\)"):
        spark.sql(f"CREATE TABLE made USING esdb LOCATION '{tmp_path}/made' AS SELECT * FROM parquet_events")
    with pytest.raises(Exception, match=r"esformat\.spark\.write\(df, path\)"):
        spark.table("parquet_events").write.format("esdb").saveAsTable("made")
    assert not spark.catalog.tableExists("made")
    esformat.spark.sql(
        spark,
        f"CREATE TABLE parted USING parquet LOCATION '{tmp_path}/p' AS SELECT n, type FROM esdb.`{both}` WHERE n = 3",
    )
    copied = spark.table("parted").count()
    spark.sql("DROP TABLE parted")
    assert copied == spark.sql("SELECT * FROM parquet_events WHERE n = 3").count()
