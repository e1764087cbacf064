"""CSV files of every kind become rows; a bad record is reported with its line."""

from __future__ import annotations

import csv
import io
from contextlib import closing

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esformat.convert import records
from esformat.convert.csv_reader import CsvReader
from esformat.convert.errors import InputError
from esformat.convert.roles import Roles
from esformat.convert.source import Source

ROLES = Roles(space="u", timestamp="t")


def read(data: bytes, roles: Roles = ROLES, **options):
    """Return columns by name, bad rows as (line, reason), the line of each row, and the types of the last batch."""
    with closing(Source("-", stdin=io.BytesIO(data))) as source:
        batches = list(CsvReader(source, roles, **options).rows())
    table = pa.Table.from_batches([rows.batch for rows in batches])
    bad = [(row.number, row.reason) for rows in batches for row in rows.bad]
    lines = [rows.origin.locate(row)[0] for rows in batches for row in range(rows.batch.num_rows)]
    return table.to_pydict(), bad, lines, dict(batches[-1].types) if batches else {}


def test_values_stay_bytes():
    """Values stay as written: leading zeros, spaces, quotes, line ends within quotes, bytes that are not text."""
    columns, bad, lines, types = read(b'u,t,x\n007, a ,"1"\n"b\nc","""q""",2\r\n\xff,,""\n')
    assert columns == {"u": [b"007", b"b\nc", b"\xff"], "t": [b" a ", b'"q"', None], "x": [b"1", b"2", b""]}
    assert bad == []
    assert lines == [2, 3, 5]
    assert types == {"u": pa.string(), "t": pa.string(), "x": pa.string()}


def test_types():
    """Columns without a role get a type from their values; keys are always text."""
    _, _, _, types = read(b"u,t,i,f,b,s,n\n1,2,3,4.5,true,x,\n")
    assert [str(type_) for type_ in types.values()] == ["string", "string", "int64", "double", "bool", "string", "null"]


def test_null_and_empty():
    """An empty field is null, a quoted one is empty text; other words for null are optional."""
    columns, *_ = read(b'u,t\n,""\nNULL,\\N\n"NULL",-\n')
    assert columns == {"u": [None, b"NULL", b"NULL"], "t": [b"", b"\\N", b"-"]}
    columns, *_ = read(b'u,t\n,""\nNULL,\\N\n"NULL",-\n', nulls=("NULL", "\\N"))
    assert columns == {"u": [None, None, b"NULL"], "t": [b"", None, b"-"]}


def test_bad_records():
    """Records with too many or too few fields are reported with their line; the records around them are kept."""
    columns, bad, lines, _ = read(b'u,t\n1,2\n3\n"a\nb",4,5\n\n6,7\n\xff,\xfe,8\n9,10')
    assert columns == {"u": [b"1", b"6", b"9"], "t": [b"2", b"7", b"10"]}
    assert bad == [
        (3, "1 fields, but 2 column names"),
        (4, "3 fields, but 2 column names"),
        (8, "3 fields, but 2 column names"),
    ]
    assert lines == [2, 7, 9]


def test_text_of_bad_records():
    """A bad record is shown as it was written."""
    with closing(Source("-", stdin=io.BytesIO(b'u,t\n"a\nb",4,\xff\r\n'))) as source:
        (rows,) = CsvReader(source, ROLES).rows()
    assert rows.bad[0].text == '"a\nb",4,\\xff'
    assert rows.bad[0].path == "<stdin>"


def test_open_quote():
    """A quote that is never closed loses only its line."""
    columns, bad, lines, _ = read(b'u,t\n1,"2\n3,4\n')
    assert columns == {"u": [b"3"], "t": [b"4"]}
    assert bad == [(2, "a quoted field begins here and its quote is never closed")]
    assert lines == [3]


@pytest.mark.parametrize(
    "data",
    [b"u,t\n1,2\n", b"u,t\r\n1,2\r\n", b"u,t\r1,2\r", b"u,t\n1,2", b"\n\nu,t\n\n1,2\n\n",
     b"\xef\xbb\xbfu,t\n1,2\n", b'"u","t"\n"1","2"\n'],
)  # fmt: skip
def test_dialects(data):
    """Line ends, a missing last one, blank lines, a byte order mark and quotes make no difference."""
    assert read(data)[0] == {"u": [b"1"], "t": [b"2"]}


def test_delimiter_and_header():
    """Other delimiters and files without a header are supported."""
    assert read(b"u\tt\n1\t2\n", delimiter="\t")[0] == {"u": [b"1"], "t": [b"2"]}
    assert read(b"1|2\n", delimiter="|", header=("u", "t"))[0] == {"u": [b"1"], "t": [b"2"]}


def test_columns_without_a_role_are_not_read():
    """Only columns with a role are parsed."""
    assert list(read(b"u,t,a,b\n1,2,3,4\n", Roles(space="u", timestamp="t", columns=("b",)))[0]) == ["u", "t", "b"]


def test_nameless_columns():
    """A column without a name is named after its position."""
    assert list(read(b"u,t,\n1,2,3\n")[0]) == ["u", "t", "column_3"]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "is empty; a CSV file begins with a line of column names"),
        (b"\n\n", "its first line has no column names"),
        (b"a,b\n1,2\n", "has no columns 'u' and 't', only 'a', 'b'; choose the columns with --space and --timestamp"),
        (b"u,b\n1,2\n", "has no column 't', only 'u', 'b'; choose the column with --timestamp"),
        (b"u,t,x,x\n", "has a duplicate column 'x'; rename one of them"),
        (b"\xff,b\n", "line 1: its column names are not UTF-8 text; convert it, for example with iconv"),
        (b'"u,t\n1,2\n', "its first line has no column names"),
        ("u,t\n".encode("utf-16"), "is UTF-16 text"),
    ],
)
def test_bad_files(data, complaint):
    """An unreadable file is refused with the reason."""
    with pytest.raises(InputError, match=f"<stdin>: {complaint}"):
        read(data)


FIELDS = st.text('ab",\n\r é', max_size=6)


@given(
    st.lists(st.lists(FIELDS, min_size=3, max_size=3), max_size=20), st.integers(1, 40), st.sampled_from(["\n", "\r\n"])
)
def test_agrees_with_the_csv_module(rows, block_bytes, line_end):
    """Everything that the csv module writes is read as the same fields, in blocks of any size."""
    written = io.StringIO(newline="")
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator=line_end).writerows([["u", "t", "x"], *rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BLOCK_BYTES", block_bytes)
        columns, bad, _, _ = read(written.getvalue().encode())
    assert bad == []
    assert [list(row) for row in zip(*columns.values(), strict=True)] == [
        [field.encode() for field in row] for row in rows
    ]


@given(st.lists(st.sampled_from(["1,2", "3", "4,5,6", '"a\nb",7', "", '"x"y,8']), max_size=30), st.integers(1, 20))
def test_lines_in_blocks_of_any_size(lines, block_bytes):
    """Good and bad rows have the number of their first line, wherever blocks end."""
    expected_good, expected_bad, number = [], [], 2
    for line in lines:
        if line:
            (expected_bad if line in ("3", "4,5,6") else expected_good).append(number)
        number += 1 + line.count("\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BLOCK_BYTES", block_bytes)
        _, bad, found, _ = read("\n".join(["u,t", *lines, ""]).encode())
    assert found == expected_good
    assert [number for number, _ in bad] == expected_bad
