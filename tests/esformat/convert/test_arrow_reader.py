"""Parquet and Arrow files become rows; damage and missing columns are reported."""

from __future__ import annotations

import io
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet
import pytest

import esformat
from esformat.convert import Load, Skip, arrow_reader
from esformat.convert.arrow_reader import ArrowReader
from esformat.convert.errors import InputError
from esformat.convert.roles import Roles
from esformat.convert.source import Source

TABLE = pa.table({"u": ["a", "b", "c"], "t": [1, 2, 3], "a.b": [1.5, None, 2.5], "s": [{"a": 1}, None, {"a": 2}]})
ROLES = Roles(space="u", timestamp="t")


def parquet(table, **options) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(table, sink, **options)
    return sink.getvalue()


def arrow_file(table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


def arrow_stream(table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


WRITERS = [(parquet, "parquet"), (arrow_file, "arrow"), (arrow_stream, "arrow")]


def read(data: bytes, format_: str, roles: Roles = ROLES):
    with closing(Source("-", stdin=io.BytesIO(data))) as source:
        return list(ArrowReader(source, roles, format_).rows())


@pytest.mark.parametrize(("write", "format_"), WRITERS)
def test_rows(write, format_, compression):
    """Rows, types and row numbers are right, whatever the compression of the file."""
    found = read(compression[1](write(TABLE)), format_)
    assert pa.Table.from_batches([rows.batch for rows in found]) == TABLE
    assert [rows.origin.locate(row)[0] for rows in found for row in range(rows.batch.num_rows)] == [1, 2, 3]
    assert found[-1].origin.locate(found[-1].batch.num_rows - 1)[1] == '{"u":"c","t":3,"a.b":2.5,"s":{"a":2}}'
    assert dict(found[0].types) == {field.name: field.type for field in TABLE.schema}


@pytest.mark.parametrize(("write", "format_"), WRITERS)
def test_only_what_is_wanted(write, format_):
    """Columns without a role are not read."""
    (first, *_) = read(write(TABLE), format_, Roles(space="u", timestamp="t", columns=("a.b",)))
    assert first.batch.schema.names == ["u", "t", "a.b"]


@pytest.mark.parametrize(("write", "format_"), WRITERS)
def test_missing_column(write, format_):
    """The error for a missing column names the existing ones."""
    with pytest.raises(
        InputError, match=r"has no column 'x', only 'u', 't', 'a.b', 's'; choose the column with --space"
    ):
        read(write(TABLE), format_, Roles(space="x", timestamp="t"))


@pytest.mark.parametrize(("write", "format_"), WRITERS)
def test_no_rows(write, format_):
    """A file without rows yields none."""
    assert read(write(TABLE.slice(0, 0)), format_) == []


@pytest.mark.parametrize(("write", "format_"), WRITERS)
def test_cut_short(write, format_):
    """A file cut short is refused, or yields whole batches of a stream."""
    data = write(TABLE)
    for length in range(0, len(data), 7):
        try:
            found = read(data[:length], format_)
        except InputError:
            continue
        rows = pa.Table.from_batches([rows.batch for rows in found], TABLE.schema)
        assert write is arrow_stream
        assert rows == TABLE.slice(0, len(rows))


@pytest.mark.parametrize("format_", ["parquet", "arrow"])
@pytest.mark.parametrize("data", [b"", b"x", b"not at all such a file, but some text", b"PAR1", b"ARROW1\0\0"])
def test_other_bytes(data, format_):
    """Other bytes are refused as unreadable."""
    with pytest.raises(InputError, match="<stdin>: cannot be read: "):
        read(data, format_)


def test_feather_1():
    """The first version of Feather is refused by name."""
    with pytest.raises(InputError, match="Feather file of version 1; write it again as version 2"):
        read(b"FEA1" + bytes(100), "arrow")


def test_hostile_batch():
    """A batch with offsets beyond its buffers is refused, not read."""
    data = bytearray(arrow_stream(pa.table({"u": ["aaaa", "bbbb"], "t": [1, 2]})))
    at = data.index((4).to_bytes(4, "little") + (8).to_bytes(4, "little"))
    data[at : at + 4] = (2**30).to_bytes(4, "little")
    with pytest.raises(InputError, match="rows from 1 on are damaged"):
        read(bytes(data), "arrow")


@pytest.mark.parametrize("format_", ["parquet", "arrow"])
def test_times_that_their_types_do_not_allow(format_):
    """The time 24:00, which some programs write, is named; it is no damage."""
    midnight = pa.array([86_400_000_000]).view(pa.time64("us"))
    table = pa.table({"u": ["a"], "t": [1], "v": midnight})
    with pytest.raises(InputError, match=r"column 'v': time64\[us\] 86400000000 is not within.*; store the column in"):
        read(parquet(table) if format_ == "parquet" else arrow_file(table), format_)


def test_two_columns_of_one_name():
    """Two columns with one name are refused."""
    table = pa.table([["a"], [1], [2], [3]], names=["u", "t", "x", "x"])
    with pytest.raises(InputError, match="duplicate column 'x'"):
        read(arrow_file(table), "arrow")


def test_large_batches_are_cut(monkeypatch):
    """A large batch is split."""
    monkeypatch.setattr(arrow_reader, "_BATCH_ROWS", 2)
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)
    found = read(sink.getvalue(), "arrow")
    assert [rows.batch.num_rows for rows in found] == [2, 1]
    assert found[1].origin.locate(0)[0] == 3


def test_encoded_columns():
    """Dictionaries and views have the type of their values."""
    table = pa.table({"u": pa.array(["a"]).dictionary_encode(), "t": [1], "v": pa.array(["x"], pa.string_view())})
    (rows,) = read(arrow_stream(table), "arrow")
    assert dict(rows.types) == {"u": pa.string(), "t": pa.int64(), "v": pa.string()}


LONG = "more than twelve bytes"
VIEWS = pa.array(["x", LONG], pa.string_view())


@pytest.mark.parametrize(("column", "expected"), [
    (pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.uint32()), VIEWS), [LONG, "x", None]),
    (pa.ListArray.from_arrays([0, 1, 1, 2], VIEWS), [["x"], [], [LONG]]),
    (pa.DictionaryArray.from_arrays([1, 0, 0], pa.array([[1], [2, 3]])), [[2, 3], [1], [1]]),
    (pa.DictionaryArray.from_arrays([1, 0, 0], pa.array([{"a": 1}, None])), [None, {"a": 1}, {"a": 1}]),
], ids=["categories of Polars", "list of views", "dictionary of lists", "dictionary of objects"])  # fmt: skip
def test_types_that_arrow_cannot_take_apart(tmp_path, column, expected):
    """Polars writes categories as views in a dictionary. Arrow can neither cast nor filter several such types."""
    path = tmp_path / "polars.arrow"
    path.write_bytes(arrow_file(pa.table({"u": ["a", "b", "c"], "t": [1, 2, None], "v": column})))
    with Load([str(path)], ROLES, bad_rows=Skip()) as load:
        load.write(lambda plan: esformat.create(tmp_path / "a.esdb", schema=pa.schema(plan.typed.items())))
    with esformat.open(tmp_path / "a.esdb") as segment:
        assert segment.scan().to_table()["v"].to_pylist() == expected[:2]


