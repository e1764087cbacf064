"""Writing of micro-batches as segments in a directory: each appears atomically and only once, even if repeated.

The record of a micro-batch's commit is named after query and batch, so that a repeated batch is recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from esformat.errors import UsageError
from esformat.format.checksum import checksum64
from esformat.io.commits import Write, is_committed, staged_jobs, sweep
from esformat.io.location import SUFFIX
from esformat.spark.options import WriteOptions
from esformat.spark.save import SegmentWriter, StagedSegment

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Spark's local properties with the query and the micro-batch of a task."""


@dataclass
class BatchResult(WriterCommitMessage):
    """The segments that one task staged, with the query and the name of the write."""

    segments: tuple[StagedSegment, ...]
    query: str
    job: str


class SegmentStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches. Spark creates one instance per micro-batch, copied to tasks, and another for the commit."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        """Raises UsageError, InvalidEventError, OSError."""
        if overwrite:
            raise UsageError("a stream can only append segments", hint='give .outputMode("append")')
        # no prefix if Spark chooses the checkpoint, which is unknown here: it would also match other queries
        self._mine = f"stream{checksum64(options.checkpoint.encode()):016x}" if options.checkpoint else ""
        self._writer = SegmentWriter(options, schema, overwrite=False, job_prefix=self._mine)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchResult:
        """Run one attempt of a task of a micro-batch."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY)
        if query is None:
            raise UsageError("Spark does not identify the query", hint="write with writeStream")
        return BatchResult(self._writer.write(iterator).segments, query, self._writer.job)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the micro-batch, unless it was already published before a restart."""
        results = [message for message in messages if isinstance(message, BatchResult)]
        segments = [segment for result in results for segment in result.segments]
        try:
            if segments:
                self._publish(results[0].query, batchId, segments)
        finally:
            self._clear(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Discard the micro-batch."""
        self._clear(messages)

    def _publish(self, query: str, batch: int, segments: Sequence[StagedSegment]) -> None:
        folder = self._writer.folder
        write = Write(folder, f"{query.replace('-', '').lower()}b{batch}", SUFFIX)
        sweep(folder)  # finish or undo a commit in which a driver died
        if is_committed(folder, write.job):
            return
        write.begin()
        facts: dict[str, Any] = {
            "query": query,
            "batch": batch,
            "files": len(segments),
            "events": sum(segment.events for segment in segments),
            "bytes": sum(segment.stored_bytes for segment in segments),
        }
        write.commit({segment.name: segment.directory for segment in segments}, facts=facts)

    def _clear(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove the staged files of the micro-batch, and of earlier ones of this query if its checkpoint is known."""
        folder = self._writer.folder
        jobs = {self._writer.job, *(message.job for message in messages if isinstance(message, BatchResult))}
        for job in staged_jobs(folder):
            if job in jobs or (self._mine and job.startswith(self._mine)):
                Write(folder, job, SUFFIX).abort()
