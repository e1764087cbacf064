"""Topics and streams as SQL tables: existing events, sealed or not, at one moment."""

from __future__ import annotations

import datetime as dt

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

import aggregator
import esformat
from aggregator.sql import tags_of

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def events(first: int, count: int, *, wide: bool) -> pa.Table:
    """Events of which later ones have one more column."""
    numbers = range(first, first + count)
    types = ["page", "purchase", None]
    columns = {
        "space": [f"user-{n * 31 % 97 % 12}" for n in numbers],
        "grouping": ["" if n % 3 else "web" for n in numbers],
        "timestamp": [START + dt.timedelta(seconds=n * 7919 % 86_400, microseconds=n) for n in numbers],
        "data": [b"x%d" % n for n in numbers],
        "type": [types[n % 7 % 3] for n in numbers],
    }
    if wide:
        columns["n"] = [n % 1000 for n in numbers]
    return pa.table(columns)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    """A topic in three segments of two partitions and in memory, with one space erased; and streams."""
    with aggregator.open(tmp_path_factory.mktemp("sql") / "data") as catalog:
        topic = catalog.create_topic("clicks", indexes=["type"])
        topic.append(events(0, 3000, wide=False))
        topic.append(events(3000, 2000, wide=True), partition="other")
        topic.append(pa.table({"space": ["gone"], "timestamp": [START], "type": ["page"]}))
        catalog.seal()
        topic.append(events(5000, 3000, wide=True))
        catalog.seal()
        topic.append(events(8000, 500, wide=True))
        topic.erase("gone")
        catalog.write({"app": "shop", "host": "h 1"}, [{"msg": "one"}, {"msg": "two"}])
        catalog.write({"app": "bank"}, [{"msg": "three"}])
        yield catalog


@pytest.fixture(scope="module")
def everything() -> pa.Table:
    """The topic's events, built without the catalog."""
    pieces = [
        events(0, 3000, wide=False),
        *(events(n, c, wide=True) for n, c in ((3000, 2000), (5000, 3000), (8000, 500))),
    ]
    return pa.concat_tables(pieces, promote_options="default")


def same(catalog, everything, statement: str) -> None:
    rows = catalog.sql(statement)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("clicks", everything)
        relation = connection.sql(statement)
        expected = tuple(relation.columns), sorted(relation.fetchall(), key=repr)
    assert (rows.column_names, sorted(rows.fetchall(), key=repr)) == expected


WHERE = st.lists(
    st.sampled_from(
        [
            "space = 'user-3'", "space = 'gone'", "space LIKE 'user-1%'", "type = 'purchase'", "type IS NULL",
            "n > 500", "type LIKE 'pa%'", "grouping = 'web'", "timestamp < '2026-03-01 01:00:00'",
            "space IN ('user-1', 'user-2')", "n IS NULL", "decode(data) LIKE '%77%'", "contains(decode(data), 'x12')",
            "type = 'page' AND decode(data) = 'x42'",
        ]
    ),
    max_size=2,
).map(lambda some: f"WHERE {' AND '.join(some)}" if some else "")  # fmt: skip
SHOWN = st.lists(
    st.sampled_from(["count(*)", "count(type)", "min(timestamp)", "max(timestamp)", "sum(n)", "count(DISTINCT space)"]),
    min_size=1, max_size=3, unique=True,
)  # fmt: skip


@examples(100)
@given(where=WHERE, shown=SHOWN, key=st.sampled_from(["", "type", "space", "grouping"]))
def test_aggregates(catalog, everything, where, shown, key):
    """Aggregates from segments, indexes and memory equal those over all events, without erased ones."""
    keys = [key] if key else []
    grouped = f"GROUP BY {key}" if key else ""
    same(catalog, everything, f"SELECT {', '.join([*keys, *shown])} FROM clicks {where} {grouped}")


@examples(50)
@given(where=WHERE, way=st.sampled_from(["DESC", "ASC"]), limit=st.integers(1, 20))
def test_newest(catalog, everything, where, way, limit):
    shown = "space, grouping, timestamp, data, type, n"
    same(catalog, everything, f"SELECT {shown} FROM clicks {where} ORDER BY timestamp {way} LIMIT {limit}")


