"""Blocks consist of whole records, whatever the quotes contain and wherever reads end."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from esformat.convert import records
from esformat.convert.errors import InputError
from esformat.convert.records import Block, CsvSyntax, blocks, line_count, numbered, readable, whole_lines, without_mark

CSV_TEXT = st.text('a",\n\r ', max_size=40).map(str.encode)


def csv_blocks(data: bytes, size: int) -> list[Block]:
    stream = io.BytesIO(data)
    syntax = CsvSyntax(",")
    return list(blocks(lambda _: stream.read(size), syntax.whole, broken="never closed"))


def pyarrow_records(data: bytes) -> list[int]:
    """The number of fields of each record according to pyarrow."""
    found = []

    def note(row):
        found.append(row.actual_columns)
        return "skip"

    # more columns than any record has, so that pyarrow reports every record
    names = [str(number) for number in range(100)]
    pyarrow.csv.read_csv(
        pa.BufferReader(data),
        pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
        pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
    )
    return found


@given(CSV_TEXT)
def test_records_are_those_of_pyarrow(data):
    """Records and fields are split as in pyarrow's parser, so that rows match their lines."""
    data += b"\n"
    syntax = CsvSyntax(",")
    if syntax.whole(data) == len(data):  # an open quote is tested separately
        split = numbered(Block(data, 1), syntax.record)
        assert [syntax.field_count(record) for _, record in split] == (pyarrow_records(data) if split else [])


@given(CSV_TEXT, st.integers(1, 9))
@example(b'"a"\r\nb', 4)
def test_blocks_do_not_depend_on_reads(data, size):
    """The records and their lines do not depend on the number of bytes of each read."""
    record = CsvSyntax(",").record

    def found(size):
        return [row for block in csv_blocks(data, size) for row in numbered(block, record)]

    assert found(size) == found(1000)


@given(CSV_TEXT, st.integers(1, 9))
def test_blocks_hold_everything(data, size):
    """No byte is lost or repeated; a line end is added if the last line lacks one."""
    joined = b"".join(block.data for block in csv_blocks(data, size))
    assert joined == data or joined == data + b"\n"


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"a,b\nc", 4),
        (b'a,"b\nc"\nd', 8),
        (b'a,"b\nc', 0),
        (b'a\n"b', 2),
        (b'5" pipe,a\nb,c\n', 14),  # a quote inside a field is an ordinary character
        (b'"a""b\n"\n', 8),
        (b"a\r", 0),  # a line feed may follow
        (b'"a"\r', 0),
        (b"a\rb\r\nc", 5),
        (b"", 0),
    ],
)
def test_whole_records(data, whole):
    """A block ends at the end of a record; a line end within quotes does not count."""
    assert CsvSyntax(",").whole(data) == whole


@pytest.mark.parametrize(
    ("record", "count"), [(b"a\n", 1), (b"a,b\n", 2), (b'"a,b",c\n', 2), (b'"a"",",,\n', 3), (b'a"b,c"\n', 2)]
)
def test_field_count(record, count):
    """Delimiters within quotes do not separate fields."""
    assert CsvSyntax(",").field_count(record) == count


def test_other_delimiters():
    """The delimiter may be a special character of regular expressions."""
    assert CsvSyntax("|").field_count(b'a|"b|c"|d\n') == 3
    assert CsvSyntax("\t").whole(b'a\t"\n"\nb') == 6


def test_open_quote_costs_one_line():
    """A quote that is never closed makes one broken line; the following lines are read."""
    found = csv_blocks(b'a,b\n"c,d\ne,f\n', 100)
    assert [(block.data, block.first_line, block.broken) for block in found] == [
        (b"a,b\n", 1, ""),
        (b'"c,d\n', 2, "never closed"),
        (b"e,f\n", 3, ""),
    ]


def test_open_quote_does_not_fill_memory(monkeypatch):
    """The search for the end of an open quote is bounded."""
    monkeypatch.setattr(records, "LONGEST_RECORD_BYTES", 64)
    found = csv_blocks(b'"a\n' + b"b\n" * 200, 16)
    assert found[0] == Block(b'"a\n', 1, "never closed")
    assert b"".join(block.data for block in found[1:]) == b"b\n" * 200


@pytest.mark.parametrize(("data", "count"), [(b"", 0), (b"\n", 1), (b"\r\n", 1), (b"\r", 1), (b"a\rb\nc\r\nd", 3)])
def test_line_count(data, count):
    """Each kind of line end counts as one."""
    assert line_count(data) == count


def test_numbers_are_lines():
    """A record has the number of its first line, counting blank lines and lines within quotes."""
    block = Block(b'a\n\n"b\nc",d\r\n\r\ne\n', 10)
    assert [line for line, _ in numbered(block, CsvSyntax(",").record)] == [10, 12, 15]


def test_lines():
    """Lines end at line feeds; the last may lack one."""
    stream = io.BytesIO(b"a\n\nb")
    assert [block.data for block in blocks(stream.read, whole_lines, broken="")] == [b"a\n\n", b"b\n"]


def test_readable():
    """Every record can be shown, even if it is not text."""
    assert readable(b"a\xff\xc3\xa9\r\n") == "a\\xffé"


def test_marks():
    """A UTF-8 byte order mark is removed; one of UTF-16 is refused; the error suggests a fix."""
    assert without_mark(Block(b"\xef\xbb\xbfa\n", 1), "x").data == b"a\n"
    with pytest.raises(InputError, match=r"UTF-16.*iconv"):
        without_mark(Block("a\n".encode("utf-16"), 1), "x")
