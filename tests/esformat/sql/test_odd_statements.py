"""Statements over events with odd names, values and times have the results of DuckDB on the same table in memory."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import esformat


def asked(tmp_path, columns, indexes, statement, times=range(6)):
    """The result from a file, twice, and DuckDB's result for the same rows in file order."""
    count = len(times)
    events = pa.table(
        {
            "space": [f"s{row % 2}" for row in range(count)],
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            **columns,
        }
    )
    with esformat.create(tmp_path / "x.esdb", indexes=indexes) as writer:
        writer.add_table(events)
    with esformat.open(tmp_path / "x.esdb") as segment, duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("events", segment.scan().to_table())
        expected = connection.execute(statement).fetchall()
        return segment.sql(statement).fetchall(), segment.sql(statement).fetchall(), expected


CAPITALS = ({"Type": ["A"] * 6, "type": ["Ax", "Ax", "y", "y", "z", "z"]}, ["type"])
ACCENTS = ({"É": ["p1"] * 6, "é": ["p2"] * 6}, ["é"])
SHARP = ({"straße": ["a"] * 6, "strasse": ["b"] * 6}, ["strasse"])
NAMES = [
    (*CAPITALS, "SELECT Type, count(*) FROM events GROUP BY 1"),
    (*CAPITALS, "SELECT count(*) FROM events WHERE Type = 'A'"),
    (*CAPITALS, "SELECT count(*), min(timestamp) FROM events WHERE Type LIKE 'A%' AND space = 's1'"),
    ({"Space": ["p"] * 6}, ["Space"], "SELECT space, count(*) FROM events GROUP BY 1 ORDER BY 1"),
    (*ACCENTS, "SELECT space FROM events WHERE \"É\" LIKE 'p%' ORDER BY 1"),
    (*ACCENTS, "SELECT count(*) FROM events WHERE \"É\" = 'p1'"),
    (*SHARP, "SELECT count(*) FROM events WHERE straße = 'a'"),
    ({"TYPE": ["Ax", "b"] * 3}, ["TYPE"], "SELECT type, count(*) FROM events WHERE Type LIKE 'A%' GROUP BY 1"),
]


@pytest.mark.parametrize(("columns", "indexes", "statement"), NAMES)
def test_names_that_capitals_tell_apart(tmp_path, columns, indexes, statement):
    """Of names that differ only in case the first column is used, whatever is indexed."""
    once, again, expected = asked(tmp_path, columns, indexes, statement)
    assert once == again == expected


@pytest.mark.parametrize("more", ["", " AND space LIKE 's%'"])
def test_beginnings_of_values_with_nul(tmp_path, more):
    """A list of values with NUL, at which DuckDB would cut the statement, is not inserted into it."""
    columns = {"type": ["pu", "pu\0x", "pu\0x", "q", "q", "q"]}
    statement = f"SELECT count(*) FROM events WHERE type LIKE 'pu%'{more}"
    once, again, expected = asked(tmp_path, columns, ["type"], statement)
    assert once == again == expected == [(3,)]


@pytest.mark.parametrize("where", ["", " WHERE space >= 's'"])
@pytest.mark.parametrize("way", ["DESC", "ASC"])
def test_newest_at_infinity(tmp_path, way, where):
    """Times that DuckDB treats as infinite are ordered with the others."""
    statement = f"SELECT data FROM events{where} ORDER BY timestamp {way} LIMIT 1"
    times = [5, 2**63 - 1, -(2**63) + 1]
    once, again, expected = asked(tmp_path, {"data": [b"x", b"y", b"z"]}, (), statement, times)
    assert once == again == expected == [(b"y" if way == "DESC" else b"z",)]


def test_a_with_of_the_same_name(tmp_path):
    """A WITH clause named like the table can query the table that it hides."""
    statement = "WITH events AS (SELECT * FROM events WHERE space = 's1') SELECT count(*), max(timestamp) FROM events"
    once, again, expected = asked(tmp_path, {}, (), statement)
    assert once == again == expected
    assert once[0][0] == 3


def test_columns_are_those_of_this_time(tmp_path, monkeypatch):
    """The columns of a result follow the current parameters and files."""
    monkeypatch.chdir(tmp_path)
    asked(tmp_path, {"type": ["a"] * 6}, ["type"], "SELECT 1")
    with esformat.open(tmp_path / "x.esdb") as segment:
        named = "SELECT COLUMNS($1) FROM events"
        assert segment.sql(named, ["type"]).column_names == ("type",)
        assert segment.sql(named, ["space"]).column_names == ("space",)
        joined = "SELECT u.*, count(*) AS n FROM events JOIN 'u.csv' u USING (space) GROUP BY ALL"
        for header, row in (("space,z", "s1,5"), ("space,z,w", "s1,5,7")):
            (tmp_path / "u.csv").write_text(f"{header}\n{row}\n")
            for _ in range(2):
                answer = segment.sql(joined)
                assert answer.column_names == (*header.split(","), "n")
                assert answer.fetchall() == [("s1", *map(int, row.split(",")[1:]), 3)]


