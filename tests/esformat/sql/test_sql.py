"""SQL statements have the results of DuckDB on Parquet of the same events, and read no more than they need."""

from __future__ import annotations

import datetime as dt
import pickle
import random
import threading

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import examples, long, share_of
from hypothesis import given
from hypothesis import strategies as st
from odd_texts import texts

import esformat
from esformat.read import newest, tally
from esformat.sql import rows as rows_module
from esformat.sql import session

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
SPACES = ["a", "ab", "a%", "a_c", "a'b", "aé", "a\U0010ffff", "b", "customer-1", "customer-10", "customer-2", "é", "Ab"]
EVENTS = 25_000


def events(first: int = 0) -> pa.Table:
    """Events with distinct times, an index with nulls, and columns without an index."""
    numbers = range(first, first + EVENTS)
    types = ["page", "purchase", "pu", None, "refund"]
    return pa.table(
        {
            "space": [SPACES[n * 31 % 97 % len(SPACES)] for n in numbers],
            "grouping": ["" if n % 3 else "web" for n in numbers],
            "timestamp": pa.array(
                [START + dt.timedelta(seconds=n * 7919 % 86_400, microseconds=n) for n in numbers],
                pa.timestamp("us", "UTC"),
            ),
            "data": [b'{"url": "/%d"}' % (n % 50) for n in numbers],
            "type": [types[n * 31 % 17 % 5] for n in numbers],
            "paid": pa.array([None if n % 11 == 0 else n % 2 == 0 for n in numbers]),
            "site": [None if n % 7 == 0 else f"site-{n % 4}" for n in numbers],
            "n": pa.array([n % 1000 for n in numbers], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files of different events, and Parquet of each and of both."""
    folder = tmp_path_factory.mktemp("sql")
    for name, first in (("one", 0), ("two", EVENTS)):
        table = events(first)
        with esformat.create(folder / f"{name}.esdb", indexes=["type", "paid", "site"]) as writer:
            writer.add_table(table)
        pq.write_table(table, folder / f"{name}.parquet")
    pq.write_table(pa.concat_tables([events(), events(EVENTS)]), folder / "both.parquet")
    pq.write_table(
        pa.table({"space": ["a", "customer-2", None, "none"], "rank": [1, 2, 3, 4]}), folder / "dims.parquet"
    )
    return folder


@pytest.fixture(scope="module")
def texts_opened(tmp_path_factory):
    """A segment and a collection of the events with texts, each with Parquet."""
    folder = tmp_path_factory.mktemp("texts")
    for name, first in (("one", 0), ("two", 6000)):
        with esformat.create(folder / f"{name}.esdb", templates=True) as writer:
            writer.add_table(texts(first))
        pq.write_table(texts(first), folder / f"{name}.parquet")
    pq.write_table(pa.concat_tables([texts(), texts(6000)]), folder / "both.parquet")
    with (
        esformat.open(folder / "one.esdb") as one,
        esformat.open_many([folder / "one.esdb", folder / "two.esdb"]) as both,
    ):
        yield folder, {"one": one, "both": both}


TEXTS = st.sampled_from(
    ["/cart", "/list", "cart", "/é", "a%b_c", "17", "", "\\", '"/cart"', '["/cart"]', "user 7 ", "no such"]
)
PAYLOAD = st.sampled_from(["decode(data)", "DECODE(e.Data)", "msg", "e.MSG"])
CONDITIONS = st.one_of(
    st.builds(lambda of, text: f"{of} LIKE '%{text}%'", PAYLOAD, TEXTS),
    st.builds(lambda of, text: f"{of} LIKE '{{\"url%{text}_,%'", PAYLOAD, TEXTS),
    st.builds(lambda name, of, text: f"{name}({of}, '{text}')",
              st.sampled_from(["contains", "starts_with", "suffix", "prefix"]), PAYLOAD, TEXTS),
    st.builds(lambda of, text: f"{of} = '{text}'", PAYLOAD, TEXTS),
    st.builds(lambda one, two: f"decode(data)->>'$.url' IN ('{one}', '{two}')", TEXTS, TEXTS),
    st.builds(lambda path, text: f"json_extract_string(decode(data), '{path}') = '{text}'",
              st.sampled_from(["$.url", "url", "$.n", "$.sub.url", "$[0]", "$"]), TEXTS),
    st.builds(lambda text: f"'{text}' = decode(data)->>'$.url'", TEXTS),
    st.sampled_from(["msg IS NULL", "space = 's3'", "decode(data) NOT LIKE '%/cart%'", "msg ILIKE '%USER 7 %'"]),
)  # fmt: skip


@examples(150)
@given(
    which=st.sampled_from(["one", "both"]),
    conditions=st.lists(CONDITIONS, min_size=1, max_size=3),
    joined=st.sampled_from([" AND ", " AND ", " OR "]),
    shown=st.sampled_from(["count(*)", "space, timestamp, msg", "decode(data), space"]),
)
def test_texts_that_are_asked_for(texts_opened, which, conditions, joined, shown):
    """Conditions on texts have DuckDB's results, whatever templates exclude."""
    folder, opened = texts_opened
    same(folder, opened, which, f"SELECT {shown} FROM events e WHERE {joined.join(conditions)}")


@pytest.mark.parametrize("which", ["one", "both"])
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) = 6000 OR count(*) = 12000 FROM (SELECT * FROM events WHERE msg LIKE '%user%' OR msg IS NULL)",
        "SELECT count(*), (SELECT count(*) FROM events WHERE msg IS NULL) FROM events WHERE msg LIKE '%user 7 %'",
        "SELECT count(*) FROM events WHERE decode(data)->>'$[*]' = ' [/cart]'",
        "SELECT count(*) FROM events WHERE decode(data)->>'$..url' IN (' [/cart]', ' []')",
        "SELECT count(*) FROM events WHERE msg.starts_with('user 7 ') AND msg.contains('/cart')",
        "SELECT count(*) FROM events JOIN (SELECT 's3' AS space) USING (space) WHERE msg LIKE '%user 7 %'",
    ],
)
def test_texts_of_other_statements(texts_opened, which, statement):
    folder, opened = texts_opened
    same(folder, opened, which, statement)


