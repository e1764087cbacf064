"""A file converted there and back has the same bytes as a segment that was never converted."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from effort import share_of

import esformat
from esformat import InvalidEventError, UsageError, customerio
from esformat.convert import Conversion, InputError, Roles, convert_file

ROOT = Path(__file__).parents[3]
GOLDEN = {path.stem: path for path in sorted((ROOT / "fixtures" / "golden").glob("*.esdb"))}
SLOW = ("large-payload", "many-spaces", "postings")
HELD = [
    *((name, extension) for name in sorted(GOLDEN) if name not in SLOW for extension in ("arrow", "feather", "arrows")),
    *((name, "parquet") for name in sorted(GOLDEN) if name not in (*SLOW, "nested", "numbers", "strings")),
    *((name, ending) for name in sorted(GOLDEN) if name not in (*SLOW, "numbers") for ending in ("csv", "jsonl")),
]
REFUSED = [
    ("nested", "parquet"),
    ("numbers", "parquet"),
    ("strings", "parquet"),
    ("numbers", "csv"),
]


@pytest.mark.parametrize(("name", "extension"), share_of(HELD, 8))
def test_there_and_back(tmp_path, name, extension):
    """Types (nested ones, too), nulls, order, indexes, properties and the kind of keys are preserved."""
    between, back, plain = (tmp_path / each for each in (f"a.{extension}", "back.esdb", "plain.esdb"))
    events = convert_file(str(GOLDEN[name]), str(between))
    assert convert_file(str(between), str(back), Conversion(schema=str(GOLDEN[name]))) == events
    convert_file(str(GOLDEN[name]), str(plain))
    assert back.read_bytes() == plain.read_bytes()


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("s", "Asia/Tokyo"), pa.time32("s"), pa.date64()])
def test_types_that_parquet_has_not(tmp_path, kind):
    """Seconds and date64 are restored, also within lists, although Parquet stores other types."""
    whole = pa.int32() if kind.bit_width == 32 else pa.int64()
    column = pa.array([0, None, 86_400_000 if kind == pa.date64() else 86_399], whole).cast(kind)
    lists = pa.array([[value] for value in column.to_pylist()], pa.list_(kind))
    table = pa.table({"space": ["a"] * len(column), "timestamp": pa.array([1] * len(column)), "v": column, "l": lists})
    with esformat.create(tmp_path / "a.esdb", schema=table.schema) as writer:
        writer.add_table(table)
    convert_file(str(tmp_path / "a.esdb"), str(tmp_path / "b.parquet"))
    convert_file(str(tmp_path / "b.parquet"), str(tmp_path / "c.esdb"))
    assert (tmp_path / "c.esdb").read_bytes() == (tmp_path / "a.esdb").read_bytes()


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("within", [lambda kind: kind, pa.list_, lambda kind: pa.struct([pa.field("o", kind)])])
def test_pairs_within_structs_in_parquet(tmp_path, within, nullable):
    """Fixed-size lists that may not be null, within a null struct, are refused: Arrow cannot read them from Parquet."""
    kind = within(pa.struct([pa.field("a", pa.list_(pa.int32(), 2), nullable=nullable)]))
    table = pa.table({"space": ["s"] * 2, "timestamp": [1, 2], "v": pa.nulls(2, kind)})
    source, made, back = (str(tmp_path / name) for name in ("a.esdb", "b.parquet", "c.esdb"))
    with esformat.create(source, schema=table.schema) as writer:
        writer.add_table(table)
    if not nullable:
        with pytest.raises(InvalidEventError, match="'v'"):
            convert_file(source, made)
        return
    convert_file(source, made)
    convert_file(made, back)
    assert Path(back).read_bytes() == Path(source).read_bytes()


@pytest.mark.parametrize(("name", "extension"), REFUSED)
def test_what_a_format_cannot_hold(tmp_path, name, extension):
    """A conversion that would lose something is refused, and no file remains."""
    with pytest.raises(InvalidEventError, match=extension):
        convert_file(str(GOLDEN[name]), str(tmp_path / f"a.{extension}"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_floats_of_csv(tmp_path, kind):
    """NaN, infinities and -0.0 are preserved in CSV."""
    source, between, back = (str(tmp_path / name) for name in ("a.esdb", "b.csv", "c.esdb"))
    values = pa.array([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, None], kind)
    with esformat.create(source) as writer:
        writer.add_table(pa.table({"space": ["a"] * 6, "timestamp": range(6), "x": values}))
    assert convert_file(source, between) == convert_file(between, back, Conversion(schema=source)) == 6
    assert Path(source).read_bytes() == Path(back).read_bytes()


def test_allowed_loss(tmp_path, write):
    """With `allow_loss`, text is written although NaN becomes null."""
    table = pa.table({"space": ["a"], "timestamp": pa.array([1]), "x": [float("nan")]})
    with esformat.create(tmp_path / "nan.esdb") as writer:
        writer.add_table(table)
    source, target = str(tmp_path / "nan.esdb"), tmp_path / "nan.jsonl"
    with pytest.raises(InvalidEventError, match="column 'x'"):
        convert_file(source, str(target))
    assert convert_file(source, str(target), Conversion(allow_loss=True)) == 1
    assert json.loads(target.read_text())["x"] is None


GO = ROOT / "fixtures" / "go_esdb"


@pytest.mark.parametrize("name", ["small", "long_index", "many_spaces"])
def test_go_archive_there_and_back(tmp_path, name):
    """An archive of the Go ESDB becomes a segment, and the segment an archive with the same events and indexes."""
    segment, archive = str(tmp_path / "a.esdb"), str(tmp_path / "b.esdb")
    events = convert_file(str(GO / f"{name}.esdb"), segment)
    assert convert_file(segment, archive, Conversion(target_format="go-esdb")) == events
    with customerio.open(GO / f"{name}.esdb") as old, esformat.open(segment) as middle, customerio.open(archive) as new:
        assert old.scan().to_table() == middle.scan().to_table() == new.scan().to_table()
        assert old.indexes == middle.indexes == new.indexes


@pytest.mark.parametrize("name", ["stream_open", "stream_closed", "stream_torn"])
def test_go_stream_there_and_back(tmp_path, name):
    """A Go stream becomes a segment of one space, in the same order, and the segment an equal stream."""
    segment, stream = str(tmp_path / "a.esdb"), str(tmp_path / "b.esdbstream")
    assert convert_file(str(GO / f"{name}.esdbstream"), segment) == 300
    assert convert_file(segment, stream) == 300
    with customerio.open(GO / f"{name}.esdbstream") as old, customerio.open(stream) as new:
        assert old.scan().to_table() == new.scan().to_table()


def test_go_index_names(tmp_path):
    """Index names reserved in segments and index values that are not text are preserved."""
    path, segment, again = (str(tmp_path / name) for name in ("go.esdb", "segment.esdb", "again.esdb"))
    with customerio.create(path) as writer:
        writer.add("s", b"x", timestamp=0, indexes={"data": "1", "": "2", "_": "3", "bytes": b"\xff"})
    convert_file(path, segment)
    convert_file(segment, again, Conversion(target_format="go-esdb"))
    assert Path(path).read_bytes() == Path(again).read_bytes()
    with esformat.open(segment) as opened:
        assert opened.indexes == ("__", "_", "data_")
        assert next(iter(opened.scan())).columns == {"bytes": b"\xff"}


def test_what_a_go_file_cannot_hold(tmp_path, write):
    """A Go file refuses columns without an index, other types, fractions of a second and, in a stream, keys."""
    rows = [("a", b"x", 1_000_000, "", {"n": 1})]
    schema = pa.schema([("data", pa.binary()), ("n", pa.int64())])
    numbers = write(rows, schema=schema, indexes=["n"])
    fractions = write([("a", b"x", 1)])
    for segment, kind, message in [
        (numbers, "go-esdb", "int64"),
        (fractions, "go-esdb", "whole second"),
        (fractions, "go-stream", "keeps no space"),
    ]:
        with pytest.raises(InvalidEventError, match=message):
            convert_file(segment.path, str(tmp_path / "out"), Conversion(target_format=kind))
    other = pa.table({"space": ["a"], "timestamp": pa.array([0]), "data": [b"x"], "plain": ["text"]})
    with esformat.create(tmp_path / "plain.esdb") as writer:
        writer.add_table(other)
    with pytest.raises(InvalidEventError, match="no index"):
        convert_file(str(tmp_path / "plain.esdb"), str(tmp_path / "out"), Conversion(target_format="go-esdb"))
    assert not (tmp_path / "out").exists()


def test_files_of_other_origin(tmp_path):
    """A Parquet file from elsewhere needs roles to become a segment, and converts to no other format directly."""
    table = pa.table({"user": ["a"], "time": ["2024-01-01T00:00:00Z"], "type": ["page"]})
    pa.parquet.write_table(table, tmp_path / "p.parquet")
    source = str(tmp_path / "p.parquet")
    how = Conversion(roles=Roles(space="user", timestamp="time", indexes=("type",)))
    assert convert_file(source, str(tmp_path / "p.esdb"), how) == 1
    with pytest.raises(InputError, match="does not define its columns"):
        convert_file(source, str(tmp_path / "p.csv"))


def test_wrong_formats(tmp_path):
    """A name without a format, an unknown format and an existing target are refused."""
    with pytest.raises(UsageError, match="--format"):
        convert_file(str(GOLDEN["one-event"]), str(tmp_path / "out.xyz"))
    with pytest.raises(UsageError, match="invalid format"):
        convert_file(str(GOLDEN["one-event"]), str(tmp_path / "out"), Conversion(target_format="orc"))
    (tmp_path / "there.csv").touch()
    with pytest.raises(UsageError, match="exists"):
        convert_file(str(GOLDEN["one-event"]), str(tmp_path / "there.csv"))


@pytest.mark.parametrize(
    "text", ['{"space":"a"}', "[1]", '{"space":"a","grouping":"","timestamp":"never","data":""}', "{"]
)
def test_rows_that_do_not_fit(tmp_path, text):
    """The error names the line that does not fit the schema; no file is written."""
    (tmp_path / "a.jsonl").write_text(text + "\n")
    with pytest.raises(InputError, match=r"line 1"):
        convert_file(str(tmp_path / "a.jsonl"), str(tmp_path / "a.esdb"), Conversion(schema=str(GOLDEN["one-event"])))
    assert not (tmp_path / "a.esdb").exists()


@pytest.mark.parametrize(("kind", "value"), [(pa.int64(), 1.5), (pa.struct([("a", pa.int64())]), {"a": 1, "b": 2})])
def test_values_that_do_not_fit(tmp_path, kind, value):
    """A value that fits only in part is refused as well."""
    with esformat.create(tmp_path / "schema.esdb", schema=pa.schema([("v", kind)])):
        pass
    row = {"space": "a", "grouping": "", "timestamp": "2026-03-01T00:00:00Z", "v": value}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match=r"line 1"):
        convert_file(
            str(tmp_path / "a.jsonl"), str(tmp_path / "a.esdb"), Conversion(schema=str(tmp_path / "schema.esdb"))
        )
