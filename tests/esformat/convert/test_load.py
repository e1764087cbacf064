"""Files become segments, end to end: formats, compressions, several files, types that change midway, bad rows."""

from __future__ import annotations

import io
import json
import random
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from effort import ALL

import esformat
from esformat.convert import (
    BadRowError,
    Clock,
    Collect,
    InputError,
    InputOptions,
    Load,
    Roles,
    Skip,
    csv_reader,
    records,
)
from esformat.format.layout import MAX_COLUMNS

TIMES = [f"2006-04-{number % 28 + 1:02}T17:0{number % 10}:00" for number in range(40)]
TABLE = pa.table({
    "u": [f"user-{number % 5}" for number in range(40)],
    "t": TIMES,
    "g": [f"{number % 3:03}" for number in range(40)],
    "i": [None if number % 7 == 0 else f"{number % 4:02}" for number in range(40)],
    "n": list(range(40)),
    "s": [f'{number}, "é"\n' for number in range(40)],
})  # fmt: skip
ROLES = Roles(space="u", timestamp="t", grouping="g", indexes=("i",))


def as_csv(table) -> bytes:
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink)
    return sink.getvalue()


def as_jsonl(table) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()


def as_parquet(table) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink, row_group_size=7)
    return sink.getvalue()


def as_arrow(table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return sink.getvalue()


def as_arrow_stream(table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return sink.getvalue()


FORMATS = {
    "csv": as_csv, "jsonl": as_jsonl, "parquet": as_parquet, "arrow": as_arrow, "arrows": as_arrow_stream,
}  # fmt: skip


def load(tmp_path, inputs, roles=ROLES, options=None, **more):
    """Load `inputs` into a segment; return its events as a table in file order, and the summary."""
    out = tmp_path / "out.esdb"
    with Load([str(path) for path in inputs], roles, options or InputOptions(), **more) as loading:
        summary = loading.write(lambda _: esformat.create(out, indexes=roles.indexes, keys=roles.keys, overwrite=True))
    with esformat.open(out) as segment:
        return segment.scan().to_table(), summary


def expected_events(table) -> list[dict]:
    """The events of rows like those of TABLE, from a plain sort."""
    rows = [
        {"space": row["u"], "grouping": row["g"], "time": row["t"], "i": row["i"], "n": row["n"], "s": row["s"]}
        for row in table.to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["space"], row["grouping"], row["time"]))


def found_events(table) -> list[dict]:
    rows = table.to_pylist()
    for row in rows:
        row["time"] = row.pop("timestamp").strftime("%Y-%m-%dT%H:%M:%S")
    return rows


@pytest.mark.parametrize("format_", FORMATS)
def test_round_trip(tmp_path, compression, format_):
    """Every format in every compression has the same events: keys and indexes stay text, numbers are numbers."""
    extension, compress = compression
    path = tmp_path / f"in.{format_}{extension}"
    path.write_bytes(compress(FORMATS[format_](TABLE)))
    found, summary = load(tmp_path, [path])
    assert found_events(found) == expected_events(TABLE)
    assert (summary.num_events, summary.bad_row_count, summary.notes) == (40, 0, ())
    assert summary.input_bytes == path.stat().st_size


@pytest.mark.parametrize("format_", FORMATS)
def test_stdin(tmp_path, format_):
    """Standard input has the same events as a file."""
    data = io.BytesIO(FORMATS[format_](TABLE))
    found, _ = load(tmp_path, ["-"], options=InputOptions(format=format_.removesuffix("s")), stdin=data)
    assert found_events(found) == expected_events(TABLE)


def test_several_files(tmp_path):
    """Files of several formats become one set of events; a column that a file lacks is null there."""
    first, second = TABLE.slice(0, 20), TABLE.slice(20).drop_columns(["n"])
    (tmp_path / "a.csv").write_bytes(as_csv(first))
    (tmp_path / "b.parquet").write_bytes(as_parquet(second))
    found, summary = load(tmp_path, [tmp_path / "a.csv", tmp_path / "b.parquet"])
    without = pa.concat_tables([first, second.append_column("n", pa.nulls(20, pa.int64()))], promote_options="default")
    assert found_events(found) == expected_events(without)
    assert summary.num_events == 40


CHANGES = [
    ([b"u,t,x\na,2006-04-07,1\n", b"u,t,x\na,2006-04-08,2.5\n"], pa.float64(), [1.0, 2.5]),
    ([b"u,t,x\na,2006-04-07,1.10\n", b"u,t,x\na,2006-04-08,z\n"], pa.string(), ["1.10", "z"]),
    ([b"u,t,x\na,2006-04-07,1\n", b"u,t,x\na,2006-04-08,007\n"], pa.string(), ["1", "007"]),
    ([b"u,t,x\na,2006-04-07,\n", b"u,t,x\na,2006-04-08,7\n"], pa.int64(), [None, 7]),
    ([b"u,t\na,2006-04-07\n", b"u,t,x\na,2006-04-08,7\n"], pa.int64(), [None, 7]),
]


@pytest.mark.parametrize(("files", "type_", "expected"), CHANGES, ids=range(len(CHANGES)))
def test_types_that_change(tmp_path, files, type_, expected):
    """If later rows change a column's type, the result does not depend on the order of the files; no text changes."""
    paths = []
    for number, data in enumerate(files):
        paths.append(tmp_path / f"{number}.csv")
        paths[-1].write_bytes(data)
    roles = Roles(space="u", timestamp="t")
    for order in (paths, paths[::-1]):
        found, _ = load(tmp_path, order, roles)
        assert found.schema.field("x").type == type_
        assert found["x"].to_pylist() == expected


def test_types_that_change_inside_a_pipe(tmp_path, monkeypatch):
    """The same is true of a pipe, which can be read only once."""
    monkeypatch.setattr(records, "BLOCK_BYTES", 40)
    lines = [{"u": "a", "t": f"2006-04-{day:02}", "x": day} for day in range(1, 10)]
    lines.append({"u": "a", "t": "2006-04-10", "x": "ten", "y": [1]})
    data = io.BytesIO("".join(json.dumps(line) + "\n" for line in lines).encode())
    found, _ = load(tmp_path, ["-"], Roles(space="u", timestamp="t"), InputOptions(format="jsonl"), stdin=data)
    assert found["x"].to_pylist() == [*map(str, range(1, 10)), "ten"]
    assert found["y"].to_pylist() == [None] * 9 + [[1]]


def test_nanoseconds_far_in(tmp_path, monkeypatch):
    """Nanoseconds may first appear late in the input."""
    monkeypatch.setattr(records, "BLOCK_BYTES", 30)
    path = tmp_path / "a.csv"
    path.write_text("u,t\na,2006-04-07T12:00Z\nb,2006-04-07T12:00Z\nc,2006-04-07T12:00:00.000000001Z\n")
    found, summary = load(tmp_path, [path], Roles(space="u", timestamp="t"))
    assert [value % 1000 for value in found["t_ns"].to_pylist()] == [0, 0, 1]
    assert summary.notes == (
        "times have digits below the microsecond: column 't_ns' keeps them in full, as nanoseconds",
    )


NOTES = [
    ("u,t,space\na,2006-04-07,1\n", {},
     ("column 'space' is stored as 'space_': the name 'space' is reserved",)),
    ("u,t,x\na,2006-04-07,\n", {"indexes": ("x",)}, ("column 'x' has no value in any row",)),
    ("u,t\na,2006-10-29 02:30\n", {"clock": Clock(None, "Europe/Stockholm")},
     ("1 time occurs twice in Europe/Stockholm, where clocks were put back: the first is used",)),
    ("u,t\na,1772352000\na,1772352000500\n", {},
     ("numeric timestamps were read as ms and s since 1970: --timestamp-format changes that",)),
    ("u,t\na,1772352000\n", {"clock": Clock("s")}, ()),
]  # fmt: skip


@pytest.mark.parametrize(("text", "options", "notes"), NOTES, ids=range(len(NOTES)))
def test_notes(tmp_path, text, options, notes):
    """The summary notes whatever a user may not expect."""
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert load(tmp_path, [path], Roles(space="u", timestamp="t", **options))[1].notes == notes


def test_note_of_a_key_that_no_line_has(tmp_path):
    """The summary notes a misspelt JSON key: JSON lines have no header to check it against."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"u":"a","t":"2006-04-07"}\n')
    found, summary = load(tmp_path, [path], Roles(space="u", timestamp="t", columns=("misspelt",)))
    assert summary.notes == ("column 'misspelt' has no value in any row",)
    assert found["misspelt"].to_pylist() == [None]


DIRTY = (
    b"u,t,x\na,2006-04-07,1\nb,2006-04-08\n,2006-04-09,3\nd,never,4\n\xff,2006-04-10,5\nf,,6\n"
    b'g,2006-04-11,seven\n"h,8\n'
)
REASONS = [
    (3, "2 fields, but 3 column names"),
    (4, "no space: 'u' has no value"),
    (
        5,
        "timestamp 'never' is neither an ISO 8601 time nor a number since 1970: give the format with "
        "--timestamp-format, such as '%d/%m/%Y %H:%M'",
    ),
    (
        6,
        "space 'u' is not UTF-8 text: convert it (iconv -f latin1 -t utf-8), or take bytes with --keys binary",
    ),
    (7, "no timestamp: 't' has no value"),
    (9, "a quoted field begins here and its quote is never closed"),
]


@pytest.fixture
def dirty(tmp_path):
    path = tmp_path / "dirty.csv"
    path.write_bytes(DIRTY)
    return path


def test_stop(tmp_path, dirty):
    """The first bad row stops the load; neither the output nor a temporary file remains."""
    expected = (
        r"dirty\.csv: line 3: 2 fields, but 3 column names; correct it, or leave bad rows out with --on-error skip or"
    )
    with pytest.raises(BadRowError, match=expected):
        load(tmp_path, [dirty], Roles(space="u", timestamp="t"))
    assert list(tmp_path.iterdir()) == [dirty]


def test_skip(tmp_path, dirty):
    """Bad rows are left out and counted."""
    found, summary = load(tmp_path, [dirty], Roles(space="u", timestamp="t"), bad_rows=Skip())
    assert found["space"].to_pylist() == ["a", "g"]
    assert (summary.num_events, summary.bad_row_count) == (2, 6)


@pytest.mark.parametrize("block_bytes", [10, 25, 8 << 20])
def test_collect(tmp_path, dirty, monkeypatch, block_bytes):
    """Bad rows are collected once each, with file, line, reason and text, wherever blocks end and passes restart."""
    monkeypatch.setattr(records, "BLOCK_BYTES", block_bytes)
    bad = tmp_path / "bad.jsonl"
    load(tmp_path, [dirty], Roles(space="u", timestamp="t"), bad_rows=Collect(bad))
    rows = [json.loads(line) for line in bad.read_text().splitlines()]
    assert [(row["line"], row["reason"]) for row in rows] == REASONS
    assert {row["file"] for row in rows} == {str(dirty)}
    assert rows[3]["text"] == "\\xff,2006-04-10,5"


def test_bad_rows_of_parquet(tmp_path):
    """Bad rows of typed files have their row number."""
    path = tmp_path / "a.parquet"
    path.write_bytes(as_parquet(pa.table({"u": ["a", None], "t": [datetime(2006, 4, 7), None], "x": [1, 2]})))
    bad = tmp_path / "bad.jsonl"
    load(tmp_path, [path], Roles(space="u", timestamp="t"), bad_rows=Collect(bad))
    assert json.loads(bad.read_text()) == {
        "file": str(path), "row": 2, "reason": "no space: 'u' has no value", "text": '{"u":null,"t":null,"x":2}',
    }  # fmt: skip


@pytest.mark.parametrize("data", [b"u,t\n", b"u,t\n,\n"])
def test_no_events(tmp_path, data):
    """An input without events becomes a segment without events."""
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    found, summary = load(tmp_path, [path], Roles(space="u", timestamp="t", indexes=()), bad_rows=Skip())
    assert (len(found), summary.num_events) == (0, 0)
    assert found.schema.names == ["space", "grouping", "timestamp"]


def test_bad_file_in_the_middle(tmp_path):
    """An unreadable input discards the events of the inputs before it."""
    good, bad = tmp_path / "a.csv", tmp_path / "b.csv"
    good.write_bytes(as_csv(TABLE))
    bad.write_bytes(b"u,t\n")
    with pytest.raises(InputError, match=r"b\.csv: has no columns 'g' and 'i'"):
        load(tmp_path, [good, bad])
    assert sorted(tmp_path.iterdir()) == [good, bad]


def test_missing_file(tmp_path):
    """A missing input is reported before anything is written."""
    with pytest.raises(InputError, match=r"nowhere\.csv: no such file"):
        load(tmp_path, [tmp_path / "nowhere.csv"])
    assert list(tmp_path.iterdir()) == []


def test_damaged_inputs(tmp_path):
    """An input with damaged bytes is read, or refused with an error of one line."""
    chance = random.Random(1)
    for _ in range(200 if ALL else 50):
        format_ = chance.choice(list(FORMATS))
        data = bytearray(FORMATS[format_](TABLE))
        for _ in range(chance.randint(0, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)) :]
        options = InputOptions(format="arrow" if format_ == "arrows" else format_)
        message = "<stdin>: "
        try:
            load(tmp_path, ["-"], options=options, stdin=io.BytesIO(bytes(data)), bad_rows=Skip())
        except esformat.EsdbError as error:
            message = str(error)
        assert message.startswith("<stdin>: ")
        assert "\n" not in message


def test_progress(tmp_path):
    """Progress counts the stored bytes of all inputs, and ends at their total."""
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path in paths:
        path.write_bytes(as_csv(TABLE))
    calls = []
    load(tmp_path, paths, progress=lambda done, total: calls.append((done, total)))
    size = sum(path.stat().st_size for path in paths)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert calls[-1] == (size, size)


def test_same_bytes(tmp_path):
    """The same input makes the same file, in one block or in many."""
    path = tmp_path / "a.csv"
    path.write_bytes(as_csv(TABLE))
    found = []
    for block_bytes in (8 << 20, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(records, "BLOCK_BYTES", block_bytes)
            load(tmp_path, [path])
        found.append((tmp_path / "out.esdb").read_bytes())
    assert found[0] == found[1]


def test_memory_stays_bounded(tmp_path, monkeypatch):
    """Rows are passed to the writer in small batches, at most two blocks behind the reader, however large the input."""
    monkeypatch.setattr(records, "BLOCK_BYTES", 1000)
    path = tmp_path / "a.csv"
    path.write_bytes(b"u,t\n" + b"a,2006-04-07\n" * 5000)
    rows, read, ahead = [], [], []
    blocks = csv_reader.blocks

    def counted(source, *given, **options):
        return blocks(lambda size: read.append(source(size)) or read[-1], *given, **options)

    monkeypatch.setattr(csv_reader, "blocks", counted)

    class Counting:
        def __init__(self, writer):
            self.writer = writer

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.writer.abort()

        def add_table(self, batch):
            ahead.append(sum(map(len, read)) - len(b"u,t\n") - len(b"a,2006-04-07\n") * sum(rows))
            rows.append(batch.num_rows)

    roles = Roles(space="u", timestamp="t")
    with Load([str(path)], roles) as loading:
        loading.write(lambda _: Counting(esformat.create(tmp_path / "out.esdb")))
    assert sum(rows) == 5000
    assert max(rows) < 200
    assert 0 < max(ahead) <= 2 * records.BLOCK_BYTES


def test_types_that_segments_do_not_have_are_announced(tmp_path):
    """UUIDs and JSON values are kept as their storage types, and the summary says so."""
    table = pa.table(
        {
            "u": ["a"],
            "t": ["2026-03-01"],
            "id": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"\1" * 16], pa.binary(16))),
            "extra": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}'])),
            "kind": pa.array(["x"]).dictionary_encode(),
            "nothing": pa.nulls(1),
        }
    )
    unknown = pa.field("month", pa.int64(), metadata={"ARROW:extension:name": "pandas.period"})  # without pandas
    table = table.append_column(unknown, [[672]])
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    roles = Roles(space="u", timestamp="t")
    with Load([str(tmp_path / "x.parquet")], roles) as load:
        (events,) = load.batches()
        told = list(load.assumptions())
    kept = {name: events.column(name)[0].as_py() for name in ("id", "extra", "kind")}
    assert kept == {"id": b"\1" * 16, "extra": '{"a": 1}', "kind": "x"}
    assert [note.split(",")[0] for note in told] == [
        "column 'id' is of type arrow.uuid",
        "column 'extra' is of type arrow.json",
        "column 'kind' is of type dictionary<values=string",
        "column 'month' is of type pandas.period",
        "no row has a value for 'nothing': such a column keeps no type",
    ]


def test_types_inside_others_are_announced(tmp_path):
    """UUIDs and dictionaries inside lists, structs and maps are announced, too."""
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"\1" * 16], pa.binary(16)))
    texts = pa.array(["x"]).dictionary_encode()
    table = pa.table(
        {
            "u": ["a"],
            "t": ["2026-03-01"],
            "ids": pa.ListArray.from_arrays([0, 1], ids),
            "parts": pa.StructArray.from_arrays([pa.array([1]), pa.ListArray.from_arrays([0, 1], texts)], ["n", "k"]),
            "pairs": pa.MapArray.from_arrays([0, 1], pa.array(["k"]), ids),
            "plain": [[{"n": 1}]],
        }
    )
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with Load([str(tmp_path / "x.arrow")], Roles(space="u", timestamp="t")) as load:
        (events,) = load.batches()
        told = list(load.assumptions())
    assert events.column("ids")[0].as_py() == [b"\1" * 16]
    lacking = "which segments do not have: its plain values are kept"
    assert told == [
        f"column 'ids' is of type list of arrow.uuid, {lacking}",
        f"column 'parts' is of type struct of list of {texts.type}, {lacking}",
        f"column 'pairs' is of type map of struct of arrow.uuid, {lacking}",
    ]


def test_too_many_columns(tmp_path):
    """More columns than a segment can have are refused with the file's name and advice."""
    path = tmp_path / "wide.csv"
    names = ["space", "timestamp", *(f"c{number}" for number in range(MAX_COLUMNS + 1))]
    path.write_text(",".join(names) + "\n" + ",".join(["a", "2026-01-01", *("1" * (MAX_COLUMNS + 1))]) + "\n")
    with pytest.raises(InputError, match=r"wide\.csv: has 4,097 columns besides the keys.*--data-json"):
        load(tmp_path, [path], Roles(space="space", timestamp="timestamp"))


def test_units_of_rejected_rows(tmp_path):
    """The note on guessed units leaves out rows that did not become events."""
    path = tmp_path / "in.csv"
    path.write_text("u,t\n,1700000000\na,1700000000000\n")
    _, summary = load(tmp_path, [path], Roles(space="u", timestamp="t"), bad_rows=Skip())
    assert [note.split(" since")[0] for note in summary.notes] == ["numeric timestamps were read as ms"]


def test_repeated_times_of_rejected_rows(tmp_path):
    """The note on times that occur twice leaves out rows that did not become events; `batches` has it, too."""
    path = tmp_path / "in.csv"
    path.write_text("u,t\n,2006-10-29 02:10\na,2006-10-29 02:30\n")
    roles = Roles(space="u", timestamp="t", clock=Clock(None, "Europe/Stockholm"))
    note = "1 time occurs twice in Europe/Stockholm, where clocks were put back: the first is used"
    _, summary = load(tmp_path, [path], roles, bad_rows=Skip())
    assert summary.notes == (note,)
    with Load([str(path)], roles, bad_rows=Skip()) as load_:
        for _ in range(2):
            assert sum(map(len, load_.batches())) == 1
        assert list(load_.assumptions()) == [note]


@pytest.mark.parametrize(("one", "other", "expected"), [
    (pa.array([7]), pa.array([b"\xff"]), [b"7", b"\xff"]),
    (pa.array([b"\xff\x00"], pa.binary(2)), pa.array([[1]]), [b"\xff\x00", b"[1]"]),
    (pa.array([True]), pa.array([b""]), [b"true", b""]),
    (pa.array([7]), pa.array([Decimal("1.10")], pa.decimal128(5, 2)), [Decimal("7.00"), Decimal("1.10")]),
    (pa.array([2**63 - 1]), pa.array([Decimal("1.1")]), [Decimal(2**63 - 1), Decimal("1.1")]),
    (pa.array([0.1]), pa.array([Decimal("1.0000000001")]), ["0.1", "1.0000000001"]),
    (pa.array([0.5], pa.float32()), pa.array([Decimal(10**37 + 1)]), ["0.5", str(10**37 + 1)]),
], ids=["integer, bytes", "bytes, list", "boolean, bytes", "integer, decimal", "large integer, decimal",
        "float, decimal", "short float, long decimal"])  # fmt: skip
def test_columns_of_two_types(tmp_path, one, other, expected):
    """A column of two types keeps every value, in either order of the files."""
    for number, column in enumerate((one, other)):
        table = pa.table({"u": ["a"], "t": [number], "v": column})
        (tmp_path / f"{number}.arrow").write_bytes(as_arrow(table))
    path = tmp_path / "a.esdb"
    for order in ("01", "10"):
        with Load([str(tmp_path / f"{number}.arrow") for number in order], Roles(space="u", timestamp="t")) as load:
            load.write(lambda plan: esformat.create(path, schema=pa.schema(plan.typed.items()), overwrite=True))
        with esformat.open(path) as segment:
            assert segment.scan().to_table()["v"].to_pylist() == expected