def test_texts_and_all_events(texts_opened):
    """Rows that one condition excludes are available to other parts of the statement and to the next statement."""
    _, opened = texts_opened
    ask = opened["one"].sql
    some = "SELECT count(*) FROM events WHERE msg LIKE '%user 7 %'"
    every = "SELECT count(*) FROM Events WHERE octet_length(data) > 0"
    (few,) = ask(some).fetchall()[0]
    assert 0 < few < 200
    asked = [every, every, some, some, every, some]
    assert [ask(each).fetchall()[0][0] for each in asked] == [6000, 6000, few, few, 6000, few]
    for named in ("query_table('events')", "query('FROM events')"):
        assert ask(some.replace("count(*)", f"count(*), (SELECT count(*) FROM {named})")).fetchall() == [(few, 6000)]
    sampled = [ask(f"{some} USING SAMPLE 1 ROWS").fetchall()[0][0] for _ in range(5)]
    assert sum(sampled) < 5


@pytest.mark.parametrize(
    ("condition", "most"),
    [("decode(data) LIKE '%/nowhere%'", 0), ("decode(data)->>'$.url' = '/list'", 3000), ("msg LIKE '%user 7 %'", 200)],
)
def test_texts_rule_out_events(texts_opened, monkeypatch, condition, most):
    """Conditions on texts pass few other events to DuckDB."""
    _, opened = texts_opened
    given = []
    batches = esformat.read.dataset.SegmentEvents.batches

    def counted(self, *arguments, **options):
        for batch in batches(self, *arguments, **options):
            given.append(len(batch))
            yield batch

    monkeypatch.setattr(esformat.read.dataset.SegmentEvents, "batches", counted)
    (count,) = opened["one"].sql(f"SELECT count(*) FROM events WHERE {condition}").fetchall()[0]
    assert count <= sum(given) <= most


@pytest.fixture(scope="module")
def opened(folder):
    """A segment and a collection, each with Parquet of the same events."""
    with (
        esformat.open(folder / "one.esdb") as one,
        esformat.open_many([folder / "one.esdb", folder / "two.esdb"]) as both,
    ):
        yield {"one": one, "both": both}


