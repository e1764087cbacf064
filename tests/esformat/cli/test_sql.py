"""`esdb sql`: statements over files, results in every format, and one line for each error."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import esformat
from esformat.cli.sql_shell import completions, is_whole

COUNTS = "SELECT type, count(*) AS n FROM 'activity.esdb' GROUP BY 1 ORDER BY 2"


def test_formats(esdb, activity, tmp_path):
    """A result is the same in every format."""
    expected = [{"type": None, "n": 1}, {"type": "purchase", "n": 7}, {"type": "view", "n": 21}]
    assert esdb("sql", COUNTS).rows == expected
    assert esdb("sql", COUNTS, "--format", "csv").lines == ['"type","n"', ",1", '"purchase",7', '"view",21']
    assert esdb("sql", COUNTS, "--format", "table").lines[-1].split() == ["view", "21"]
    assert (
        pa.ipc.open_stream(io.BytesIO(esdb("sql", COUNTS, "--format", "arrow").out)).read_all().to_pylist() == expected
    )
    assert esdb("sql", COUNTS, "-o", "counts.parquet").status == 0
    assert pq.read_table(tmp_path / "counts.parquet").to_pylist() == expected


def test_a_segment_of_the_answer(esdb, activity, tmp_path):
    """A result with space and timestamp becomes a segment; another one is refused, and nothing is written."""
    assert esdb("sql", "FROM 'activity.esdb' WHERE type = 'purchase'", "-o", "some.esdb").status == 0
    where = ("scan", "activity.esdb", "--where", "type = purchase")
    assert esdb("scan", "some.esdb").rows == esdb(*where).rows
    assert esdb("sql", "SELECT * FROM (VALUES ('a'::BLOB, TIMESTAMPTZ '2026-01-01')) v(space, timestamp)",
                "-o", "binary.esdb").status == 0  # fmt: skip
    with esformat.open(tmp_path / "binary.esdb") as segment:
        assert [event.space for event in segment.scan()] == [b"a"]
    refused = esdb("sql", COUNTS, "-o", "counts.esdb")
    assert (refused.status, "events need space and timestamp" in refused.err) == (2, True)
    assert not (tmp_path / "counts.esdb").exists()
    for columns, advice in (
        ("space, timestamp, space", "column names must be unique"),
        ("space, timestamp::TIMESTAMP AS timestamp", "select timestamp AT TIME ZONE 'UTC' AS timestamp"),
    ):
        refused = esdb("sql", f"SELECT {columns} FROM 'activity.esdb'", "-o", "x.esdb")
        assert (refused.status > 0, refused.err.count("\n"), advice in refused.err) == (True, 1, True), refused.err


def test_many_files(esdb, activity, tmp_path):
    """Directories, patterns, Parquet and CSV can be used together."""
    (tmp_path / "parts").mkdir()
    for name in ("a", "b"):
        (tmp_path / "parts" / f"{name}.esdb").write_bytes(activity.read_bytes())
    (tmp_path / "users.csv").write_text("space,city\ncustomer-1,Lund\n")
    for source in ("'parts'", "'parts/*.esdb'", '"parts/"'):
        assert esdb("sql", f"SELECT count(*) AS n FROM {source}").rows == [{"n": 58}]
    joined = "SELECT city, count(*) AS n FROM 'parts/a.esdb' JOIN 'users.csv' USING (space) GROUP BY 1"
    assert esdb("sql", joined).rows == [{"city": "Lund", "n": 10}]


def test_statement_from_standard_input(esdb, activity):
    for arguments in ((), ("-",)):
        assert esdb("sql", *arguments, stdin=b"SELECT count(*) AS n\nFROM 'activity.esdb';\n").rows == [{"n": 29}]


def test_explain_is_text(esdb, activity):
    done = esdb("sql", "EXPLAIN SELECT max(timestamp) FROM 'activity.esdb' WHERE space = 'other'", "--format", "table")
    assert done.lines[-1] == "activity.esdb: 1 of 1 blocks, columns timestamp"


def test_types_that_parquet_lacks(esdb):
    """A column whose type Parquet lacks is named, whatever error its writer raises for it."""
    for column in ("MAP {}", "INTERVAL 1 DAY"):
        done = esdb("sql", f"SELECT {column} AS odd", "-o", "odd.parquet")
        assert done.status == 2
        assert "Parquet cannot hold the column 'odd' of type" in done.err


def test_long_answers_in_a_table(esdb, activity):
    done = esdb("sql", "SELECT a.timestamp FROM 'activity.esdb' a, 'activity.esdb' b", "--format", "table")
    assert len(done.lines) == 53
    assert done.lines[-1].startswith("… and more: only 50 are shown")


@pytest.mark.parametrize(
    ("statement", "status", "said"),
    [
        ("SELECT * FROM 'nope.esdb'", 1, "nope.esdb: no such file"),
        ("SELECT * FROM 'nope*.esdb'", 2, "nope*.esdb: no .esdb file"),
        ("SELECT * FROM nope", 2, "no table 'nope'"),
        ("SELECT * FROM 'nope.parquet'", 1, "No files found"),
        ("SELEC", 2, "syntax error"),
        ("DROP TABLE x", 2, "not DROP"),
        (" ; ", 2, "no statement"),
        ("SELECT * FROM 'activity.esdb' WHERE nope", 2, "nope"),
    ],
)
def test_wrong_statements(esdb, activity, statement, status, said):
    """A wrong statement is one line; the status distinguishes its causes."""
    done = esdb("sql", statement)
    assert (done.status, done.out) == (status, b"")
    assert said in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["SELECT * FROM activity.esdb LIMIT 1"], "quote the file name: FROM 'activity.esdb'"),
        (["SELECT * FROM parts/*.esdb"], "quote the file name: FROM 'parts/*.esdb'"),
        (["SELECT 1 FROM x JOIN a.esdb USING (y)"], "no table 'x'"),
        (["activity.esdb"], "name the file after FROM: esdb sql \"SELECT … FROM 'activity.esdb'\""),
        (["activity.esdb", "SELECT 1"], "name the file after FROM: esdb sql \"SELECT … FROM 'activity.esdb'\""),
        (["parts", "SELECT 1"], "name the file after FROM: esdb sql \"SELECT … FROM 'x.esdb'\""),
    ],
    ids=str,
)
def test_files_named_otherwise(esdb, activity, arguments, said):
    """For a file that is not behind FROM or not in quotes, the error shows the right form."""
    done = esdb("sql", *arguments)
    assert (done.status, done.out, said in done.err) == (2, b"", True), done.err


def test_fields_of_payloads_in_help(esdb):
    assert "decode(data)->>'$.url'" in esdb("sql", "--help").text


def test_tables_are_not_written(esdb, activity):
    done = esdb("sql", COUNTS, "--format", "table", "-o", "x.txt")
    assert done.status == 2
    assert "standard output only" in done.err


def test_what_enter_runs():
    """Enter runs a statement that ends in a semicolon, or a command; a semicolon in quotes does not end a statement."""
    assert not is_whole("SELECT ';'")
    assert is_whole("SELECT ';';")
    assert is_whole("\\format csv")
    assert is_whole("quit")


def test_completions():
    assert [text for text, _ in completions("SELECT * FROM 'cl", ["clicks.esdb", "other.esdb"])] == ["clicks.esdb"]
    assert ("GROUP BY", 2) in list(completions("SELECT 1 GR", []))
    assert list(completions("SELECT ", ["clicks"])) == []
