"""What jobs over other people's files have in common: a group of files at a time is read, published and remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from esformat.errors import UsageError
from esformat.spark.jobs.inputs import (
    InputFile,
    as_events,
    choose_groups,
    format_of,
    input_files,
    read_inputs,
)
from esformat.spark.jobs.ledger import Entry, not_done
from esformat.spark.jobs.summary import FAILURES, Progress, Summary, reason_of


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a group: files, events and stored bytes."""

    files: int
    events: int
    bytes: int


Publish = Callable[[list[InputFile]], Published]
"""Takes a group in, whole or not at all, and remembers it. Raises one of FAILURES."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files of one format, and how their rows become events."""

    files: Sequence[InputFile]
    kind: str
    read_options: Mapping[str, str]
    roles: Mapping[str, Any]

    @classmethod
    def find(
        cls, paths: Sequence[str], format: str | None, known: Sequence[str], read_options: Mapping[str, str] | None,
        roles: Mapping[str, Any],
    ) -> Inputs:  # fmt: skip
        """What paths, directories and patterns name. format: None: by the names. Raises UsageError."""
        files = [InputFile.at(path) for path in input_files(paths)]
        kind = format or format_of(files)
        if kind not in known:
            raise UsageError(f"format {kind!r} is none of {', '.join(known)}")
        return cls(files, kind, read_options or {}, roles)

    def events(self, spark: SparkSession, group: Sequence[InputFile]) -> DataFrame:
        """The rows of some of the files."""
        return as_events(read_inputs(spark, self.kind, [file.path for file in group], self.read_options), self.roles)


def in_groups(
    job: str,
    files: Sequence[InputFile],
    publish: Publish,
    *,
    kind: str,
    ledgers: Iterable[Sequence[Entry]],
    target: str,
    group_bytes: int,
    progress: Progress | None,
) -> Summary:
    """Publish files, a group at a time; those whose content ledgers name were done before.

    What goes wrong with a group costs that group. kind: the format of the files. target: what messages call the place
    where the files go.
    """
    summary = Summary.begin(job, progress)
    todo = not_done(files, kind, ledgers, target, summary)
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
    """Raise UsageError where a group's rows are not as many as its events."""
    if written != read:
        raise UsageError(f"{read} rows were read and {written} events written", path=target)