@pytest.mark.parametrize("wrap", [
    lambda texts: pa.ListArray.from_arrays([0, 1, 1, 3], texts),
    lambda texts: pa.StructArray.from_arrays([texts], ["name"]),
], ids=["list", "object"])  # fmt: skip
def test_dictionaries_of_several_row_groups(wrap):
    """Polars writes lists and objects of categories with dictionaries, which Arrow cannot join across row groups."""
    texts = pa.array(["x", "x", "y"])
    table = pa.table({"u": ["a", "b", "c"], "t": [1, 2, 3], "v": wrap(texts.dictionary_encode())})
    found = read(parquet(table, row_group_size=1), "parquet")
    assert [row for rows in found for row in rows.batch["v"].to_pylist()] == wrap(texts).to_pylist()
    assert [rows.origin.locate(0)[0] for rows in found] == [1, 2, 3]


def test_no_such_value():
    """A value that cannot be read is refused with the names of file and column."""
    union = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])
    table = pa.table({"u": ["a"], "t": [1], "v": pa.StructArray.from_arrays([VIEWS[:1], union], ["s", "n"])})
    with pytest.raises(InputError, match="<stdin>: column 'v' cannot be read"):
        read(arrow_file(table), "arrow")


@pytest.mark.parametrize("more", [arrow_stream(TABLE), arrow_stream(pa.table({"x": [1]})), b"x", bytes(64)], ids=len)
def test_more_than_a_stream(more, compression):
    """What follows a stream, such as another one that was appended with `cat`, is refused, not left out."""
    data = compression[1](arrow_stream(TABLE))
    assert sum(rows.batch.num_rows for rows in read(data, "arrow")) == 3
    with pytest.raises(InputError, match="more bytes after the end of its Arrow stream; put each stream into a file"):
        read(compression[1](arrow_stream(TABLE) + more), "arrow")
