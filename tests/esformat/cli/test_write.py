"""`esdb write`: options, refusals, reports. The conversion of rows is tested in `tests/esformat/convert`."""

# ruff: noqa: E501 - tables read better in one line per case

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from effort import long

import esformat

CSV = b"""user,date,app,rating,text
007,2006-04-07 17:08,web,5,"so, so"
bob,2006-04-08 17:08,,4,good
007,2006-04-06 17:08,ios,,bad
"""
NAMED = ("--space", "user", "--timestamp", "date")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.csv"
    path.write_bytes(CSV)
    return path


def events(path="out.esdb") -> list[dict]:
    with esformat.open(path) as segment:
        return segment.scan().to_table().to_pylist()


def test_defaults(esdb, source):
    """Columns without a role become typed columns; keys stay text."""
    result = esdb("write", "out.esdb", source, *NAMED)
    assert (result.status, result.err) == (0, "")
    assert [(row["space"], row["rating"], row["app"], row["text"]) for row in events()] == [
        ("007", None, "ios", "bad"), ("007", 5, "web", "so, so"), ("bob", 4, None, "good"),
    ]  # fmt: skip


def test_report(esdb, source):
    """The report has the contents of the file, its size, that of the input, and the time spent."""
    result = esdb("write", "out.esdb", source, *NAMED)
    first, second = result.lines
    assert first == "out.esdb: 3 events of 2 spaces, 2006-04-06T17:08:00Z to 2006-04-08T17:08:00Z"
    size = re.fullmatch(rf"(.+) kB \((.+) bytes per event\) from {len(CSV)} bytes in \d+\.\d s", second)
    stored = Path("out.esdb").stat().st_size
    assert size.groups() == (f"{stored / 1000:.1f}", f"{stored / 3:.1f}")


def test_roles(esdb, source):
    """Options name the grouping, the indexes and the payload."""
    esdb("write", "out.esdb", source, *NAMED, "--grouping", "app", "--index", "rating", "--data", "text")
    with esformat.open("out.esdb") as segment:
        assert segment.indexes == ("rating",)
        assert segment.schema.names == ["space", "grouping", "timestamp", "data", "rating"]
        assert [event.data for event in segment.scan_index("rating", "5")] == [b"so, so"]
        assert list(segment["007"].groupings()) == ["ios", "web"]
        assert segment.properties == {
            "source.space": "user", "source.grouping": "app", "source.timestamp": "date",
        }  # fmt: skip


def test_data_json(esdb, source):
    """`--data-json` makes JSON of the other columns; numbers in CSV become JSON numbers."""
    esdb("write", "out.esdb", source, *NAMED, "--data-json", "--index", "app")
    assert [json.loads(row["data"]) for row in events()] == [
        {"rating": None, "text": "bad"}, {"rating": 5, "text": "so, so"}, {"rating": 4, "text": "good"},
    ]  # fmt: skip


def test_columns_and_types(esdb, source):
    """`--columns` keeps only some columns, `--type` sets their types."""
    esdb("write", "out.esdb", source, *NAMED, "--columns", "rating,text", "--type", "rating=string")
    assert [(row["rating"], row["text"]) for row in events()] == [(None, "bad"), ("5", "so, so"), ("4", "good")]
    assert "app" not in events()[0]


def test_default_columns(esdb, tmp_path):
    """Columns named space, timestamp and data need no options."""
    (tmp_path / "in.jsonl").write_text('{"space":5,"timestamp":"2006-04-07","data":"x"}\n')
    assert esdb("write", "out.esdb", "in.jsonl").status == 0
    assert [(row["space"], row["data"]) for row in events()] == [("5", b"x")]


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("1144429680", ["--timestamp-format", "s"], "2006-04-07T17:08:00Z"),
        ("1144429680000", ["--timestamp-format", "ms"], "2006-04-07T17:08:00Z"),
        ("07/04/2006 17:08", ["--timestamp-format", "%d/%m/%Y %H:%M"], "2006-04-07T17:08:00Z"),
        ("2006-04-07 17:08", ["--timezone", "Europe/Stockholm"], "2006-04-07T15:08:00Z"),
        ("2006-04-07 17:08", ["--timezone", "+01:00"], "2006-04-07T16:08:00Z"),
        ("2006-04-07 17:08", [], "2006-04-07T17:08:00Z"),
    ],
)
def test_times(esdb, tmp_path, text, options, expected):
    """Times are read in several formats and zones."""
    (tmp_path / "in.csv").write_text(f"space,timestamp\na,{text}\n")
    assert f"{expected} to {expected}" in esdb("write", "out.esdb", "in.csv", *options).text


