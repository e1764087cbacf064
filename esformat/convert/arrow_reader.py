"""Reader of Parquet, ORC and Arrow files. Their columns have types; batches are validated, as files may be damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from esformat.convert.column_type import plain
from esformat.convert.errors import InputError
from esformat.convert.long_times import in_micros, with_exact_times
from esformat.convert.roles import Roles
from esformat.convert.rows import Origin, Rows
from esformat.convert.source import Source
from esformat.convert.spark_types import SparkTypes
from esformat.format import json_text
from esformat.format.schema import normalise_type
from esformat.write.plain_array import IMPOSSIBLE_HINT, impossible_value, plain_array

_BATCH_ROWS = 64 * 1024
_FILE_MAGIC = b"ARROW1"
_OLD_FEATHER_MAGIC = b"FEA1"


@dataclass(frozen=True, slots=True)
class ArrowReader:
    """Reads a Parquet file, an ORC file, an Arrow (Feather) file or an Arrow stream.

    groups: the half-open range of row groups to read of a Parquet file; None: all.
    """

    source: Source
    roles: Roles
    format: str  # "parquet", "orc" or "arrow"
    groups: tuple[int, int] | None = None

    def rows(self) -> Iterator[Rows]:
        """Yield the rows in batches. Raises InputError if the file is damaged or lacks a column."""
        with self._opened() as file:
            first_row = 1 + file.skipped
            for batch in file.batches(self._wanted(file.schema)):
                try:
                    batch.validate(full=True)
                except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                    rows = f"rows from {first_row} on are damaged"
                    raise invalid_rows(rows, error, batch.schema.names, self.source.path) from error
                known = file.types.applied(batch)
                for start in range(0, batch.num_rows, _BATCH_ROWS):
                    yield self._rows(known.slice(start, _BATCH_ROWS), first_row + start)
                first_row += batch.num_rows

    def columns(self) -> dict[str, pa.DataType]:
        """The needed columns with their types. Raises InputError as `rows` does."""
        return self.columns_and_row_count()[0]

    def columns_and_row_count(self) -> tuple[dict[str, pa.DataType], int | None]:
        """The needed columns with their types, and the number of rows; None if only reading the file would tell.

        Times of 96 bits are declared in microseconds, in which they are read if they have no digits below. The event's
        timestamp is not: its digits below are kept anyway.
        """
        with self._opened() as file:
            wanted = {name: file.micros.field(name) for name in self._wanted(file.schema)}
            wanted |= {name: file.schema.field(name) for name in wanted if name == self.roles.timestamp}
            return {name: _kept(file.types.type_of(column)) for name, column in wanted.items()}, file.row_count

    def group_bytes(self) -> list[int]:
        """The stored bytes of each row group of a Parquet file, to divide the work evenly. Raises InputError."""
        with self.source.open_seekable() as stream, pa.parquet.ParquetFile(stream) as file:
            found = file.metadata
            return [found.row_group(place).total_byte_size for place in range(found.num_row_groups)]

    def _rows(self, batch: pa.RecordBatch, first_row: int) -> Rows:
        def locate(row: int) -> tuple[int, str]:
            return first_row + row, str(_as_json(kept.slice(row, 1))[0])

        columns = [self._kept(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
        kept = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        types = {field.name: field.type for field in kept.schema}
        meant = {field.name: name for field in batch.schema if (name := _foreign(field)) is not None}
        return Rows(kept, types, Origin(self.source.path, "row", locate), meant=meant)

    def _kept(self, field: pa.Field, column: pa.Array) -> pa.Array:
        """A column in the type that is kept: Arrow cannot filter views or cast all of them, and crashes on some."""
        kind = _kept(column.type)
        try:
            return column if column.type == kind else plain_array(column, kind)
        except pa.ArrowException as error:
            raise InputError(f"column {field.name!r} cannot be read: {error}", path=self.source.path) from error

    @contextmanager
    def _opened(self) -> Iterator[_File]:
        with self.source.open_seekable() as stream:
            if self.format == "parquet":
                with pa.parquet.ParquetFile(stream) as parquet:
                    yield _parquet(parquet, in_micros(stream, parquet), self.groups, self.source.path)
            elif self.format == "orc":
                yield _orc(stream, self.source.path)
            else:
                with self._arrow(stream) as reader:
                    types = SparkTypes.of(reader.schema, self.source.path)
                    batches = lambda wanted: (batch.select(wanted) for batch in self._batches(reader, stream))  # noqa: E731
                    yield _File(reader.schema, batches, types)

    def _arrow(self, stream: pa.NativeFile) -> Any:
        start = stream.read(len(_FILE_MAGIC))
        stream.seek(0)
        if start.startswith(_OLD_FEATHER_MAGIC):
            hint = "write it again as version 2"
            raise InputError("is a Feather file of version 1", path=self.source.path, hint=hint)
        return pa.ipc.open_file(stream) if start == _FILE_MAGIC else pa.ipc.open_stream(stream)

    def _batches(self, reader: Any, stream: pa.NativeFile) -> Iterator[pa.RecordBatch]:
        """Yield the batches of an Arrow file, or of a stream, which nothing may follow."""
        if isinstance(reader, pa.RecordBatchFileReader):
            yield from map(reader.get_batch, range(reader.num_record_batches))
            return
        yield from reader
        if stream.read(1):
            raise InputError(
                "has more bytes after the end of its Arrow stream",
                path=self.source.path,
                hint="put each stream into a file of its own",
            )

    def _wanted(self, schema: pa.Schema) -> list[str]:
        self.roles.check(schema.names, self.source.path)
        wanted = self.roles.wanted(schema.names)
        twice = next((name for name in wanted if schema.names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"has a duplicate column {twice!r}", path=self.source.path, hint="rename one of them")
        return wanted


def invalid_rows(damage: str, error: ValueError, names: list[str], path: str) -> InputError:
    """The error for rows that Arrow's full validation refused. damage: the message if they are broken."""
    value = impossible_value(error, names)
    if value is not None:
        return InputError(value, path=path, hint=IMPOSSIBLE_HINT)
    return InputError(f"{damage}: {error}", path=path)


