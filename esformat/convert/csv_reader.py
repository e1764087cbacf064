"""Reader of CSV: pyarrow parses blocks of whole records. Values stay bytes, accompanied by guessed types."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.csv

from esformat.convert.column_type import text_type
from esformat.convert.errors import InputError
from esformat.convert.records import Block, CsvSyntax, blocks, numbered, readable, without_mark
from esformat.convert.roles import Roles
from esformat.convert.rows import LINE, Origin, Rows
from esformat.convert.source import Source

_NEVER_CLOSED = "a quoted field begins here and its quote is never closed"


@dataclass(frozen=True, slots=True)
class CsvReader:
    """Reads a CSV file whose first record names its columns, unless `header` does.

    A field that is empty without quotes, or is one of `nulls`, is null; "" in quotes is an empty text.
    """

    source: Source
    roles: Roles
    delimiter: str = ","
    header: tuple[str, ...] | None = None
    nulls: tuple[str, ...] = ()

    def rows(self) -> Iterator[Rows]:
        """Yield the rows, one batch per block of the file. Raises InputError if reading cannot continue."""
        syntax = CsvSyntax(self.delimiter)
        table = None if self.header is None else _Table(self, self.header, syntax)
        with self.source.open() as stream:
            for block in blocks(stream.read, syntax.whole, broken=_NEVER_CLOSED):
                if block.first_line == 1:
                    block = without_mark(block, self.source.path)
                if table is None:
                    names, block = self._split_header(block, syntax)
                    table = _Table(self, names, syntax)
                yield table.parse(block)
        if table is None:
            raise InputError("is empty", path=self.source.path, hint="a CSV file begins with a line of column names")

    def _split_header(self, block: Block, syntax: CsvSyntax) -> tuple[Sequence[str], Block]:
        """Remove the first record that is not blank from `block`, and return it as names."""
        blank = re.match(rb"[\r\n]*", block.data)
        found = None if block.broken or blank is None else syntax.record.match(block.data, blank.end())
        if found is None:
            raise InputError("its first line has no column names", path=self.source.path)
        try:
            text = found.group().decode()
        except UnicodeDecodeError as error:
            raise InputError(
                "line 1: its column names are not UTF-8 text",
                path=self.source.path,
                hint="convert it, for example with iconv -f latin1 -t utf-8",
            ) from error
        names = next(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter))
        line = block.first_line + block.data.count(b"\n", 0, found.end())
        rest = Block(block.data[found.end() :], line)
        return [name or f"column_{place}" for place, name in enumerate(names, 1)], rest


class _Table:
    """The columns of one file, and the parser of its blocks."""

    def __init__(self, reader: CsvReader, names: Sequence[str], syntax: CsvSyntax) -> None:
        self._path = reader.source.path
        self._names = list(names)
        self._syntax = syntax
        self._wanted = reader.roles.wanted(names)
        self._text = reader.roles.text | frozenset(reader.roles.types)  # type not guessed
        twice, times = Counter(names).most_common(1)[0] if names else ("", 0)
        if times > 1:
            raise InputError(f"has a duplicate column {twice!r}", path=self._path, hint="rename one of them")
        reader.roles.check(names, self._path)
        self._convert = pa.csv.ConvertOptions(
            include_columns=self._wanted,
            column_types=dict.fromkeys(self._wanted, pa.binary()),
            null_values=["", *reader.nulls],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def parse(self, block: Block) -> Rows:
        """Turn `block` into rows; records with too many or few fields become bad rows."""
        misfits: dict[int, str] = {}
        places = _Places(block, self._syntax.record, misfits)
        try:
            batch = self._read(b"" if block.broken else block.data)
        except pa.ArrowInvalid:  # a record does not fit: check each record of this block
            misfits.update(self._misfits(places.records))
            batch = self._read(b"".join(places.records[place][1] for place in places.good))
        if block.broken:
            misfits[0] = block.broken
        types = {name: self._type(name, column) for name, column in zip(self._wanted, batch.columns, strict=True)}
        by_record = Origin(self._path, LINE, places.of_record)
        bad = [by_record.bad_row(place, reason) for place, reason in misfits.items()]
        return Rows(batch, types, Origin(self._path, LINE, places.of_row), bad)

    def _type(self, name: str, column: pa.BinaryArray) -> pa.DataType:
        if name not in self._text:
            return text_type(column)
        return pa.null() if column.null_count == len(column) else pa.string()

    def _read(self, data: bytes) -> pa.RecordBatch:
        """Parse whole records. Raises pa.ArrowInvalid if one of them has too many or too few fields."""
        if not data.strip(b"\r\n"):
            return pa.RecordBatch.from_arrays([pa.array([], pa.binary())] * len(self._wanted), names=self._wanted)
        table = pa.csv.read_csv(
            pa.BufferReader(data),
            pa.csv.ReadOptions(column_names=self._names, use_threads=False, block_size=len(data) + 1),
            pa.csv.ParseOptions(delimiter=self._syntax.delimiter.decode(), newlines_in_values=True),
            self._convert,
        )
        return table.combine_chunks().to_batches()[0]

    def _misfits(self, records: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
        expected = len(self._names)
        for place, (_, record) in enumerate(records):
            found = self._syntax.field_count(record)
            if found != expected:
                yield place, f"{found} fields, but {expected} column names"


class _Places:
    """The positions of a block's records, computed on demand, since only bad rows need them."""

    def __init__(self, block: Block, record: re.Pattern[bytes], misfits: Mapping[int, str]) -> None:
        self._block = block
        self._pattern = record
        self._misfits = misfits  # by position among the records that are not blank

    @cached_property
    def records(self) -> Sequence[tuple[int, bytes]]:
        """The line number and bytes of every record that is not blank."""
        return numbered(self._block, self._pattern)

    @cached_property
    def good(self) -> Sequence[int]:
        """The positions of the records that became rows."""
        return [place for place in range(len(self.records)) if place not in self._misfits]

    def of_record(self, place: int) -> tuple[int, str]:
        line, record = self.records[place]
        return line, readable(record)

    def of_row(self, row: int) -> tuple[int, str]:
        return self.of_record(self.good[row])
