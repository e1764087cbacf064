"""A data source for files of other formats, which yields events with the columns of a plan; batches small files."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from esformat.convert import Plan
from esformat.convert.events import no_events
from esformat.convert.sinks import grouped
from esformat.spark.input_rows import TASK_BYTES, InputRules, Piece, events
from esformat.spark.types import arrow_schema, convert_batch, spark_schema

FILE_BYTES = 1 << 17  # cost of opening a file, in bytes that could be read in that time


@dataclass(frozen=True, slots=True)
class Reading:
    """The input that a job reads together: pieces of files, and how their rows become events."""

    rules: InputRules
    plan: Plan
    pieces: tuple[Piece, ...]
    tasks: int  # that can run in parallel

    def encode(self) -> str:
        """Encode as text, for an option of the data source."""
        return base64.b85encode(pickle.dumps(self)).decode()

    @classmethod
    def decode(cls, text: str) -> Reading:
        """Decode the result of `encode`."""
        found: Reading = pickle.loads(base64.b85decode(text))  # noqa: S301 - the driver's own
        return found


class ForeignSource(DataSource):
    """Option: `reading`, an encoded Reading."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "esdb-foreign"

    def schema(self) -> StructType:
        """The columns of the plan."""
        return spark_schema(no_events(Reading.decode(self.options["reading"]).plan).schema, rounds=True)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the pieces with a schema."""
        return _Reader(Reading.decode(self.options["reading"]), schema)


class _Reader(DataSourceReader):
    def __init__(self, reading: Reading, schema: StructType) -> None:
        self._reading, self._schema = reading, schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(pieces) for pieces in pack(self._reading.pieces, self._reading.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema, reading = arrow_schema(self._schema), self._reading
        fitted = events(reading.rules, reading.plan, partition.value, lambda batch: convert_batch(batch, schema))
        yield from grouped(fitted)


def pack(pieces: Sequence[Piece], tasks: int) -> list[tuple[Piece, ...]]:
    """Divide pieces among tasks in order, as Spark does: even tasks of up to TASK_BYTES, including opening costs."""
    total = sum(piece.size_bytes + FILE_BYTES for piece in pieces)
    most = min(TASK_BYTES, max(FILE_BYTES, -(-total // max(1, tasks))))
    packed: list[list[Piece]] = []
    size = 0
    for piece in pieces:
        cost = piece.size_bytes + FILE_BYTES
        if packed and size + cost <= most:
            packed[-1].append(piece)
            size += cost
        else:
            packed.append([piece])
            size = cost
    return [tuple(each) for each in packed]
