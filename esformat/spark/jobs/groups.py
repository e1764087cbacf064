"""The common part of jobs on files of other formats: groups of files are read, published and recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from esformat.errors import UsageError
from esformat.format.schema import KEY_COLUMNS
from esformat.spark.foreign import ForeignSource, Reading
from esformat.spark.input_rows import InputRules
from esformat.spark.jobs.inputs import InputFile, choose_groups, format_of, input_files
from esformat.spark.jobs.ledger import Entry, not_done
from esformat.spark.jobs.reading import rules_of
from esformat.spark.jobs.summary import FAILURES, Progress, Summary, reason_of
from esformat.spark.jobs.survey import Inspection, inspect
from esformat.spark.requirement import require_classic
from esformat.spark.source import zone_of

_SMALL_ROWS = 200_000
_SMALL_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Published:
    """The result of a group: files, events and stored bytes."""

    files: int
    events: int
    bytes: int


Publish = Callable[[list[InputFile]], Published]
"""Publishes and records a group, atomically. Raises one of FAILURES."""
Prepare = Callable[[Sequence[InputFile], Summary], Sequence[InputFile]]


@dataclass(slots=True)
class Inputs:
    """Files of one format, and how their rows become events. rules: None for segments, which the data source reads."""

    spark: SparkSession
    files: Sequence[InputFile]
    kind: str
    rules: InputRules | None
    roles: Mapping[str, Any]
    _inspected: Inspection | None = None

    @classmethod
    def find(
        cls,
        spark: SparkSession,
        paths: str | Sequence[str],
        format: str | None,
        known: Sequence[str],
        read_options: Mapping[str, Any] | None,
        roles: Mapping[str, Any],
    ) -> Inputs:
        """Find the files named by paths, directories and patterns. format: None: by file names. Raises UsageError."""
        require_classic(spark, "a job")
        files = [InputFile.at(path) for path in input_files(paths)]
        kind = format or format_of(files)
        if kind not in known:
            raise UsageError(f"invalid format {kind!r}: expected one of {', '.join(known)}")
        if kind == "esdb":
            if read_options:
                raise UsageError("read options do not apply to segments", hint="remove the read options")
            return cls(spark, files, kind, None, roles)
        return cls(spark, files, kind, rules_of(kind, read_options or {}, roles, zone=zone_of(spark)), roles)

    def prepare(
        self, files: Sequence[InputFile], summary: Summary, existing: pa.Schema | None = None
    ) -> Sequence[InputFile]:
        """Survey the files to process; return those that can be read, and record why others cannot.

        existing: the columns of existing segments. Raises UsageError for incompatible columns.
        """
        if self.rules is None or not files:
            return files
        self._inspected = inspect(self.spark, self.rules, files, existing)
        summary.failed += self._inspected.failed
        summary.files += len(self._inspected.failed)
        summary.notes += self._inspected.notes()
        return [file for file in files if file.path in self._inspected.files]

    def events(self, group: Sequence[InputFile]) -> tuple[DataFrame, int]:
        """The events of some of the prepared files, and their number."""
        found = self._inspected
        if found is None:
            paths = json.dumps([file.path for file in group])
            df = self.spark.read.format("esdb").option("paths", paths).load()
            return df, df.count()
        tasks = max(1, self.spark.sparkContext.defaultParallelism)
        reading = Reading(found.rules, found.plan, found.pieces(group), tasks)
        self.spark.dataSource.register(ForeignSource)
        df = self.spark.read.format(ForeignSource.name()).option("reading", reading.encode()).load()
        exact = found.rules.on_error == "stop"
        return df, sum(found.files[file.path].rows for file in group) if exact else df.count()

    def event_roles(self, group: Sequence[InputFile], rows: int) -> dict[str, Any]:
        """The roles after rows became events, whose keys have the standard names.

        A small group gets one partition, so that Spark need not sample it first.
        """
        if self._inspected is None:
            return dict(self.roles)
        made = {name: value for name, value in self.roles.items() if name not in KEY_COLUMNS}
        small = rows <= _SMALL_ROWS and sum(file.size_bytes for file in group) <= _SMALL_BYTES
        if small and made.get("partitions") is None:
            made["partitions"] = 1
        return {**made, "space": "space", "timestamp": "timestamp"}


def in_groups(
    job: str,
    files: Sequence[InputFile],
    publish: Publish,
    *,
    kind: str,
    prepare: Prepare = lambda files, _: files,
    ledgers: Iterable[Sequence[Entry]],
    target: str,
    group_bytes: int,
    progress: Progress | None,
) -> Summary:
    """Publish files group by group, except those whose content the ledgers list as done.

    A failure costs only its group.
    kind: the format of the files. prepare: chooses the files to publish. target: the destination's name in messages.
    """
    summary = Summary.begin(job, progress)
    todo = prepare(not_done(files, kind, ledgers, target, summary), summary)
    total, done = sum(file.size_bytes for file in todo), 0
    for group in choose_groups(todo, group_bytes):
        try:
            published = publish(group)
        except FAILURES as error:
            summary.failed += [(file.path, reason_of(error)) for file in group]
        else:
            summary.made += published.files
            summary.events += published.events
            summary.bytes += published.bytes
        summary.files += len(group)
        done += sum(file.size_bytes for file in group)
        if progress:
            progress(done, total)
    return summary.finish()


def check_count(read: int, written: int, target: str) -> None:
    """Raise UsageError if the numbers of rows read and events written differ."""
    if written != read:
        raise UsageError(f"{read} rows were read and {written} events written", path=target)
