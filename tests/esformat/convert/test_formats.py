"""The format of an input follows from its name, or else from its content."""

from __future__ import annotations

import io
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet
import pytest

import esformat
from esformat.convert.errors import InputError
from esformat.convert.formats import format_by_name, format_of
from esformat.convert.source import Source

NAMES = [
    ("a.csv", "csv"),
    ("a.CSV.GZ", "csv"),
    ("a.tsv.bz2", "tsv"),
    ("a.jsonl", "jsonl"),
    ("a.ndjson.zst", "jsonl"),
    ("dir.csv/a.json", "jsonl"),
    ("a.parquet", "parquet"),
    ("a.pq", "parquet"),
    ("a.arrow", "arrow"),
    ("a.feather.zstd", "arrow"),
    ("a.2024.csv", "csv"),
    ("a.csv.2024", None),
    ("a.gz", None),
    ("csv", None),
    ("a", None),
]


@pytest.mark.parametrize(("path", "expected"), NAMES)
def test_by_name(path, expected):
    """The last extension selects the format; an extension for compression is ignored."""
    assert format_by_name(path) == expected


def format_of_stdin(data, asked=None):
    with closing(Source("-", stdin=io.BytesIO(data))) as source:
        return format_of(source, asked)


def table_bytes(write):
    sink = io.BytesIO()
    write(pa.table({"a": [1]}), sink)
    return sink.getvalue()


def arrow_file(table, sink):
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def arrow_stream(table, sink):
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(
    ("write", "expected"), [(pa.parquet.write_table, "parquet"), (arrow_file, "arrow"), (arrow_stream, "arrow")]
)
def test_by_content(write, expected):
    """Binary formats are recognised by their content, also on standard input."""
    assert format_of_stdin(table_bytes(write)) == expected


def test_asked_for():
    """A requested format takes precedence."""
    assert format_of_stdin(b"", "tsv") == "tsv"


def test_segment(tmp_path):
    """A segment is recognised by its name or its first bytes, and refused."""
    path = tmp_path / "a.esdb"
    esformat.create(path).finish()
    nameless = tmp_path / "nameless"
    nameless.write_bytes(path.read_bytes())
    damaged = tmp_path / "damaged.esdb"
    damaged.write_bytes(b"")
    for name in (path, nameless, damaged):
        with pytest.raises(InputError, match="is a segment, not an input; take its events out with"):
            format_of(Source(str(name)))


def test_not_told():
    """Text without a file name is refused: it may have any format."""
    with pytest.raises(
        InputError, match=r"<stdin>: cannot tell the format from the file name; give --input-format csv\|tsv"
    ):
        format_of_stdin(b"a,b\n")