def test_nanoseconds_are_noted(esdb, tmp_path):
    """A note says which column has the digits below the microsecond."""
    table = pa.table({"space": ["a"], "timestamp": pa.array([1_144_429_680_000_000_007], pa.timestamp("ns"))})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    result = esdb("write", "out.esdb", "in.parquet")
    assert "note: times have digits below the microsecond: column 'timestamp_ns' keeps them in full" in result.text
    assert events()[0]["timestamp_ns"] == 1_144_429_680_000_000_007


def test_csv_options(esdb, tmp_path):
    """Options set the delimiter, the header and the word for null."""
    (tmp_path / "in.txt").write_text("a|2006-04-07|NULL\n")
    result = esdb(
        "write", "out.esdb", "in.txt", "--input-format", "csv", "--delimiter", "|",
        "--header", 'space,timestamp,"x,y"', "--null", "NULL",
    )  # fmt: skip
    assert result.status == 0
    assert events()[0]["x,y"] is None


def test_tabs(esdb, tmp_path):
    r"""Tabs separate fields if the file is a .tsv, or with `--delimiter '\t'`."""
    (tmp_path / "in.tsv").write_text("space\ttimestamp\na,b\t2006-04-07\n")
    esdb("write", "out.esdb", "in.tsv")
    assert events()[0]["space"] == "a,b"
    assert esdb("write", "again.esdb", "in.tsv", "--input-format", "csv", "--delimiter", "\\t").status == 0
    assert events("again.esdb")[0]["space"] == "a,b"


def test_stdin(esdb):
    """Standard input is read if its format is given."""
    assert esdb("write", "out.esdb", "-", "--input-format", "csv", *NAMED, stdin=CSV).status == 0
    assert len(events()) == 3
    assert esdb("write", "out2.esdb", "-", *NAMED, stdin=CSV).err == (
        "esdb: <stdin>: cannot tell the format from the file name; give --input-format csv|tsv|jsonl|parquet|arrow; "
        "lines of logs are for `aggregator collect`\n"
    )


def test_binary_keys(esdb, tmp_path):
    """With `--keys binary`, keys may be any bytes."""
    (tmp_path / "in.csv").write_bytes(b"space,timestamp\n\xff\x00,2006-04-07\n")
    assert esdb("write", "out.esdb", "in.csv").status == 1
    assert esdb("write", "out.esdb", "in.csv", "--keys", "binary").status == 0
    assert events()[0]["space"] == b"\xff\x00"


@pytest.mark.parametrize("codec", ["zstd", "lz4", "none"])
def test_codecs(esdb, source, codec):
    """Every codec can be selected."""
    assert esdb("write", "out.esdb", source, *NAMED, "--codec", codec).status == 0
    assert json.loads(esdb("info", "out.esdb", "--json").out)["codec"] == codec


def test_level(esdb, source):
    """A level is accepted only for a codec with levels."""
    assert esdb("write", "out.esdb", source, *NAMED, "--level", "19").status == 0
    assert json.loads(esdb("info", "out.esdb", "--json").out)["level"] == 19
    result = esdb("write", "out.esdb", source, *NAMED, "--level", "3", "--codec", "none", "--force")
    assert (result.status, result.err) == (2, "esdb: codec 'none' has no levels\n")


def test_force(esdb, source, tmp_path):
    """An existing file is replaced only with `--force`, and only if the write succeeds."""
    (tmp_path / "out.esdb").write_text("precious")
    result = esdb("write", "out.esdb", source, *NAMED)
    assert result.status == 2
    assert "OUT out.esdb exists: choose another name, or replace it with --force" in result.err
    assert esdb("write", "out.esdb", source, *NAMED, "--index", "nope", "--force").status == 1
    assert (tmp_path / "out.esdb").read_text() == "precious"
    assert esdb("write", "out.esdb", source, *NAMED, "--force").status == 0
    assert len(events()) == 3


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["in.csv", "shop.esdb"], "shop.esdb in.csv"),
        (["in.csv", "shop.esdb", "--force"], "shop.esdb in.csv"),
        (["in.csv", "other.csv", "old.esdb"], "old.esdb in.csv other.csv"),
        (["in.csv", "other.csv"], "in.esdb in.csv other.csv"),
        (["in*.csv", "shop.esdb"], "shop.esdb 'in*.csv'"),
    ],
    ids=str,
)
def test_out_named_last(esdb, source, tmp_path, given, meant):
    """If the output is named last, the error shows the right command."""
    (tmp_path / "old.esdb").write_bytes(b"")
    result = esdb("write", *given)
    assert (result.status, result.out) == (2, b"")
    assert f"OUT comes first: esdb write {meant} (see" in result.err
    assert source.read_bytes() == CSV


