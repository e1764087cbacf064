"""Writing of segments as a Spark data source: tasks write to a staging directory, and the driver's commit publishes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from esformat.errors import UsageError
from esformat.io.commit_folder import CommitFolder
from esformat.io.commits import Write
from esformat.io.lease import owned
from esformat.io.location import SUFFIX, folder_at
from esformat.spark.column_cache import cached_columns
from esformat.spark.directories import shared_out
from esformat.spark.event_columns import EventColumns
from esformat.spark.files import listed_below, size_of
from esformat.spark.options import WriteOptions
from esformat.spark.portions import portions
from esformat.spark.types import arrow_schema, unify_schemas
from esformat.write.writer import create

OVERWRITE_SECONDS = 60
"""How long an overwrite waits for another one to finish, which takes a listing and some renames."""


@dataclass(frozen=True, slots=True)
class StagedSegment:
    """A finished segment that awaits the commit.

    name: relative to the destination. directory: the subdirectory to publish it in; "": none.
    """

    name: str
    events: int
    stored_bytes: int
    directory: str = ""


@dataclass
class TaskResult(WriterCommitMessage):
    """The segments that one task wrote, in order."""

    segments: tuple[StagedSegment, ...]


class SegmentWriter(DataSourceArrowWriter):
    """Writes a DataFrame's rows as segments of bounded size. Spark creates it on the driver and pickles it to tasks.

    A task sorts only what it has buffered, so segments are clustered by space only if the rows are: see `write`.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool, job_prefix: str = "") -> None:
        """Check what can be checked in advance, and begin the write. Raises UsageError, InvalidEventError, OSError.

        job_prefix: the prefix of the write's generated name, if none is given.
        """
        self._options = options
        self._arrow = arrow_schema(schema)
        self._columns = EventColumns.choose(self._arrow, options)
        for name in options.partition_by:
            if name not in self._arrow.names:
                raise UsageError(f"no column {name!r}", hint=f"the columns are {', '.join(self._arrow.names)}")
        self._overwrite = overwrite
        self._facts = _object(options.facts)
        self._write = Write(
            folder_at(options.path), options.job or job_prefix + secrets.token_hex(8), SUFFIX, options.lease
        )
        if not overwrite:
            self._check_fits()
        self._write.begin()

    @property
    def folder(self) -> CommitFolder:
        """The destination of the segments."""
        return self._write.folder

    @property
    def job(self) -> str:
        """The name of the write."""
        return self._write.job

    def _check_fits(self) -> None:
        """Raise UsageError if the new columns could not be read together with the existing ones."""
        try:
            self._check_columns(cached_columns(self._write.folder))
        except UsageError:
            self._check_columns(cached_columns(self._write.folder, refresh=True))  # its error names the segment

    def _check_columns(self, existing: list[tuple[str, pa.Schema]]) -> None:
        keys = pa.binary() if self._columns.binary_keys else pa.string()
        if existing and existing[0][1].field("space").type != keys:
            raise UsageError(
                f"its segments have keys of type {existing[0][1].field('space').type}, not {keys}",
                path=self._options.path,
                hint="cast the space column, or set the option keys",
            )
        if existing:
            unify_schemas([*existing, ("what is written", self._columns.payload(self._arrow))])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Run one attempt of a task: write its rows as segments with unique names."""
        context = TaskContext.get()
        task = "0-0" if context is None else f"{context.partitionId()}-{context.taskAttemptId()}"
        segments = []
        for number, (directory, batches) in enumerate(self._shares(iterator)):
            name = self._write.staged(f"{task}-{number}-{secrets.token_hex(4)}")
            segments.append(replace(self._write_segment(name, batches), directory=directory))
        return TaskResult(tuple(segments))

    def _shares(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
        """Yield the rows of each segment, with its directory."""
        for portion in self._portions(batches):
            if not self._options.partition_by:
                yield "", portion
                continue
            table = pa.Table.from_batches(portion)
            portion.clear()
            for directory, rows in shared_out(table, self._options.partition_by):
                yield directory, rows.to_batches()

    def _portions(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
        return portions(batches, most_bytes=self._options.segment_bytes, most_events=self._options.segment_events)

    def _write_segment(self, name: str, batches: list[pa.RecordBatch]) -> StagedSegment:
        options, place = self._options, self._write.place(name)
        with create(
            place,
            indexes=options.indexes,
            schema=self._columns.payload(self._arrow),
            codec=options.codec,
            level=options.level,
            keys="binary" if self._columns.binary_keys else "text",
            threads=1,
        ) as writer:
            for batch in batches:
                writer.add_table(batch.rename_columns(list(self._columns.names)))
            batches.clear()  # now held by the writer
            events = writer.num_events
        self._write.keep(name)
        return StagedSegment(name, events, size_of(place))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the segments of the tasks; an overwrite atomically hides the old ones."""
        results = [message for message in messages if isinstance(message, TaskResult)]
        segments = [segment for result in results for segment in result.segments]
        with self._alone():
            self._publish(segments)

    def _alone(self) -> AbstractContextManager[object]:
        """Serialise overwrites: of two that finish together, the second must see and remove what the first wrote."""
        if not self._overwrite:
            return nullcontext()
        return owned(self._write.folder, "overwrite", kind="overwrite", wait_seconds=OVERWRITE_SECONDS)

    def _publish(self, segments: list[StagedSegment]) -> None:
        existing = list(listed_below(self._write.folder))
        removed = existing if self._overwrite else []
        if not segments and (self._overwrite or not existing):  # an empty segment keeps the columns
            segments = [self._write_segment(self._write.staged("empty"), [])]
        facts = {
            **self._facts,
            "files": len(segments),
            "events": sum(segment.events for segment in segments),
            "bytes": sum(segment.stored_bytes for segment in segments),
        }
        staged = {segment.name: segment.directory for segment in segments}
        self._write.commit(staged, removed=removed, facts=facts, forget=self._overwrite)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard the write: everything that tasks wrote is in the staging directory."""
        self._write.abort()


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"option 'facts' must be a JSON object, not {text!r}")
    return found
