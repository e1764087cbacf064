"""Write to a topic: tasks stage segments, and the driver adds them to the catalog in one transaction.

The driver briefly opens the catalog for writing twice: before the tasks to create what is missing, and after them to
add the staged segments. No server may have the catalog open for writing during the job.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from aggregator.catalog import Catalog
from aggregator.engine.bulk_load import Added, Batch, BulkLoad, StagedSegment, Target, find_target, stage
from aggregator.engine.writer import WriterEngine, now_us
from aggregator.errors import CatalogLockedError
from aggregator.model import RESERVED_COLUMNS
from aggregator.opening import make_directory_tree
from aggregator.policy import Durability, Limits
from aggregator.spark.options import CatalogWriteOptions
from aggregator.storage.files.checksum import checksum64
from aggregator.storage.files.layout import Layout
from aggregator.storage.files.lock import is_held
from aggregator.storage.files.staging import staging, sweep
from aggregator.storage.manifest import Manifest
from esformat import UsageError
from esformat.spark.parts import EventColumns, arrow_schema, portions

LOCK_SECONDS = 20.0
"""Seconds that the driver waits for another writer of the catalog, such as another Spark job in its commit."""
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Spark's local properties that name the query and the micro-batch of a task."""


@dataclass
class TaskResult(WriterCommitMessage):
    """The segments that one task staged, with their target, batch and folder."""

    segments: tuple[StagedSegment, ...]
    target: Target
    batch: Batch
    folder: str


class _Writer:
    """The common part of both writers: the target of the events, and how a task stages them. Pickled for the tasks."""

    def __init__(self, options: CatalogWriteOptions, schema: StructType, name: str) -> None:
        """name: prefix of this write's directories. Raises UsageError, InvalidEventError, AggregatorError."""
        self._options = options
        self._arrow = arrow_schema(schema)
        self._columns = EventColumns.choose(self._arrow, options.for_files())
        for reserved in RESERVED_COLUMNS:
            if reserved in self._columns.names:
                raise UsageError(f"a column cannot be called {reserved!r} in a catalog", hint="rename or drop it")
        self._layout = Layout(Path(options.root))
        self._target = self._find_target() or self._prepare()
        self._name = name
        self._folder = str(staging(self._layout) / f"{name}-{secrets.token_hex(6)}")

    def _find_target(self) -> Target | None:
        if not self._layout.manifest.exists():
            return None
        manifest = Manifest(self._layout.manifest, read_only=True)
        try:
            return find_target(manifest, self._options.topic, self._options.partition, self._columns.arrow(self._arrow))
        finally:
            manifest.close()

    def _prepare(self) -> Target:
        """Create the catalog, topic, partition and schema that do not exist."""
        options = self._options
        make_directory_tree(self._layout.root)
        with _writing(self._layout) as writing:
            if options.topic not in writing.state.topics:
                keys = "binary" if self._columns.binary_keys else "text"
                Catalog(writing).create_topic(options.topic, indexes=options.indexes, keys=keys)
            adder = BulkLoad(writing, writing.state.topics[options.topic])
            return adder.prepare(options.partition, self._columns.arrow(self._arrow))

    def _stage(self, batches: Iterator[pa.RecordBatch], batch: Batch) -> TaskResult:
        segments = []
        for held in self._portions(batches):
            table = pa.Table.from_batches(held).rename_columns(list(self._columns.names))
            held.clear()
            segments.append(stage(Path(self._folder), self._target, table, batch))
        return TaskResult(tuple(segments), self._target, batch, self._folder)

    def _portions(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
        return portions(batches, most_bytes=self._options.segment_bytes, most_events=self._options.segment_events)

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> Added | None:
        """Add the staged segments to the catalog; return None if there are none."""
        results = [message for message in messages if isinstance(message, TaskResult)]
        staged = [segment for result in results for segment in result.segments]
        try:
            if not staged:
                return None
            with _writing(self._layout) as writing:
                adder = BulkLoad(writing, writing.state.topics[self._options.topic])
                return adder.add(results[0].target, staged, results[0].batch)
        finally:
            self._clear(messages)

    def _clear(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the staged files that are left of this write."""
        for name in {Path(each.folder).name for each in messages if isinstance(each, TaskResult)} | {self._name + "-"}:
            sweep(self._layout, name)


class CatalogWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame's rows to a topic. Spark creates it on the driver, and pickles it for the tasks."""

    def __init__(self, options: CatalogWriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Create what is missing, and fail before any work if another process writes to the catalog."""
        if overwrite:
            raise UsageError("a catalog can only be appended to", hint='give .mode("append")')
        super().__init__(options, schema, f"batch-{secrets.token_hex(6)}")
        if is_held(self._layout.writer_lock):
            with _writing(self._layout):  # waits, or raises an error that names the holder
                pass
        sweep(self._layout)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Stage the rows of one attempt of a task."""
        options = self._options
        key = None if options.producer is None or options.sequence is None else (options.producer, options.sequence)
        return self._stage(iterator, Batch(key, options.note))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Add all staged segments to the catalog in one transaction."""
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the staged files."""
        self._clear(messages)


class CatalogStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes micro-batches to a topic, each once: the catalog recognises a repeated one by its query and batch.

    Spark creates one writer for each micro-batch, and another to commit it.
    """

    def __init__(self, options: CatalogWriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Raises UsageError, InvalidEventError, AggregatorError."""
        if overwrite:
            raise UsageError("a catalog can only be appended to", hint='give .outputMode("append")')
        named = checksum64(options.checkpoint.encode()) if options.checkpoint else secrets.randbits(64)
        super().__init__(options, schema, f"stream-{named:016x}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Stage the rows of one attempt of a task of a micro-batch."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY)
        number = None if context is None else context.getLocalProperty(BATCH)
        if query is None or number is None:
            raise UsageError("Spark does not say which micro-batch this is", hint="write with writeStream")
        return self._stage(iterator, Batch((f"spark:{query}", int(number))))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Add the micro-batch to the catalog, unless that was done before a restart."""
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete the staged files of the micro-batch."""
        self._clear(messages)


@contextmanager
def _writing(layout: Layout) -> Iterator[WriterEngine]:
    """Open the catalog for writing. Raises CatalogLockedError if another process keeps it for LOCK_SECONDS."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            writing = WriterEngine(layout, Durability.of("fsync"), Limits(), now_us)
            break
        except CatalogLockedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    try:
        yield writing
    finally:
        writing.close()
