"""Parquet and Arrow files to rows. Their columns have types already; what comes from outside is validated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet

from esformat import json_text
from esformat.convert.column_type import plain
from esformat.convert.errors import InputError
from esformat.convert.roles import Roles
from esformat.convert.rows import Origin, Rows
from esformat.convert.source import Source

_BATCH_ROWS = 64 * 1024
_FILE_MAGIC = b"ARROW1"
_OLD_FEATHER_MAGIC = b"FEA1"


@dataclass(frozen=True, slots=True)
class ArrowReader:
    """Reads a Parquet file, an Arrow (Feather) file or an Arrow stream."""

    source: Source
    roles: Roles
    format: str  # "parquet" or "arrow"

    def rows(self) -> Iterator[Rows]:
        """Yield the rows in batches. Raises InputError if the file is damaged or lacks a column."""
        first_row = 1
        for batch in self._parquet() if self.format == "parquet" else self._arrow():
            try:
                batch.validate(full=True)
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                raise InputError(f"rows from {first_row} on are damaged: {error}", path=self.source.path) from error
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield self._rows(batch.slice(start, _BATCH_ROWS), first_row + start)
            first_row += batch.num_rows

    def _rows(self, batch: pa.RecordBatch, first_row: int) -> Rows:
        def locate(row: int) -> tuple[int, str]:
            return first_row + row, str(_as_json(batch.slice(row, 1))[0])

        types = {field.name: plain(field.type) for field in batch.schema}
        return Rows(batch, types, Origin(self.source.path, "row", locate))

    def _parquet(self) -> Iterator[pa.RecordBatch]:
        with self.source.open_seekable() as stream, pa.parquet.ParquetFile(stream) as file:
            wanted = self._wanted(file.schema_arrow)
            yield from file.iter_batches(_BATCH_ROWS, columns=wanted, use_threads=False)

    def _arrow(self) -> Iterator[pa.RecordBatch]:
        with self.source.open_seekable() as stream:
            start = stream.read(len(_FILE_MAGIC))
            stream.seek(0)
            if start.startswith(_OLD_FEATHER_MAGIC):
                hint = "write it again as version 2"
                raise InputError("is a Feather file of version 1", path=self.source.path, hint=hint)
            if start == _FILE_MAGIC:
                with pa.ipc.open_file(stream) as file:
                    wanted = self._wanted(file.schema)
                    for index in range(file.num_record_batches):
                        yield file.get_batch(index).select(wanted)
            else:
                with pa.ipc.open_stream(stream) as reader:
                    wanted = self._wanted(reader.schema)
                    for batch in reader:
                        yield batch.select(wanted)

    def _wanted(self, schema: pa.Schema) -> list[str]:
        self.roles.check(schema.names, self.source.path)
        wanted = self.roles.wanted(schema.names)
        twice = next((name for name in wanted if schema.names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"two columns are called {twice!r}", path=self.source.path, hint="rename one of them")
        return wanted


def _as_json(batch: pa.RecordBatch) -> pa.StringArray:
    return json_text.objects(dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows)
