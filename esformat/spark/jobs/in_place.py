"""Files of which each gets a new version, written by a task and put in its place by the driver."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from esformat.commits import Write
from esformat.errors import UsageError
from esformat.spark.files import name_of, segments_at
from esformat.spark.jobs.summary import Progress, Summary
from esformat.spark.jobs.waves import in_waves


@dataclass(frozen=True, slots=True)
class Remade:
    """A file's next version, where a task put it; None: the file is as it should be."""

    staged: str | None
    events: int
    note: str = ""


Remake = Callable[[str, str], Remade]
"""Given a segment and where its next version goes, writes that, or finds that there is nothing to do."""


class _Task:
    def __init__(self, remake: Remake) -> None:
        self._remake = remake

    def __call__(self, pair: tuple[str, str]) -> Remade:
        path, staged = pair
        return self._remake(path, f"{staged}-{secrets.token_hex(4)}.esdb")  # no two attempts write to one name


def local_segments(paths: Sequence[str]) -> list[str]:
    """The segments of local directories. Raises UsageError where one is in an object store, or none is there."""
    places = segments_at(paths)
    stored = [place for place in places if not isinstance(place, str)]
    if stored:
        raise UsageError(
            "files in object stores are not rewritten in place", path=name_of(stored[0]), hint="work on a copy on disk"
        )
    return [place for place in places if isinstance(place, str)]


def remake_all(
    spark: SparkSession, job: str, paths: Sequence[str], remake: Remake, progress: Progress | None
) -> Summary:
    """Give each segment its next version, atomically one by one; those that are done are recognised and skipped."""
    summary = Summary(job)
    files = local_segments(paths)
    sizes = {path: Path(path).stat().st_size for path in files}
    writes = {folder: Write(folder, secrets.token_hex(8)) for folder in {str(Path(path).parent) for path in files}}
    done = 0
    try:
        for write in writes.values():
            write.begin()
        pairs = [(path, str(writes[str(Path(path).parent)].staging / f".{Path(path).stem}")) for path in files]
        for (path, _), remade, reason in in_waves(spark, pairs, _Task(remake)):
            summary.files += 1
            done += sizes[path]
            if remade is None:
                summary.failed.append((path, reason or "unknown"))
            elif remade.staged is None:
                summary.skipped += 1
            else:
                summary.bytes += Path(remade.staged).stat().st_size
                os.replace(remade.staged, path)  # noqa: PTH105 - both names are text here
                summary.made += 1
                summary.events += remade.events
            if remade is not None and remade.note:
                summary.notes.append(f"{path}: {remade.note}")
            if progress:
                progress(done, sum(sizes.values()))
    finally:
        for write in writes.values():
            write.abort()
    return summary.finish()