def test_out_of_another_name(esdb, source):
    """The output may have any name, and may be replaced; an input that is a segment is refused as such."""
    assert esdb("write", "out.csv", source, *NAMED).status == 0
    assert esdb("write", "out.csv", source, *NAMED, "--force").status == 0
    assert esdb("write", "out.esdb", source, *NAMED).status == 0
    assert "is a segment, not an input" in esdb("write", "events", "out.esdb").err


REFUSED = [
    (["out.esdb", "in.csv", "--data", "text", "--data-json"], "esdb: --data and --data-json cannot be combined"),
    (["out.esdb", "in.csv", "--index", "user", "--index", "user"], "esdb: --index names 'user' twice"),
    (["out.esdb", "in.csv", "--timezone", "Nowhere"], "esdb write: unknown time zone 'Nowhere'"),
    (["out.esdb", "in.csv", "--timestamp-format", "%H"], "esdb write: the timestamp format '%H' lacks year"),
    (["out.esdb", "in.csv", "--type", "user"], "'user' is not of the form COLUMN=TYPE"),
    (["out.esdb", "in.csv", "--type", "user=complex"], "invalid type 'complex': expected one of string, int64, float64"),
    (["out.esdb", "in.csv", "--delimiter", ";;"], "--delimiter ';;' is not one ASCII character"),
    (["out.esdb", "in.csv", "--on-error", "ignore"], "invalid value 'ignore': expected stop, skip or collect FILE"),
    (["out.esdb", "in.csv", "--on-error", "collect"], "invalid value 'collect': expected stop, skip or collect FILE"),
    (["out.esdb", "in.csv", "--on-error", "collect", "in.csv"], "--on-error collect in.csv is an input, too"),
    (["out.esdb", "in.csv", "--on-error", "collect", "out.esdb"], "--on-error collect out.esdb is OUT, too"),
    (["in.csv", "in.csv"], "OUT in.csv is an input, too: choose another name"),
    (["nowhere/out.esdb", "in.csv"], "OUT nowhere/out.esdb: no directory nowhere"),
    (["out.esdb"], "Missing argument 'INPUT...'"),
    (["out.esdb", "in.csv", "--codec", "gzip"], "'gzip' is not one of 'zstd', 'lz4', 'none'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused(esdb, source, tmp_path, arguments, message):
    """An impossible request is refused before anything is read or written."""
    result = esdb("write", *arguments)
    assert (result.status, result.out) == (2, b"")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [source]
    assert source.read_bytes() == CSV


BAD_INPUT = [
    (b"user,date\n", ["--space", "nope", "--timestamp", "date"], "has no column 'nope', only 'user', 'date'; choose the column with --space"),
    (b"user,date\na,b,c\n", NAMED, "line 2: 3 fields, but 2 column names; correct it, or leave bad rows out with"),
    (b"user,date\na,now\n", NAMED, "line 2: timestamp 'now' is neither an ISO 8601 time nor a number since 1970: give the format"),
    (b"user,date\na,20060407\n", NAMED, "'20060407' may be a date or a number since 1970: give --timestamp-format %Y%m%d"),
    (b"user,date\n,2006-04-07\n", NAMED, "line 2: no space: 'user' has no value"),
    (b"user,date\n\xff,2006-04-07\n", NAMED, "line 2: space 'user' is not UTF-8 text: convert it (iconv -f latin1 -t utf-8), or take bytes with --keys binary"),
    (b"", NAMED, "is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "options", "message"), BAD_INPUT, ids=range(len(BAD_INPUT)))
def test_bad_input(esdb, tmp_path, data, options, message):
    """Bad input is one line with the file, the line, the fault and a fix; no output file remains."""
    path = tmp_path / "in.csv"
    path.write_bytes(data)
    result = esdb("write", "out.esdb", "in.csv", *options)
    assert (result.status, result.out) == (1, b"")
    assert result.err.startswith("esdb: in.csv: ")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [path]


DIRTY = b"user,date\na,2006-04-07\nb\nc,never\nd,2006-04-08\n"


def test_skip(esdb, tmp_path):
    """Bad rows are skipped and counted."""
    (tmp_path / "in.csv").write_bytes(DIRTY)
    result = esdb("write", "out.esdb", "in.csv", *NAMED, "--on-error", "skip")
    assert (result.status, result.lines[-1]) == (0, "2 bad rows left out")
    assert [row["space"] for row in events()] == ["a", "d"]


@pytest.mark.parametrize("form", [["--on-error", "collect", "bad.jsonl"], ["--on-error=collect=bad.jsonl"]])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_collect(esdb, tmp_path, form, place):
    """Bad rows are collected wherever `--on-error collect` stands among the arguments."""
    (tmp_path / "in.csv").write_bytes(DIRTY)
    arguments = ["out.esdb", "in.csv"]
    result = esdb("write", *NAMED, *arguments[:place], *form, *arguments[place:])
    assert (result.status, result.lines[-1]) == (0, "2 bad rows left out, see bad.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [(row["file"], row["line"], row["text"]) for row in rows] == [("in.csv", 3, "b"), ("in.csv", 4, "c,never")]


def test_option_words_after_two_dashes_are_files(esdb, tmp_path):
    """After `--` every argument is a file, whatever its name."""
    names = ["--on-error", "collect", "third"]
    for name in names:
        (tmp_path / name).write_bytes(DIRTY)
    result = esdb("write", *NAMED, "--input-format", "csv", "--on-error", "skip", "--", "out.esdb", *names)
    assert (result.status, result.lines[-1]) == (0, "6 bad rows left out")


def test_no_events(esdb, tmp_path):
    """An input without events becomes a segment without events."""
    (tmp_path / "in.csv").write_bytes(b"user,date\n")
    result = esdb("write", "out.esdb", "in.csv", *NAMED)
    assert (result.status, result.lines[0]) == (0, "out.esdb: 0 events of 0 spaces")
    assert events() == []


@long
def test_process(process, source):
    """A separate process writes only its report to stdout, nothing to stderr, and ends with status 0."""
    result = process("write", "out.esdb", source, *NAMED)
    assert (result.status, result.err) == (0, "")
    assert result.lines[0].startswith("out.esdb: 3 events of 2 spaces")
    missing = process("write", "other.esdb", "nowhere.csv")
    assert (missing.status, missing.out, missing.err) == (1, b"", "esdb: nowhere.csv: no such file or directory\n")


@pytest.mark.parametrize(("delimiter", "shown"), [(";", ";"), ("\t", "\\t"), ("|", "|")])
def test_another_delimiter_is_proposed(esdb, tmp_path, delimiter, shown):
    """If a header has only one field, the error suggests another delimiter, such as a spreadsheet's semicolon."""
    (tmp_path / "x.csv").write_text("User;When;Sum\nada;2026-01-01;1,5\n".replace(";", delimiter))
    result = esdb("write", "x.esdb", "x.csv")
    assert result.status == 1
    assert result.err.rstrip().endswith(f"its fields seem to be separated by '{shown}': give --delimiter '{shown}'")
    assert esdb("write", "x.esdb", "x.csv", "--delimiter", shown, "--space", "User", "--timestamp", "When").status == 0


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_first_line_for_excel(esdb, tmp_path, delimiter):
    """An Excel line `sep=;` before the header is not a column name; the error says to remove it."""
    (tmp_path / "a.csv").write_text("sep=;\nspace;timestamp\na;2026-03-01\n")
    result = esdb("write", "a.esdb", "a.csv", "--delimiter", delimiter)
    assert (result.status, result.out) == (1, b"")
    assert result.err.rstrip().endswith("its first line is a separator line for Excel: remove it")


def test_a_type_of_no_column(esdb, tmp_path):
    """`--type` for an unknown column is noted; the column that exists gets its type."""
    (tmp_path / "a.jsonl").write_text('{"space": "a", "timestamp": 1700000000, "price": 1}\n')
    result = esdb(
        "write", tmp_path / "a.esdb", tmp_path / "a.jsonl", "--type", "prcie=string", "--type", "price=string"
    )
    assert result.status == 0
    assert "note: --type prcie: no column of that name was read" in result.lines
    assert "--type price:" not in result.text


def test_keys_that_no_line_has(esdb, tmp_path):
    """If all JSON lines lack the required keys, the error suggests the options that name existing ones."""
    (tmp_path / "x.jsonl").write_text('{"who": "a", "ts": "2026-01-01"}\n{"who": "b", "ts": "2026-01-02"}\n')
    assert "--space and --timestamp, perhaps --space who --timestamp ts;" in esdb("write", "x.esdb", "x.jsonl").err
    assert (
        "choose the column with --timestamp, perhaps --timestamp ts;"
        in esdb("write", "x.esdb", "x.jsonl", "--space", "who").err
    )
    (tmp_path / "y.jsonl").write_text('{"space": "a", "timestamp": "2026-01-01"}\n{"timestamp": "2026-01-02"}\n')
    assert "line 2: no space: 'space' has no value; correct it" in esdb("write", "x.esdb", "y.jsonl").err


def test_text_of_another_encoding(esdb, tmp_path):
    """Latin-1 text in any column is refused with the command that converts it to UTF-8."""
    for row in ("K\xf6ln,2026-01-01,x", "ulm,2026-01-01,K\xf6ln"):
        (tmp_path / "x.csv").write_bytes(f"space,timestamp,city\n{row}\n".encode("latin-1"))
        result = esdb("write", "x.esdb", "x.csv")
        assert (result.status, "(iconv -f latin1 -t utf-8), or" in result.err) == (1, True)