def test_a_pivot_without_its_values(tmp_path):
    """A PIVOT without its values is refused with the right form."""
    asked(tmp_path, {"type": ["a"] * 6}, ["type"], "SELECT 1")
    with esformat.open(tmp_path / "x.esdb") as segment:
        with pytest.raises(esformat.UsageError, match="several statements") as told:
            segment.sql("PIVOT events ON type USING count(*)")
        assert "IN ('buy', 'view')" in str(told.value.hint)


@pytest.mark.parametrize("ask", [lambda rows: rows.to_table(), lambda rows: rows.schema], ids=["table", "schema"])
@pytest.mark.parametrize(
    "value",
    ["TIMETZ '12:00:00+02'", "[TIMETZ '12:00:00+02']", "{'at': TIMETZ '12:00:00+02'}", "(TIMETZ '12:00:00+02', 1)"],
)
def test_times_that_arrow_does_not_have(tmp_path, ask, value):
    """Times with a zone, which DuckDB passes to Arrow without it, are right as Python rows and refused for Arrow."""
    with esformat.create(tmp_path / "x.esdb") as writer:
        writer.add("a", timestamp=1)
    with esformat.open(tmp_path / "x.esdb") as segment:
        rows = segment.sql(f"SELECT {value} AS n FROM events")
        assert "seconds=7200" in repr(rows.fetchall())
        with pytest.raises(esformat.UsageError, match=r"TIME WITH TIME ZONE.*, which Arrow does not have"):
            ask(rows)
        assert segment.sql("SELECT timestamp, timestamp::TIMESTAMP::TIME AS t FROM events").to_table().num_rows == 1


@pytest.mark.parametrize(("value", "expected"), [
    ("'101'::BIT", "101"), ("['101'::BIT]", ["101"]), ("[['101'::BIT]]::BIT[][1]", (["101"],)),
    ("12345678901234567890123456789012345678901::BIGNUM", "12345678901234567890123456789012345678901"),
    ("1::VARIANT", 1),
])  # fmt: skip
def test_values_of_which_arrow_gets_the_bytes_in_memory(tmp_path, value, expected):
    """Bit strings, numbers of any size and variants, of which DuckDB passes its own bytes to Arrow, are refused."""
    with esformat.create(tmp_path / "x.esdb") as writer:
        writer.add("a", timestamp=1)
    with esformat.open(tmp_path / "x.esdb") as segment:
        rows = segment.sql(f"SELECT {value} AS n FROM events")
        assert rows.fetchall() == [(expected,)]
        with pytest.raises(esformat.UsageError, match="which Arrow does not have; cast it first"):
            rows.to_table()


@pytest.mark.parametrize("value", [
    "'x'::ENUM('x', 'UHUGEINT')", "{'TIME WITH TIME ZONE': 'x'}", "{'UHUGEINT': {'size': 'x'}}",
    "['x', 'x']::VARCHAR[2]",
])  # fmt: skip
def test_names_like_types_that_arrow_does_not_have(tmp_path, value):
    """A value or a field that has the name of such a type is none."""
    with esformat.create(tmp_path / "x.esdb") as writer:
        writer.add("a", timestamp=1)
    with esformat.open(tmp_path / "x.esdb") as segment:
        assert "x" in str(segment.sql(f"SELECT {value} AS n FROM events").to_table()["n"][0])


@pytest.mark.parametrize("ask", [lambda rows: rows.to_table(), lambda rows: rows.schema], ids=["table", "schema"])
def test_numbers_that_arrow_does_not_have(tmp_path, ask):
    """The largest UHUGEINT, which DuckDB passes to Arrow as -1, is right as Python rows and refused for Arrow."""
    with esformat.create(tmp_path / "x.esdb") as writer:
        writer.add("a", timestamp=1)
    with esformat.open(tmp_path / "x.esdb") as segment:
        rows = segment.sql(f"SELECT {2**128 - 1}::UHUGEINT AS n FROM events")
        assert rows.fetchall() == [(2**128 - 1,)]
        with pytest.raises(esformat.UsageError, match="column 'n' is UHUGEINT, which Arrow does not have; cast it"):
            ask(rows)