def plain(folder, which: str, statement: str, parameters=None):
    """DuckDB's result on Parquet."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW events AS FROM '{folder / which}.parquet'")
        relation = connection.sql(statement, params=parameters)
        return tuple(relation.columns), sorted(relation.fetchall(), key=repr)


def same(folder, opened, which: str, statement: str, parameters=None) -> None:
    expected = plain(folder, which, statement, parameters)
    for _ in range(3):  # parsed, repeated, and perhaps answered from a cache
        rows = opened[which].sql(statement, parameters)
        assert (rows.column_names, sorted(rows.fetchall(), key=repr)) == expected


LISTED = f"space IN ('a', 'é', {', '.join(map(repr, SPACES[8:] * 5))})"
CONDITIONS = st.sampled_from(
    [
        "space = 'a'", "'customer-1' = space", "space LIKE 'a%'", "space LIKE 'customer-1%'", "space LIKE 'a_c%'",
        "space LIKE '%b'", "space LIKE 'a\U0010ffff%'", "space LIKE 'a''%'", "space NOT LIKE 'a%'", "space ILIKE 'A%'",
        "starts_with(space, 'customer')", "prefix(space, 'none')", "space IN ('a', 'b', 'none')", "space >= 'b'",
        "grouping = 'web'", "grouping LIKE 'w%'", "type = 'purchase'", "type = 'none'", "type LIKE 'pu%'",
        "type LIKE 'none%'", "type IS NULL", "type IS NOT NULL", "type <> 'page'", "type IN ('pu', 'refund')",
        "(type = 'pu' OR type IS NULL)", "paid", "NOT paid", "paid IS NULL", "n > 500", "n % 7 = 3",
        "length(space) > 2", "timestamp >= '2026-03-01 12:00:00'", "timestamp < '2026-03-01 00:10:00'",
        "decode(data) LIKE '%/4%'", "timestamp BETWEEN '2026-03-01 05:00:00' AND '2026-03-01 05:05:00'",
        "upper(type) = 'PAGE'", LISTED, f"NOT {LISTED}", "space > 'a' AND space <= 'customer-10'", "paid = true",
        "type = 'page' AND site = 'site-1'", "timestamp = '2026-03-01 02:11:59.000001'", "type LIKE 'p%e'",
        "(space = 'a' OR grouping = 'web')", "site <> 'site-2'", "type IN ('page', NULL)", "space = NULL",
    ]
)  # fmt: skip
WHERE = st.lists(CONDITIONS, max_size=3).map(lambda some: f"WHERE {' AND '.join(some)}" if some else "")
AGGREGATES = st.lists(
    st.sampled_from(
        [
            "count(*)", "count(*) AS many", "count(type)", "count(DISTINCT type)", "min(type)", "max(space)",
            "min(timestamp)", "max(timestamp) AS latest", "count(*) FILTER (WHERE type = 'page')", "sum(n)", "avg(n)",
            "count(*) * 2", "count(DISTINCT space)", "max(length(space))", "count(paid)", "min(paid)",
            "count(timestamp)", "count(DISTINCT timestamp)", "count(space) + 1 AS more", "min(n) FILTER (WHERE paid)",
            "max(upper(type))",
        ]
    ),
    min_size=1, max_size=3, unique=True,
)  # fmt: skip
GROUPS = st.lists(
    st.sampled_from(["type", "space", "grouping", "paid", "site", "upper(type)", "n % 3", "TYPE"]),
    max_size=2,
    unique=True,
)
HAVING = st.sampled_from(["", "", "", "HAVING count(*) > 100", "HAVING count(type) > 10 OR min(type) IS NULL"])


@examples(200)
@given(which=st.sampled_from(["one", "both"]), where=WHERE, aggregates=AGGREGATES, groups=GROUPS, having=HAVING)
def test_aggregates(folder, opened, which, where, aggregates, groups, having):
    """Results from counts, statistics or fewer blocks equal those from all rows."""
    keys = ", ".join(groups)
    grouped = f"GROUP BY {keys} {having}" if groups else ""
    shown = ", ".join([*groups, *aggregates])
    same(folder, opened, which, f"SELECT {shown} FROM events {where} {grouped}")


@examples(100)
@given(
    which=st.sampled_from(["one", "both"]), where=WHERE, way=st.sampled_from(["DESC", "ASC", ""]),
    limit=st.integers(0, 30), offset=st.integers(0, 20),
    shown=st.sampled_from(["*", "timestamp, space", "e.timestamp AS at, type", "n, timestamp::VARCHAR AS timestamp"]),
)  # fmt: skip
def test_newest(folder, opened, which, where, way, limit, offset, shown):
    """The newest and oldest rows are right, also if a name has another meaning."""
    order = f"ORDER BY timestamp {way} LIMIT {limit} OFFSET {offset}"
    same(folder, opened, which, f"SELECT {shown} FROM events e {where} {order}")


STATEMENTS = [
    "SELECT * FROM events WHERE space = 'b'",
    "SELECT DISTINCT type FROM events",
    "SELECT DISTINCT ON (type) type FROM events",
    "SELECT type FROM events GROUP BY ALL",
    "SELECT type, count(*) FROM events GROUP BY ROLLUP (type)",
    "SELECT type AS space, count(*) FROM events GROUP BY type",
    "SELECT count(*) AS n FROM events HAVING count(*) > 5 ORDER BY n",
    "SELECT count(*) FROM events TABLESAMPLE 100%",
    "SELECT count(*) FROM (SELECT * FROM events WHERE space LIKE 'a%')",
    "SELECT count(*) FROM events a, events b WHERE a.space LIKE 'customer-1%' AND a.timestamp = b.timestamp",
    "WITH events AS (SELECT 'x' AS space, 'page' AS type) SELECT type, count(*) FROM events GROUP BY 1",
    "WITH t AS (FROM events WHERE type LIKE 'p%') SELECT max(timestamp), count(*) FROM t",
    "SELECT count(*) FROM events UNION ALL SELECT count(*) FROM events WHERE type = 'pu'",
    "SELECT (SELECT count(*) FROM events), type FROM events GROUP BY type",
    "SELECT type, row_number() OVER (ORDER BY type) FROM events GROUP BY type",
    "SELECT count(*) OVER (), timestamp FROM events ORDER BY timestamp DESC LIMIT 3",
    "SELECT sum(n), max(timestamp) FROM events ORDER BY max(timestamp) DESC LIMIT 3",
    "SELECT string_agg(DISTINCT type, ',' ORDER BY type) FROM events",
    "SELECT count(*) FROM events WHERE (SELECT true)",
    "SELECT count(DISTINCT (type, space)) FROM events",
    "SELECT d.rank, count(*), max(e.timestamp) FROM events e JOIN '{folder}/dims.parquet' d USING (space) GROUP BY 1",
    "SELECT count(*) FROM '{folder}/dims.parquet' d JOIN events e ON e.space = d.space WHERE d.rank > 1",
    "SELECT count(*) FROM events e JOIN '{folder}/dims.parquet' d ON e.space = d.space AND d.rank = 1",
    "SELECT count(*), count(d.rank) FROM events e LEFT JOIN '{folder}/dims.parquet' d USING (space)",
    "SELECT count(*) FROM events JOIN '{folder}/dims.parquet' d ON n = rank WHERE d.space IS NOT NULL",
    "SELECT max(n), (SELECT count(n) FROM events) FROM events e JOIN '{folder}/dims.parquet' d ON e.space = d.space "
    "WHERE n < 500",
    "SELECT rank, count(*) FROM events JOIN '{folder}/dims.parquet' USING (space) GROUP BY 1",
    "SELECT count(*) FROM events SEMI JOIN '{folder}/dims.parquet' USING (space)",
    "SELECT space, count(*) FROM events WHERE space IN (SELECT space FROM '{folder}/dims.parquet') GROUP BY 1",
]


@pytest.mark.parametrize("statement", share_of(STATEMENTS, 2))
@pytest.mark.parametrize("which", [pytest.param("one", marks=long), "both"])
def test_statements(folder, opened, which, statement):
    same(folder, opened, which, statement.replace("{folder}", str(folder)))


def test_parameters(folder, opened):
    """Positional and named parameters work, also in rewritten statements."""
    same(folder, opened, "one", "SELECT count(*) FROM events WHERE type = ?", ["pu"])
    same(folder, opened, "one", "SELECT * FROM events WHERE n < $n ORDER BY timestamp DESC LIMIT 2", {"n": 3})


COUNTED = [
    "SELECT count(*) FROM events",
    "SELECT min(timestamp), max(timestamp), count(*) FROM events",
    "SELECT type, count(*) FROM events GROUP BY 1 ORDER BY 2 DESC",
    "SELECT count(*) FROM events WHERE type = 'purchase'",
    "SELECT count(*) FROM events WHERE space LIKE 'customer%'",
    "SELECT space, count(*) FROM events GROUP BY 1",
]


@pytest.mark.parametrize("statement", COUNTED)
def test_counts_read_no_event(folder, statement):
    """Counts that the directory, indexes and statistics contain are read from them alone."""
    source = esformat.CountingSource(esformat.FileSource(folder / "one.esdb"))
    with esformat.open(source) as segment:
        sizes = segment.info()["blocks"]
        opening = source.bytes_read
        segment.sql(statement).fetchall()
        read = source.bytes_read - opening
        assert read <= sum(facts["bytes"] for kind, facts in sizes.items() if kind != "data")
        (explained,) = [line for key, line in segment.sql(f"EXPLAIN {statement}") if key == "blocks"]
        assert "no block" in explained


TALLIED = [
    "SELECT type, site, count(*) FROM events GROUP BY ALL",
    "SELECT type, max(timestamp), min(timestamp), count(*) FROM events GROUP BY type",
    "SELECT count(*) FROM events WHERE type = 'pu' AND site = 'site-1'",
    "SELECT count(*) FILTER (WHERE type = 'pu') FROM events WHERE site IS NULL OR type IS NULL",
    "SELECT max(timestamp), count(DISTINCT type) FROM events WHERE type LIKE 'p%'",
]


@pytest.mark.parametrize("statement", TALLIED)
@pytest.mark.parametrize("which", [pytest.param("one", marks=long), "both"])
def test_codes_are_counted(folder, opened, which, statement):
    """Combinations of indexed values are counted by their codes, without decoding text."""
    assert blocks(opened[which], statement).startswith("events: codes alone, ")
    same(folder, opened, which, statement)
    same(folder, opened, which, statement)


def test_codes_are_counted_by_threads(folder, monkeypatch):
    """Many block groups are counted by several threads."""
    with esformat.open(folder / "one.esdb") as segment:
        dataset = segment.dataset()
        expected = dataset.tally(["type", "site"], "n", timed=True).to_pylist()
        threads = []
        counts = tally._counts
        monkeypatch.setattr(tally, "GROUP_BLOCKS", 1)
        monkeypatch.setattr(tally, "FEW_GROUPS", 2)
        monkeypatch.setattr(
            tally, "_counts", lambda *a, **b: threads.append(threading.current_thread()) or counts(*a, **b)
        )
        assert dataset.tally(["type", "site"], "n", timed=True).to_pylist() == expected
        assert len(threads) >= 2
        assert threading.main_thread() not in threads[1:]


def test_values_without_codes(tmp_path):
    """If some values have no codes, or there are too many combinations, rows are read."""
    count = 20_000
    table = pa.table(
        {
            "space": ["a"] * count, "timestamp": pa.array(range(count), pa.timestamp("us", "UTC")),
            "many": [f"{n:05d}" for n in range(count)], "few": ["x", "y"] * (count // 2),
            "digits": [str(n % 70) for n in range(count)], "more": [str(n % 149) for n in range(count)],
        }
    )  # fmt: skip
    pq.write_table(table, tmp_path / "file.parquet")
    with esformat.create(tmp_path / "file.esdb", indexes=["many", "few", "digits", "more"]) as writer:
        writer.add_table(table)
    with esformat.open(tmp_path / "file.esdb") as segment:
        for columns, tallied in (("many, few", False), ("digits, few", True), ("digits, more", False)):
            statement = f"SELECT {columns}, count(*) FROM events GROUP BY ALL"
            assert ("codes alone" in blocks(segment, statement)) == tallied, columns
            same(tmp_path, {"file": segment}, "file", statement)


def test_newest_reads_few_blocks(folder, monkeypatch):
    """If blocks differ in their times, the newest rows are read from the newest blocks alone."""
    (folder / "days").mkdir()
    with esformat.create(folder / "days" / "by-day.esdb") as writer:
        days = pa.array([START + dt.timedelta(minutes=n) for n in range(40_000)])
        spaces = [f"day-{n // 1440:03d}" for n in range(40_000)]
        writer.add_table(pa.table({"space": spaces, "timestamp": days, "data": [b"x"] * 40_000}))
    read = []
    times = newest._times
    monkeypatch.setattr(newest, "_times", lambda *given: read.append(1) or times(*given))
    with esformat.open(folder / "days" / "by-day.esdb") as segment:
        rows = segment.sql("SELECT timestamp FROM events ORDER BY timestamp DESC LIMIT 5").fetchall()
        assert [row[0] for row in rows] == [START + dt.timedelta(minutes=n) for n in range(39_999, 39_994, -1)]
        assert len(read) <= 2
        rows = segment.sql("SELECT timestamp FROM events ORDER BY timestamp LIMIT 5").fetchall()
        assert [row[0] for row in rows] == [START + dt.timedelta(minutes=n) for n in range(5)]


def blocks(segment, statement: str) -> str:
    return next(value for key, value in segment.sql(f"EXPLAIN {statement}") if key == "blocks")


def test_explain_counts_blocks(opened):
    """EXPLAIN shows the number of blocks to read and of all blocks, after all implied conditions."""
    segment = opened["one"]
    total = segment.info()["blocks"]["data"]["count"]
    assert blocks(segment, "SELECT max(n) FROM events") == f"events: {total} of {total} blocks, columns n"
    for condition in ("space = 'b'", "space LIKE 'customer-2%'", "starts_with(space, 'é')"):
        read = int(blocks(segment, f"SELECT max(n) FROM events WHERE {condition}").split()[1])
        assert 0 < read < total / 2, condition


def test_spaces_of_a_join_are_handed_down(folder, opened):
    joined = f"SELECT max(n) FROM events JOIN '{folder}/dims.parquet' d USING (space)"
    total = opened["one"].info()["blocks"]["data"]["count"]
    assert int(blocks(opened["one"], joined).split()[1]) < total


def test_a_joined_file_may_change(opened, tmp_path):
    """A repeated join finds what the other file contains now: other spaces, other columns, or nothing."""
    segment, dims = opened["one"], tmp_path / "dims.parquet"
    first, other = list(segment.spaces())[:2]
    joined = f"SELECT d.*, count(*) FROM events JOIN '{dims}' d USING (space) GROUP BY ALL ORDER BY ALL"
    for table in ({"space": [first]}, {"space": [first, other]}, {"space": [other], "rank": [7]}, {"space": [first]}):
        pq.write_table(pa.table(table), dims)
        for _ in range(2):
            rows = segment.sql(joined)
            assert rows.column_names == (*table, "count_star()")
            counts = [len(segment[space]) for space in table["space"]]
            others = zip(*table.values(), strict=True)
            assert rows.fetchall() == [(*row, count) for row, count in zip(others, counts, strict=True)]
    dims.unlink()
    with pytest.raises(OSError, match="No files found"):
        segment.sql(joined)


def test_a_join_begins_with_its_smaller_side(folder, opened):
    """DuckDB knows the number of events, and hashes the smaller table: the right one of the plan."""
    joined = f"SELECT max(n) FROM '{folder}/dims.parquet' d JOIN events USING (space)"
    for which, events in (("one", EVENTS), ("both", 2 * EVENTS)):
        plan = dict(opened[which].sql(f"EXPLAIN {joined}").fetchall())["physical_plan"]
        assert f"~{events:,} rows" in plan
        assert plan.index("Arrow Scan") < plan.index("Parquet Scan")


def test_a_prefix_reads_no_text(folder, opened):
    """A pattern that is only a prefix becomes a range, so that no text is read."""
    for condition in ("space LIKE 'customer-2%'", "starts_with(space, 'customer-2')", "space ^@ 'customer-2'"):
        assert blocks(opened["one"], f"SELECT max(n) FROM events WHERE {condition}").endswith(" columns n")
    for condition in ("space LIKE 'customer-%1'", "space LIKE 'customer-_%'", r"space LIKE 'a\%' ESCAPE '\'"):
        same(folder, opened, "one", f"SELECT space, n FROM events WHERE {condition}")


@pytest.mark.parametrize(
    "condition",
    [
        "space = 'b'",
        "space LIKE 'customer-2%'",
        "type = 'pu'",
        "type IN ('pu', 'x')",
        LISTED,
        "decode(data) LIKE '%/4%'",
    ],
)
def test_a_repeated_question_registers_no_table(folder, monkeypatch, condition):
    """Conditions that the directory, an index or templates answer need no table of their own each time."""
    statement = f"SELECT count(n), max(n) FROM events WHERE {condition}"
    with esformat.open(folder / "one.esdb") as segment:
        first = [segment.sql(statement).fetchall() for _ in range(2)]
        monkeypatch.setattr(session, "scanned", None)
        assert [segment.sql(statement).fetchall()] * 2 == first


def test_restricted_tables_take_turns(folder):
    """Statements that restrict a table in different ways, or not at all, may alternate."""
    others = "'a', 'ab', 'customer-10', " + ", ".join(["'none'"] * 20)
    statements = [
        f"SELECT count(n) FROM events WHERE {LISTED}",
        "SELECT count(n) FROM events",
        f"SELECT count(n) FROM events WHERE space IN ({others})",
        f"SELECT count(n) FROM Events WHERE {LISTED}",
        "SELECT count(n) FROM events WHERE decode(data) LIKE '%/4%'",
        f"SELECT count(n) FROM events JOIN '{folder}/dims.parquet' USING (space)",
        "SELECT type, count(*), max(timestamp) FROM events GROUP BY type ORDER BY type",
    ]
    expected = [plain(folder, "one", statement, None)[1] for statement in statements]
    turns = random.Random(1).choices(range(len(statements)), k=60)
    with esformat.open(folder / "one.esdb") as segment:
        for turn in turns:
            assert sorted(segment.sql(statements[turn]).fetchall(), key=repr) == expected[turn]


def test_hundreds_of_conditions(folder, opened):
    """Hundreds of conditions are recognised as bounds, however DuckDB nests them."""
    many = " AND ".join(f"space >= 'customer-{n:04d}'" for n in range(900))
    same(folder, opened, "one", f"SELECT count(n) FROM events WHERE {many}")


def test_listed_spaces_are_handed_down(folder, opened):
    """A long list of spaces is passed down as a bound, also if another part of the statement needs all spaces."""
    total = opened["one"].info()["blocks"]["data"]["count"]
    assert int(blocks(opened["one"], f"SELECT max(n) FROM events e WHERE e.{LISTED} AND n > 3").split()[1]) < total
    same(folder, opened, "one", f"SELECT count(n), (SELECT count(n) FROM events) FROM events WHERE {LISTED}")
    same(folder, opened, "one", f"SELECT timestamp FROM events WHERE {LISTED} ORDER BY timestamp DESC LIMIT 9")


def test_text_with_nul(tmp_path):
    """A statement with NUL in a text is passed to DuckDB unchanged."""
    with esformat.create(tmp_path / "nul.esdb") as writer:
        for key in ("a", "a\0n", "ab"):
            writer.add(key, b"x", timestamp=1)
    with esformat.open(tmp_path / "nul.esdb") as segment:
        for statement, expected in (
            ("SELECT count(*), 'a\0n' FROM events WHERE space = 'a\0n'", [(1, "a\0n")]),
            ("SELECT max(space) FROM events WHERE space <= 'a\0n'", [("a\0n",)]),
            ("SELECT DISTINCT space FROM events WHERE space LIKE 'a\0%'", [("a\0n",)]),
        ):
            assert segment.sql(statement).fetchall() == expected


def test_statements_that_are_asked_again(folder, monkeypatch):
    """A statement is parsed once per file, and has the same result when repeated, also with other parameters."""
    statements = [
        "SELECT count(*) FROM events", "SELECT max(n) FROM events WHERE space LIKE 'customer%'",
        "SELECT timestamp FROM events ORDER BY timestamp DESC LIMIT 3", "SELECT sum(n) FROM events", "SELECT 1",
    ]  # fmt: skip
    with esformat.open(folder / "one.esdb") as segment:
        for _ in range(3):
            segment.sql(statements[0]).fetchall().clear()
        first = [segment.sql(statement).fetchall() for statement in statements]
        assert first[0] == [(EVENTS,)]
        some = [segment.sql("SELECT count(n) FROM events WHERE space = ?", [space]).fetchall() for space in ("a", "b")]
        parsed = []
        monkeypatch.setattr(session, "parse", lambda *given: parsed.append(given))
        assert [segment.sql(statement).fetchall() for statement in statements] == first
        assert segment.sql("SELECT count(n) FROM events WHERE space = ?", ["b"]).fetchall() == some[1] != some[0]
        assert len(parsed) == 1  # a statement without a table
        plan = dict(segment.sql("EXPLAIN SELECT count(*) FROM events"))
        assert plan["blocks"] == "events: no block, 1 counts instead"


def test_answers_in_every_form(opened):
    rows = opened["one"].sql("SELECT space, n FROM events WHERE space = 'b' ORDER BY n LIMIT 3")
    table = rows.to_table()
    assert table.schema == rows.schema == pa.schema([("space", pa.string()), ("n", pa.int64())])
    assert rows.to_pandas()["n"].tolist() == table["n"].to_pylist()
    assert pa.table(rows) == table
    assert [dict(zip(rows.column_names, row, strict=True)) for row in rows] == table.to_pylist()
    assert pa.Table.from_batches(rows.batches()) == table
    assert "<td>b</td>" in rows._repr_html_()


def test_answers_are_streamed(opened, monkeypatch):
    """The first rows are returned before the last are read, and a caller that stops early ends the statement."""
    bound = []
    batches = rows_module._batches
    monkeypatch.setattr(rows_module, "_batches", lambda *given: bound.append(given[0]) or batches(*given))
    reader = opened["one"].sql("SELECT * FROM events, range(10)").to_reader()
    assert 0 < len(reader.read_next_batch()) < EVENTS * 5
    other = opened["one"].sql("SELECT count(n) FROM events").fetchall()  # in parallel
    assert other == [(EVENTS,)]
    with pytest.raises(duckdb.ResourceInUseException):  # the statement is still running
        bound[0].connection.execute("SELECT 1")
    del reader
    begun = opened["one"].sql("SELECT * FROM events, range(10)").batches()
    next(begun)
    begun.close()
    for each in bound:
        with pytest.raises(duckdb.ConnectionException):
            each.connection.execute("SELECT 1")


def test_a_database_is_used_with_all_its_settings():
    """If a setting fails, such as one that locks the database, no statement runs without it."""
    database = session.Database(locked=True, settings=["threads = 'several'"])
    for _ in range(2):
        with pytest.raises(duckdb.Error):
            database.connect()


def test_threads_share_a_segment(opened):
    found = []

    def ask() -> None:
        found.append(opened["one"].sql("SELECT sum(n) FROM events").fetchall())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert found.count(found[0]) == 4


WRONG = [
    ("SELECT FROM", "syntax error"),
    ("SELECT nope FROM events", "Candidate bindings"),
    ("SELECT * FROM nope", "no table 'nope'"),
    ("SELECT 1; SELECT 2", "one statement, not 2"),
    ("", "one statement, not 0"),
    ("CREATE TABLE x AS SELECT 1", "not CREATE"),
    ("COPY (SELECT 1) TO 'x.csv'", "not COPY"),
    ("SELECT * FROM opened", "no table 'opened'"),
    ("SELECT type::INT FROM events", "Could not convert"),
    ("EXPLAIN SELECT FROM", "syntax error"),
]


@pytest.mark.parametrize(("statement", "said"), WRONG)
def test_wrong_statements(opened, statement, said):
    """A wrong statement, or one that is not a query, is refused in one line; Python variables cannot be queried."""
    with pytest.raises(esformat.UsageError) as caught:
        opened["one"].sql(statement).fetchall()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(opened):
    with pytest.raises(OSError, match="No files found"):
        opened["one"].sql("SELECT * FROM 'nope.parquet'")


def test_damage_is_told_as_itself(folder):
    """An error of a file passes through DuckDB unchanged."""
    damaged = folder / "damaged" / "x.esdb"
    damaged.parent.mkdir()
    stored = bytearray((folder / "one.esdb").read_bytes())
    for at in range(1000, len(stored) // 2, 500):
        stored[at] ^= 0xFF
    damaged.write_bytes(stored)
    with esformat.open(damaged) as segment, pytest.raises(esformat.CorruptSegmentError, match=r"x\.esdb"):
        segment.sql("SELECT sum(n), max(data), max(space) FROM events").fetchall()


def test_closed_files(folder):
    with esformat.open(folder / "one.esdb") as segment:
        rows = segment.sql("SELECT sum(n) FROM events")
    with pytest.raises(esformat.EsdbError):
        rows.fetchall()


def test_answers_are_not_pickled(opened):
    with pytest.raises(esformat.UsageError, match="to_table"):
        pickle.dumps(opened["one"].sql("SELECT 1"))
