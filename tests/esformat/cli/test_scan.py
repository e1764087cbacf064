"""`esdb scan`: every condition and every format, on a small segment whose events are known."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

import esformat
from tests.esformat.cli.conftest import at


@pytest.fixture
def events(activity):
    """All events as Python objects, in file order."""
    with esformat.open(activity) as segment:
        return segment.scan().to_table().to_pylist()


def days(result) -> list[int]:
    return [int(row["timestamp"][8:10]) for row in result.rows]


def test_all(esdb, activity, events):
    """Without conditions, `scan` prints all events in file order, as JSON lines if piped."""
    result = esdb("scan", "activity.esdb")
    assert (result.status, result.err) == (0, "")
    assert len(result.rows) == len(events) == 29
    assert result.rows[0] == {
        "space": "customer-0", "grouping": "", "timestamp": "2024-03-03T12:00:00.000000Z", "data": "visit 3",
        "type": "view", "country": None,
    }  # fmt: skip
    assert esdb("scan", "activity.esdb", "--format", "jsonl").out == result.out


def test_bytes_are_lossless(esdb, activity):
    """A payload that is not text is printed as base64."""
    (row,) = [row for row in esdb("scan", "activity.esdb").rows if row["timestamp"].startswith("2024-03-04")]
    assert row["data"] == {"base64": "//4="}


QUESTIONS = [
    (["--space", "customer-1"], [1, 4, 7, 10, 13, 16, 19, 22, 25, 28]),
    (["--space", "customer-1", "--reverse"], [28, 25, 22, 19, 16, 13, 10, 7, 4, 1]),
    (["--space", "customer-1", "--limit", "3"], [1, 4, 7]),
    (["--space", "customer-1", "--limit", "0"], []),
    (["--space", "customer-2", "--limit", "99999999999999999999"], [2, 5, 8, 11, 14, 17, 20, 23, 26]),
    (["--space", "customer-1", "--reverse", "--limit", "2"], [28, 25]),
    (["--space", "customer-1", "--grouping", "web"], [4, 10, 16, 22, 28]),
    (["--space", "customer-1", "--grouping", ""], [1, 7, 13, 19, 25]),
    (["--space", "customer-1", "--grouping", "nope"], []),
    (["--space", "customer-1", "--index", "type=purchase"], [1, 13, 25]),
    (["--space", "customer-1", "--index", "type=purchase", "--index", "country=SE"], [1, 13, 25]),
    (["--space", "customer-1", "--index", "type=nope"], []),
    (["--space", "customer-1", "--start", "2024-03-10", "--end", "2024-03-20"], [10, 13, 16, 19]),
    (["--space", "customer-1", "--start", "2024-03-10T12:00:00Z", "--end", "2024-03-13T13:00+01:00"], [10]),
    (["--space", "customer-1", "--start", "2024-03-10T12:00:00.000001"], [13, 16, 19, 22, 25, 28]),
    (["--space", "customer-1", "--start", str(int(at(25).timestamp()) * 1_000_000)], [25, 28]),
    (["--space", "customer-1", "--end", "1970-01-01"], []),
    (["--space-hex", "637573746f6d65722d31", "--limit", "1"], [1]),
    (["--space", "customer-1", "--grouping-hex", "776562", "--limit", "1"], [4]),
    (["--index", "type=purchase", "--reverse", "--limit", "3"], [17, 5, 25]),
    (["--grouping", "web", "--limit", "2"], [6, 12]),
    (["--space", "nobody"], []),
]


@pytest.mark.parametrize(("question", "expected"), QUESTIONS, ids=[" ".join(question) for question, _ in QUESTIONS])
def test_questions(esdb, activity, events, question, expected):
    """Each condition has the right events and the right count."""
    result = esdb("scan", "activity.esdb", *question)
    assert result.status == 0
    if question[0] not in ("--index", "--grouping"):
        assert days(result) == expected
    else:
        assert len(result.rows) == len(expected)
    assert esdb("scan", "activity.esdb", *question, "--count").text == f"{len(expected)}\n"


def test_reverse_is_the_mirror(esdb, activity):
    """A reverse scan has the opposite order."""
    assert esdb("scan", "activity.esdb", "--reverse").lines == esdb("scan", "activity.esdb").lines[::-1]


def test_absent_space_is_noted(esdb, activity):
    """An unknown space has no events; a note on stderr says so, and the data stays clean."""
    result = esdb("scan", "activity.esdb", "--space", "nobody", "--format", "csv", "--columns", "space,type")
    assert (result.status, result.text) == (0, '"space","type"\n')
    assert result.err == "activity.esdb: no space 'nobody'\n"


def test_columns(esdb, activity):
    """`--columns` prints only those columns."""
    result = esdb("scan", "activity.esdb", "--columns", "type,space", "--limit", "1")
    assert set(result.rows[0]) == {"type", "space"}


def test_csv(esdb, activity, events):
    """CSV has quoted text and exact times."""
    result = esdb("scan", "activity.esdb", "--format", "csv", "--space", "customer-2", "--limit", "1")
    assert result.text == (
        '"space","grouping","timestamp","data","type","country"\n'
        '"customer-2","web","2024-03-02T12:00:00.000000Z","visit 2","view","SE"\n'
    )


OUTPUTS = [("arrow", "-"), ("arrow", "x.arrow"), ("arrow", "x.arrows"), ("parquet", "-"), ("parquet", "x.parquet")]


@pytest.mark.parametrize(("format_", "out"), OUTPUTS)
def test_typed_formats(esdb, activity, events, tmp_path, format_, out):
    """Arrow and Parquet contain the same events, on standard output and in files."""
    result = esdb("scan", "activity.esdb", "--format", format_, "-o", out)
    assert (result.status, result.err) == (0, "")
    data = result.out if out == "-" else (tmp_path / out).read_bytes()
    if format_ == "parquet":
        table = pyarrow.parquet.read_table(io.BytesIO(data))
    else:
        table = (pa.ipc.open_file if out == "x.arrow" else pa.ipc.open_stream)(data).read_all()
    assert table.to_pylist() == events


@pytest.mark.parametrize("verb", ["write", "convert"])
@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
@pytest.mark.parametrize("format_", ["parquet", "arrow", "jsonl", "csv"])
def test_written_and_read_back(esdb, activity, events, tmp_path, format_, piped, verb):
    """`scan` output can be written back to an equal segment, from files and pipes."""
    name = f"x.{format_}"
    told = ["--input-format", format_] if piped else []
    out = esdb("scan", "activity.esdb", "--format", format_, *([] if piped else ["-o", name])).out
    places = ["-" if piped else name, "again.esdb"]
    if verb == "write":
        places.reverse()
    result = esdb(verb, *places, *told, "--index", "type", "--index", "country", stdin=out)
    assert result.status == 0, result.err
    with esformat.open("again.esdb") as segment:
        assert segment.scan().to_table().to_pylist() == events


def test_output_file_appears_whole(esdb, activity, tmp_path):
    """An output file is replaced only with `--force`, and never by a partial result."""
    (tmp_path / "x.csv").write_text("precious")
    result = esdb("scan", "activity.esdb", "--format", "csv", "-o", "x.csv")
    assert result.status == 2
    assert "x.csv: the file exists; choose another name, or --force" in result.err
    damaged = bytearray(activity.read_bytes())
    for place in range(300, len(damaged) // 2, 50):  # including the data blocks
        damaged[place] ^= 255
    (tmp_path / "damaged.esdb").write_bytes(damaged)
    assert esdb("scan", "damaged.esdb", "--format", "csv", "-o", "x.csv", "--force").status == 1
    assert (tmp_path / "x.csv").read_text() == "precious"
    assert esdb("scan", "activity.esdb", "--format", "csv", "-o", "x.csv", "--force").status == 0
    assert len((tmp_path / "x.csv").read_text().splitlines()) == 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["activity.esdb", "damaged.esdb", "x.csv"]


@pytest.mark.parametrize("files", [["activity.esdb"], ["activity.esdb", "second.esdb"], ["./"]])
def test_an_answer_in_the_place_of_an_input(esdb, activity, tmp_path, files):
    """An output that is an input is refused even with `--force`: the other events would be lost."""
    (tmp_path / "second.esdb").write_bytes((tmp_path / "activity.esdb").read_bytes())
    before = (tmp_path / "activity.esdb").read_bytes()
    result = esdb("scan", *files, "--limit", "1", "-o", "activity.esdb", "--force")
    assert (result.status, result.out) == (2, b"")
    assert "the output is an input" in result.err
    assert (tmp_path / "activity.esdb").read_bytes() == before


def test_table(esdb, activity):
    """A table has short times and nothing that a terminal would interpret."""
    result = esdb("scan", "activity.esdb", "--space", "customer-1", "--format", "table", "--limit", "2")
    header, _, first, second = result.lines
    assert header.split() == ["space", "grouping", "timestamp", "data", "type", "country"]
    assert first.split() == ["customer-1", "2024-03-01T12:00:00Z", "visit", "1", "purchase", "SE"]
    assert '{"base64":"//4="}' in second


def test_table_shows_the_first_fifty(esdb, tmp_path):
    """A table shows the first fifty rows and the number of the others."""
    with esformat.create(tmp_path / "long.esdb", indexes=["even"]) as writer:
        for number in range(120):
            writer.add("a", b"\x1b[31m\n", timestamp=number, indexes={"even": str(number % 2)})
    result = esdb("scan", "long.esdb", "--format", "table")
    assert len(result.lines) == 2 + 50 + 1
    assert result.lines[-1] == "… and 70 more: --limit N shows more, --format jsonl all"
    assert b"\x1b" not in result.out
    assert r"\x1b[31m\n" in result.text
    assert esdb("scan", "long.esdb", "--format", "table", "--index", "even=1").lines[-1].startswith("… and 10 more")
    assert len(esdb("scan", "long.esdb", "--format", "table", "--limit", "60").lines) == 62


def test_typed_indexes(esdb, tmp_path):
    """Values of integer and boolean indexes are written as text; an index name may contain "="."""
    (tmp_path / "in.jsonl").write_text(
        '{"space":"a","timestamp":"2006-04-07","i":5,"b":true,"x=y":"p=q"}\n'
        '{"space":"a","timestamp":"2006-04-08","i":-7,"b":false,"x=y":"r"}\n'
        '{"space":"a","timestamp":"2006-04-09","i":1,"b":true,"x=y":"s"}\n'
    )
    esdb("write", "typed.esdb", "in.jsonl", "--index", "i", "--index", "b", "--index", "x=y")
    for condition, count in [
        ("i=5", 1),
        ("i=-7", 1),
        ("i=9", 0),
        ("b=true", 2),
        ("b=FALSE", 1),
        ("b=True", 2),
        ("x=y=p=q", 1),
        ("x=y=", 0),
    ]:
        assert esdb("scan", "typed.esdb", "--index", condition, "--count").text == f"{count}\n"
    assert "the values of 'i' are integers" in esdb("scan", "typed.esdb", "--index", "i=five").err
    assert "the values of 'b' are true and false" in esdb("scan", "typed.esdb", "--index", "b=1").err


def test_binary_keys(esdb, tmp_path):
    """Keys that are not text are passed in hexadecimal."""
    with esformat.create(tmp_path / "binary.esdb", keys="binary") as writer:
        writer.add(b"\xff\x00", b"x", timestamp=1, grouping=b"\xfe")
        writer.add(b"text", b"y", timestamp=2)
    result = esdb("scan", "binary.esdb", "--space-hex", "ff 00")
    assert [(row["space"], row["grouping"]) for row in result.rows] == [({"base64": "/wA="}, {"base64": "/g=="})]
    assert len(esdb("scan", "binary.esdb", "--space-hex", "FF00", "--grouping-hex", "fe").rows) == 1
    assert len(esdb("scan", "binary.esdb", "--space", "text").rows) == 1


def test_process(process, activity):
    """A separate process prints the same, including Arrow through a pipe."""
    result = process("scan", "activity.esdb", "--space", "other")
    assert (result.status, result.err) == (0, "")
    assert json.loads(result.out)["space"] == "other"
    assert len(pa.ipc.open_stream(process("scan", "activity.esdb", "--format", "arrow").out).read_all()) == 29
