"""Files that Spark has no reader for, one task each: Arrow files and streams, and files of the Go ESDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from esformat import customerio
from esformat.errors import CorruptSegmentError, UsageError
from esformat.spark.options import parse_paths
from esformat.spark.types import arrow_schema, convert_batch, spark_schema, unify_schemas


class ForeignSource(DataSource):
    """Options: `kind` ("arrow" or "customerio") and `paths` (a JSON list of files)."""

    @classmethod
    def name(cls) -> str:
        """What `format(…)` calls it."""
        return "esdb-foreign"

    def schema(self) -> StructType:
        """The columns of all the files."""
        schemas = []
        for path in parse_paths(self.options["paths"]):
            with _opened(self.options["kind"], path) as (schema, _):
                schemas.append((path, schema))
        return spark_schema(unify_schemas(schemas))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads the files with a schema."""
        return _Reader(self.options["kind"], parse_paths(self.options["paths"]), schema)


class _Reader(DataSourceReader):
    def __init__(self, kind: str, paths: Sequence[str], schema: StructType) -> None:
        self._kind, self._paths, self._schema = kind, tuple(paths), schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(path) for path in self._paths]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._schema)
        with _opened(self._kind, partition.value) as (_, batches):
            for batch in batches:
                yield convert_batch(batch, schema)


@contextmanager
def _opened(kind: str, path: str) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """A file's schema and its batches, read as they are consumed."""
    if kind == "customerio":
        with customerio.open(path) as file:
            yield file.schema, file.scan().batches()
        return
    if kind != "arrow":
        raise UsageError(f"kind {kind!r} is none of arrow, customerio")
    with pa.memory_map(path) as stored:
        try:
            opened: Any = _open_arrow(stored)
        except pa.ArrowInvalid as error:
            raise CorruptSegmentError(f"is no Arrow file: {error}", path=path) from None
        yield _plain_schema(opened.schema), _plain_batches(opened)


def _open_arrow(stored: Any) -> Any:
    """A file of batches, or a stream of them."""
    try:
        return pa.ipc.open_file(stored)
    except pa.ArrowInvalid:
        stored.seek(0)
        return pa.ipc.open_stream(stored)


def _plain_batches(opened: Any) -> Iterator[pa.RecordBatch]:
    batches = (
        iter(opened)
        if not hasattr(opened, "num_record_batches")
        else map(opened.get_batch, range(opened.num_record_batches))
    )
    for batch in batches:
        batch.validate(full=True)  # what comes from outside may read well and still be broken
        yield batch


def _plain_schema(schema: pa.Schema) -> pa.Schema:
    """Dictionaries as the values that they stand for."""
    return pa.schema([f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema])
