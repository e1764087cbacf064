"""Writers of record batches as JSON lines, CSV, Arrow and Parquet, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from esformat.convert.typed_text import without_base64
from esformat.errors import UsageError
from esformat.format import json_text

SINK_FORMATS = (
    "jsonl",
    "json",
    "csv",
    "arrow",
    "arrows",
    "parquet",
)  # arrow is the file with a footer, arrows the stream

_GROUP_ROWS = 128 * 1024
_GROUP_BYTES = 64 << 20
_COMMA = ",\n"
_TEXT_BYTES = 16 << 20  # of columns converted to text at a time
_NO_PARQUET = "leave the column out, or take another format"


class Sink(Protocol):
    """Writes batches of one schema to a file, which stays open."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write one more batch."""

    def finish(self) -> None:
        """Write the end of the file."""


def write_batches(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    format_: str,
    file: BinaryIO,
    on_loss: Callable[[str], None] = lambda lost: None,
) -> int:
    """Write `batches` of `schema` to `file` as one of SINK_FORMATS. Returns the number of rows.

    on_loss: called with a sentence for each column with values that JSON or CSV cannot restore.
    Raises OSError, UsageError for a column that Parquet cannot store, and pa.ArrowException for other formats.
    """
    sink = open_sink(format_, file, schema)
    row_count = 0
    for batch in grouped(batches):
        sink.write(batch)
        row_count += batch.num_rows
    sink.finish()
    if isinstance(sink, _JsonLines | _Csv):
        for name, count in sink.lost.items():
            on_loss(f"column {name!r}: {sink.loss.format(count)}")
    return row_count


def grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine small batches, in order, up to about 131,000 rows or 64 MiB."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if waiting and (rows + batch.num_rows > _GROUP_ROWS or size + batch.nbytes > _GROUP_BYTES):
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if waiting:
        yield pa.concat_batches(waiting)


class _JsonLines:
    """One JSON object per row."""

    loss = json_text.NO_NAN

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file
        self._names = _distinct(schema.names)
        self.lost: Counter[str] = Counter()
        """The number of NaN and infinities, by column."""

    def write(self, batch: pa.RecordBatch) -> None:
        for name, column in zip(self._names, batch.columns, strict=True):
            if lost := json_text.not_finite(column):
                self.lost[name] += lost
        for piece in _pieces(batch):
            lines = json_text.objects(dict(zip(self._names, piece.columns, strict=True)), piece.num_rows)
            if len(lines):
                self._write(lines)

    def _write(self, lines: pa.StringArray) -> None:
        self._file.write(_joined(lines))

    def finish(self) -> None:
        """Do nothing."""