def test_one_moment(catalog):
    """A statement sees a topic as of its start, however it is answered; the next one sees later events."""
    topic = catalog.create_topic("growing", indexes=["type"])
    topic.append([{"space": "a", "timestamp": 1, "type": "x"}])
    counted, summed = (
        catalog.sql(f"SELECT {shown} FROM growing") for shown in ("count(*)", "count(space), max(timestamp)")
    )
    topic.append([{"space": "b", "timestamp": 2, "type": None}])
    assert counted.fetchall() == [(1,)]
    assert summed.fetchall()[0][0] == 1
    assert counted.fetchall() == [(2,)]  # executed again
    assert sorted(catalog.sql("SELECT type, count(*) FROM growing GROUP BY 1"), key=repr) == [("x", 1), (None, 1)]


def test_names_that_differ_in_capitals(catalog):
    """Topics may have any name; two that SQL cannot distinguish are never confused."""
    for name in ('a "b" c', "Twins", "twins"):
        catalog.create_topic(name).append([{"space": "a", "timestamp": 1, "data": name.encode()}])
    assert catalog.sql('SELECT decode(max(data)) FROM "a ""b"" c"').fetchall() == [('a "b" c',)]
    for name in ("Twins", "twins"):
        assert catalog.sql(f"SELECT decode(max(data)) FROM {name}").fetchall() == [(name,)]
    with pytest.raises(esformat.UsageError, match="that differ only in case"):
        catalog.sql("SELECT a.data, b.data FROM Twins a, twins b")
    assert catalog.sql("SELECT count(a.space) FROM CLICKS a JOIN clicks b USING (timestamp)").fetchall()[0][0] >= 8500


def test_an_index_of_several_types(catalog):
    """A column whose type changed is read in the common type, in conditions and in counts."""
    topic = catalog.create_topic("mixed", pa.schema([("code", pa.int64())]), indexes=["code"])
    topic.append([{"space": "a", "timestamp": 1, "code": 7}])
    catalog.seal("mixed")
    topic.append([{"space": "a", "timestamp": 2, "code": "seven"}])
    kind = topic.scan().schema.field("code").type
    rows = catalog.sql("SELECT code, count(*) FROM mixed GROUP BY 1 ORDER BY 1").to_table()
    assert rows.schema.field("code").type == kind
    assert rows.column(1).to_pylist() == [1, 1]
    assert catalog.sql("SELECT max(timestamp) FROM mixed WHERE code::VARCHAR = '7'").to_table().num_rows == 1


def test_streams(catalog):
    """Records of streams have their tags as a map."""
    asked = "SELECT tags['app'], tags['host'], decode(data) FROM streams WHERE tags['app'] = 'shop' ORDER BY timestamp"
    assert catalog.sql(asked).fetchall() == [("shop", "h 1", "one"), ("shop", "h 1", "two")]
    assert catalog.sql("SELECT count(*) FROM streams").fetchall() == [(3,)]
    assert catalog.sql("SELECT count(*) FROM LOGS").fetchall() == [(3,)]


def test_tags_of_spaces():
    spaces = pa.array(["{app=x}", "ada", "{app=x}", "{broken"])
    assert tags_of(spaces).to_pylist() == [[("app", "x")], None, [("app", "x")], None]


def test_readers_and_files(catalog, tmp_path):
    """A reader in another process gives the same answers; files are tables, too."""
    (tmp_path / "users.csv").write_text("space,city\nuser-1,Lund\n")
    with aggregator.open(catalog.path, read_only=True) as reader:
        joined = f"SELECT city, count(*) FROM clicks JOIN '{tmp_path}/users.csv' u USING (space) GROUP BY 1"
        assert reader.sql(joined).fetchall() == catalog.sql(joined).fetchall()
        assert reader.sql(joined).fetchall()[0][0] == "Lund"


def test_explain(catalog):
    lines = [
        value
        for key, value in catalog.sql("EXPLAIN SELECT max(n) FROM clicks WHERE space = 'user-1'")
        if key == "blocks"
    ]
    assert len(lines) == 1
    assert lines[0].startswith("clicks: ")
    assert lines[0].endswith(" blocks, columns space, n")


