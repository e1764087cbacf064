"""Readers of CSV and JSON lines with a known schema, as batches of exactly those types."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv

from esformat.convert.errors import InputError
from esformat.convert.source import Source
from esformat.convert.typed_text import from_json, from_text, loads

_READ_BYTES = 8 << 20
_RECORD_BYTES = 64 << 20  # the largest record of CSV
_ABSENT = re.compile("Column '(.*)' in include_columns does not exist")
_HINT = "without --schema, name its columns with --space and --timestamp"
_BROKEN = (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, pa.ArrowException)


def read_typed(source: Source, format_: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSV file with a header, or of JSON lines, as batches of `schema`.

    Raises InputError for a row or column that does not fit.
    """
    with source.open() as stream:
        yield from _csv(stream, schema, source.path) if format_ == "csv" else _json_lines(stream, schema, source.path)


def _csv(stream: pa.NativeFile, schema: pa.Schema, path: str) -> Iterator[pa.RecordBatch]:
    row = 1
    try:
        reader = pa.csv.open_csv(
            stream,
            pa.csv.ReadOptions(block_size=_RECORD_BYTES),
            pa.csv.ParseOptions(newlines_in_values=True),
            pa.csv.ConvertOptions(
                include_columns=schema.names,
                column_types=dict.fromkeys(schema.names, pa.binary()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for batch in reader:
            columns = [from_text(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
            row += len(batch)
    except _BROKEN as error:
        absent = _ABSENT.match(str(error))
        if absent is not None:
            raise InputError(f"has no column {absent[1]!r}, which the schema has", path=path, hint=_HINT) from error
        raise InputError(f"does not fit the schema, from row {row} on: {error}", path=path) from error


def _json_lines(stream: pa.NativeFile, schema: pa.Schema, path: str) -> Iterator[pa.RecordBatch]:
    rest, line = b"", 1
    while True:
        data = stream.read(_READ_BYTES)
        lines = (rest + data).split(b"\n")
        rest = lines.pop() if data else b""
        rows = [text for text in lines if text.strip()]
        if rows:
            try:
                objects = [loads(text) for text in rows]
                columns = [from_json([each[field.name] for each in objects], field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
            except _BROKEN as error:
                absent = isinstance(error, KeyError)
                what = f"no member {error}" if absent else f"{error}"
                raise InputError(
                    f"does not fit the schema, from line {line} on: {what}", path=path, hint=_HINT if absent else None
                ) from error
        line += len(lines)
        if not data:
            return