class _JsonArray(_JsonLines):
    """One JSON array, with one object per row, each on its own line."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        super().__init__(file, schema)
        self._before = b"["

    def _write(self, lines: pa.StringArray) -> None:
        self._file.write(self._before + b"\n")
        self._file.write(_joined(lines, _COMMA)[: -len(_COMMA)])
        self._before = b","

    def finish(self) -> None:
        """Close the array."""
        self._file.write(b"[]\n" if self._before == b"[" else b"\n]\n")


class _Csv:
    """A line of names, then one record per row. Null is an empty field; "" in quotes is an empty text."""

    loss = "{:,} texts look like base64 and are read back from CSV as bytes"

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file
        self.lost: Counter[str] = Counter()
        """The number of texts that would be read back as other bytes, by column."""
        self._write(pa.table([pa.array([], pa.string())] * len(schema), names=schema.names), header=True)

    def write(self, batch: pa.RecordBatch) -> None:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            again = without_base64(column) if pa.types.is_binary(column.type) else column
            if again is not column and (lost := pc.sum(pc.not_equal(column, again)).as_py()):
                self.lost[name] += lost
        for piece in _pieces(batch):
            columns = [_csv_column(column) for column in piece.columns]
            self._write(pa.table(columns, names=piece.schema.names), header=False)

    def _write(self, table: pa.Table, *, header: bool) -> None:
        written = pa.BufferOutputStream()
        pa.csv.write_csv(table, written, pa.csv.WriteOptions(include_header=header, quoting_header="needed"))
        self._file.write(written.getvalue())

    def finish(self) -> None:
        """Do nothing."""


class _Arrow:
    """An Arrow file or stream."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, *, stream: bool) -> None:
        self._writer = pa.ipc.new_stream(file, schema) if stream else pa.ipc.new_file(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def finish(self) -> None:
        self._writer.close()


class _Parquet:
    """A Parquet file, compressed with zstd."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        from pyarrow.parquet import ParquetWriter  # here: a server seldom answers in Parquet

        odd = next((field for field in schema if _changes_lists(field)), None)
        if odd is not None:  # nulls would come back as values, or not at all
            raise UsageError(f"Parquet cannot hold {_described(odd)}", hint=_NO_PARQUET)
        try:
            self._writer = ParquetWriter(file, schema, compression="zstd")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:  # OSError also for binary of length 0
            misfit = _misfit(schema)
            if misfit is None and isinstance(error, OSError):
                raise
            raise UsageError(f"Parquet cannot hold {misfit or error}", hint=_NO_PARQUET) from None

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            self._writer.write_batch(batch)
        except pa.ArrowInvalid as error:  # such as times out of range for Parquet's units
            raise UsageError(f"Parquet cannot hold a value: {error}", hint=_NO_PARQUET) from None

    def finish(self) -> None:
        self._writer.close()

    def __del__(self) -> None:
        # An abandoned sink's file is closed: the writer would still try to write the footer and report the error.
        if (writer := getattr(self, "_writer", None)) is not None:
            writer.is_open = False


def _misfit(schema: pa.Schema) -> str | None:
    """Describe the column that Parquet has no type for. Tries in memory, where no disk can fail."""
    from pyarrow.parquet import ParquetWriter

    for field in schema:
        try:
            ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
            return _described(field)
    return None


def _described(field: pa.Field) -> str:
    return f"the column {field.name!r} of type {field.type}"


def _changes_lists(field: pa.Field, *, missing: bool = False) -> bool:
    """Whether a column contains fixed-size lists that Parquet cannot read back.

    These are lists of size 0, and non-nullable lists in a struct that may be null. missing: whether an enclosing struct
    may be null.
    """
    kind = field.type
    if pa.types.is_fixed_size_list(kind) and (not kind.list_size or (missing and not field.nullable)):
        return True
    if pa.types.is_map(kind):
        return _changes_lists(kind.key_field) or _changes_lists(kind.item_field)
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        null = pa.types.is_struct(kind) and (missing or field.nullable)
        return any(_changes_lists(kind.field(place), missing=null) for place in range(kind.num_fields))
    return False


def _distinct(names: list[str]) -> list[str]:
    """Make names unique by appending numbers to repeated ones: an SQL result may contain a name twice."""
    made: dict[str, None] = {}
    for name in names:
        numbered, number = name, 0
        while numbered in made or (number and numbered in names):
            number += 1
            numbered = f"{name}_{number}"
        made[numbered] = None
    return list(made)


def open_sink(format_: str, file: BinaryIO, schema: pa.Schema) -> Sink:
    """Return the sink that writes batches of `schema` to `file` as one of SINK_FORMATS, one batch at a time."""
    if format_ == "jsonl":
        return _JsonLines(file, schema)
    if format_ == "json":
        return _JsonArray(file, schema)
    if format_ == "csv":
        return _Csv(file, schema)
    if format_ == "parquet":
        return _Parquet(file, schema)
    return _Arrow(file, schema, stream=format_ == "arrows")


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch so that the text of each piece stays small."""
    count = max(1, -(-batch.nbytes // _TEXT_BYTES))
    step = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _joined(lines: pa.StringArray, ending: str = "\n") -> memoryview:
    """Join the values of `lines`, none of which is null, with `ending` after each."""
    ended = pc.binary_join_element_wise(lines, ending, "")
    start, end = (ended.offset + place for place in (0, len(ended)))
    offsets = np.frombuffer(ended.buffers()[1], dtype=np.int32)
    return memoryview(ended.buffers()[2])[offsets[start] : offsets[end]]


def _csv_column(column: pa.Array) -> pa.Array:
    plain = pa.types.is_boolean(column.type) or pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    return column if plain else json_text.as_text(column)