@dataclass(frozen=True, slots=True)
class _File:
    """An open file: its schema, and a function that reads the batches of some columns."""

    schema: pa.Schema
    batches: Callable[[list[str]], Iterator[pa.RecordBatch]]
    types: SparkTypes
    skipped: int = 0  # rows before the first one that is read
    row_count: int | None = None  # None: unknown
    long_times: pa.Schema | None = None  # the schema with times of 96 bits in microseconds, if it has any

    @property
    def micros(self) -> pa.Schema:
        """The schema with times of 96 bits in microseconds."""
        return self.schema if self.long_times is None else self.long_times


def _parquet(
    file: pa.parquet.ParquetFile, micros: pa.parquet.ParquetFile, groups: tuple[int, int] | None, path: str
) -> _File:
    chosen = range(*groups) if groups else range(file.metadata.num_row_groups)
    skipped = sum(file.metadata.row_group(place).num_rows for place in range(chosen.start)) if groups else 0
    schema, other = file.schema_arrow, micros.schema_arrow

    def batches(wanted: list[str]) -> Iterator[pa.RecordBatch]:
        # Arrow cannot join the dictionaries of two row groups if they are parts of values
        alone = any(_has_inner_dictionary(schema.field(name).type) for name in wanted)
        long = [name for name in wanted if schema.field(name).type != other.field(name).type]
        for together in ([place] for place in chosen) if alone else [list(chosen)]:
            found = _read(file, together, wanted)
            if not long:
                yield from found
                continue
            for batch, times in zip(found, _read(micros, together, long), strict=True):
                yield with_exact_times(batch, times.select(long), path)  # Arrow takes "a.b" for b in a, too

    count = None if groups else file.metadata.num_rows
    return _File(schema, batches, SparkTypes.of(schema, path), skipped, count, other)


def _read(file: pa.parquet.ParquetFile, groups: list[int], columns: list[str]) -> Iterator[pa.RecordBatch]:
    found: Iterator[pa.RecordBatch] = file.iter_batches(
        _BATCH_ROWS, row_groups=groups, columns=columns, use_threads=False
    )
    return found


def _orc(stream: pa.NativeFile, path: str) -> _File:
    import pyarrow.orc  # here: seldom needed

    file = pyarrow.orc.ORCFile(stream)
    stripes = range(file.nstripes)
    types = SparkTypes.of(file.schema, path)
    batches = lambda wanted: (file.read_stripe(place, columns=wanted) for place in stripes)  # noqa: E731
    return _File(file.schema, batches, types, row_count=file.nrows)


def _kept(type_: pa.DataType) -> pa.DataType:
    """The type in which values of a type are kept."""
    return plain(normalise_type(type_))


def _has_inner_dictionary(type_: pa.DataType) -> bool:
    parts: Iterable[pa.DataType] = (type_.field(place).type for place in range(type_.num_fields))
    return any(pa.types.is_dictionary(part) or _has_inner_dictionary(part) for part in parts)


def _foreign(field: pa.Field) -> str | None:
    """The name of a type that segments lack, such as arrow.uuid, or lists of it, if they keep its plain values; else
    None.
    """
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    unknown = (field.metadata or {}).get(b"ARROW:extension:name")  # its library is not loaded: pandas.period
    if unknown is not None:
        return str(unknown.decode(errors="replace"))
    if pa.types.is_dictionary(field.type) or pa.types.is_run_end_encoded(field.type):
        return str(field.type)
    parts = (_foreign(field.type.field(place)) for place in range(field.type.num_fields))
    part = next(filter(None, parts), None)
    return None if part is None else f"{str(field.type).partition('<')[0]} of {part}"


def _as_json(batch: pa.RecordBatch) -> pa.StringArray:
    return json_text.objects(dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows)