def test_codes_of_segments_are_counted(tmp_path):
    """Combinations are counted by segment codes, in memory event by event, and not if events are hidden."""
    with aggregator.open(tmp_path) as catalog:
        topic = catalog.create_topic("clicks", indexes=["type", "site"])
        tables = [
            table.append_column("site", pa.array([f"site-{n % 4}" for n in range(len(table))]))
            for table in (events(0, 3000, wide=False), events(3000, 2000, wide=True), events(5000, 500, wide=True))
        ]
        topic.append(tables[0])
        topic.append(tables[1], partition="other")
        catalog.seal()
        topic.append(tables[2])
        statement = "SELECT type, site, count(*), min(timestamp), max(timestamp) FROM clicks GROUP BY ALL"

        def lines() -> list[str]:
            return [value for key, value in catalog.sql(f"EXPLAIN {statement}") if key == "blocks"]

        assert lines()[0].startswith("clicks: codes alone, ")
        same(catalog, pa.concat_tables(tables, promote_options="default"), statement)
        topic.erase("user-3")
        assert "codes" not in lines()[0]
        left = [table.filter(pc.not_equal(table["space"], "user-3")) for table in tables]
        same(catalog, pa.concat_tables(left, promote_options="default"), statement)


def test_plans_know_how_many_events_there_are(catalog):
    """Plans contain the number of events without counting erased ones exactly: 8,500 or 8,501."""
    plan = dict(catalog.sql("EXPLAIN SELECT max(n) FROM clicks").fetchall())["physical_plan"]
    assert "~8,501 rows" in plan or "~8,500 rows" in plan


def test_tables_are_listed(tmp_path):
    """Topics are listed by name, and `streams` if there are any; the error for another name lists them."""
    with aggregator.open(tmp_path / "data") as catalog:
        assert catalog.sql("SHOW TABLES").fetchall() == []
        catalog.create_topic("Clicks")
        catalog.create_topic("buys")
        rows = catalog.sql("show tables;")
        assert (rows.column_names, rows.fetchall()) == (("name",), [("Clicks",), ("buys",)])
        catalog.write({"app": "web"}, [{"msg": "hello"}])
        assert catalog.sql("SHOW ALL TABLES").fetchall() == [("Clicks",), ("buys",), ("logs",), ("streams",)]
        with pytest.raises(esformat.UsageError, match=r"no table 'nope'.*; here: Clicks, buys, logs, streams$"):
            catalog.sql("FROM nope")
        for number in range(9):
            catalog.create_topic(f"topic-{number}")
        with pytest.raises(esformat.UsageError, match=r"here: Clicks, .*, topic-4, … \(SHOW TABLES lists all\)"):
            catalog.sql("FROM nope")


def test_streams_of_another_topic(tmp_path):
    """The error for `streams` says which topic it means and which topics may contain streams."""
    with aggregator.open(tmp_path / "data") as catalog:
        catalog.write({"app": "web"}, [{"msg": "hello"}], topic="web")
        told = "no table 'streams'.* streams for those of the topic 'logs'; .* in the table of its name; .*here: web$"
        with pytest.raises(esformat.UsageError, match=told):
            catalog.sql("FROM streams")
        assert catalog.sql("SELECT space FROM web").fetchall() == [("{app=web}",)]


def test_wrong_statements(catalog):
    for statement, said in (("FROM nope", "no table 'nope'"), ("DROP TABLE clicks", "not DROP"), ("SELEC", "syntax")):
        with pytest.raises(esformat.UsageError, match=said):
            catalog.sql(statement)


def test_files_go_when_answers_do(catalog):
    """Only answers in progress hold a snapshot's files."""
    pins = catalog._backend.pins
    before = sum(pins._counts.values())
    rows = catalog.sql("SELECT max(n) FROM clicks")
    assert sum(pins._counts.values()) == before + 1
    rows.fetchall()
    until(lambda: sum(pins._counts.values()) == before)  # a DuckDB thread may be the last to release them


def test_closed_catalogs(tmp_path):
    catalog = aggregator.open(tmp_path / "data")
    catalog.create_topic("t")
    catalog.sql("FROM t").fetchall()
    catalog.close()
    with pytest.raises(esformat.ClosedError):
        catalog.sql("FROM t")
