"""`convert` and `export`: files of other formats to segments and back, a group of files at a time."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from esformat.convert import Conversion, convert_file
from esformat.errors import EsdbError, UsageError
from esformat.io.commits import Write, commits
from esformat.io.lease import owned
from esformat.io.location import folder_at, local_path
from esformat.spark.files import listed_below, name_of, segments_at
from esformat.spark.jobs.groups import Inputs, Published, check_count, in_groups
from esformat.spark.jobs.inputs import GROUP_BYTES, INPUT_FORMATS, InputFile
from esformat.spark.jobs.ledger import Entry, ledger
from esformat.spark.jobs.summary import Progress, Summary
from esformat.spark.jobs.waves import CHUNK_BYTES, chunked, in_waves
from esformat.spark.orc_file import write_orc
from esformat.spark.scan_plan import read_schemas
from esformat.spark.types import unify_schemas
from esformat.spark.writing import write

OUTPUT_FORMATS = ("parquet", "orc", "json", "csv")
_LOSS_HINT = "take parquet or another format, or allow the loss with allow_loss (--allow-loss)"


def convert(
    spark: SparkSession,
    inputs: str | Sequence[str],
    out: str,
    *,
    format: str | None = None,
    read_options: Mapping[str, Any] | None = None,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
    **roles: Any,
) -> Summary:
    """Convert files of another format to segments in the directory or prefix `out`, clustered by space.

    inputs: files, directories, patterns.
    format: one of INPUT_FORMATS; None: by the file names.
    read_options: how to read the files, as for `esdb write`: `delimiter`, `header`, `nulls`, `types`, `data`,
    `data_json`, `columns`, `timestamp_format`, `timezone` (default: the session's) and `on_error` (stop or skip). Also
    `hive`: whether directories called name=value become columns (the default), and `schema`: a segment that CSV or JSON
    lines were exported from, which supplies their columns.
    roles: `space`, `timestamp`, `grouping`, `indexes` and other arguments of `esformat.spark.write`.

    All files are surveyed first and get one set of columns, united by name; a column is null if a file lacks it.
    Files already converted into `out` are skipped, even if they were moved since, so a stopped job continues with its
    next group. A file that changed since is an error. No other job may work on `out`. A group is published as a whole,
    after its events have been counted.
    Raises UsageError for impossible requests, such as incompatible columns of two files. Failures of a file or a group
    are listed in the summary's `failed`.
    """
    found = Inputs.find(spark, inputs, format, INPUT_FORMATS, read_options, roles)

    def prepare(todo: Sequence[InputFile], summary: Summary) -> Sequence[InputFile]:
        existing = listed_below(folder_at(out))
        return found.prepare(todo, summary, unify_schemas(read_schemas(list(existing.values()))) if existing else None)

    with owned(folder_at(out), "convert") as lease:

        def publish(group: list[InputFile]) -> Published:
            df, rows = found.events(group)
            facts = json.dumps({"job": "convert", "rows": rows, "inputs": ledger(group)})
            written = write(df, out, facts=facts, lease=lease.name, **found.event_roles(group, rows))
            check_count(rows, written.events, out)
            return Published(written.files, written.events, written.bytes)

        return in_groups(
            "convert", found.files, publish, kind=found.kind, prepare=prepare, ledgers=_ledgers(out), target=out,
            group_bytes=group_bytes, progress=progress,
        )  # fmt: skip


def export(
    spark: SparkSession,
    inputs: str | Sequence[str],
    out: str,
    *,
    format: str,
    allow_loss: bool = False,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
) -> Summary:
    """Convert segments to files of another format in the directory `out`.

    format: one of OUTPUT_FORMATS; JSON means JSON lines, and CSV has a header and quoting as in RFC 4180. Each segment
    becomes one file, in the same order. A segment with values that the format cannot restore fails its group, unless
    `allow_loss`. Restarts and failures are handled as in `convert`.
    """
    out = local_path(out, "Spark's own formats are written to a directory that all machines share, not to a store")
    if format not in OUTPUT_FORMATS:
        raise UsageError(f"invalid format {format!r}: expected one of {', '.join(OUTPUT_FORMATS)}")
    files = [InputFile.at(path) for path in _local_segments(inputs)]

    with owned(folder_at(out), "export") as lease:

        def publish(group: list[InputFile]) -> Published:
            write = Write(lease.folder, secrets.token_hex(8), f".{format}", lease.name)
            return _export_group(spark, group, write, _Export(format, allow_loss))

        return in_groups(
            "export",
            files,
            publish,
            kind="esdb",
            ledgers=_ledgers(out),
            target=out,
            group_bytes=group_bytes,
            progress=progress,
        )


def _local_segments(inputs: str | Sequence[str]) -> list[str]:
    places = segments_at(inputs)
    for place in places:
        if not isinstance(place, str):
            raise UsageError(
                "export tracks files by modification time, which objects in a store do not have",
                path=name_of(place),
                hint='read them with spark.read.format("esdb"), and write the result',
            )
    return [place for place in places if isinstance(place, str)]


def _export_group(spark: SparkSession, group: list[InputFile], write: Write, export: _Export) -> Published:
    write.begin()
    try:
        staged: list[str] = []
        events = stored = 0
        chunks = chunked(group, lambda file: file.size_bytes, most=CHUNK_BYTES)
        for chunk, made, reason in in_waves(spark, [(write, files) for files in chunks], export):
            if made is None:
                raise UsageError(reason or f"unknown input {chunk[1][0].path}")
            for name, count, size in made:
                staged.append(name)
                events += count
                stored += size
        write.commit(staged, facts={"job": "export", "rows": events, "inputs": ledger(group)})
    except BaseException:
        write.abort()
        raise
    return Published(len(staged), events, stored)


class _Export:
    """Exports segments to files of another format. A class, so that tasks receive its name, not its code."""

    def __init__(self, format: str, allow_loss: bool) -> None:
        self.format = format
        self._allow_loss = allow_loss

    def __call__(self, work: tuple[Write, list[InputFile]]) -> list[tuple[str, int, int]]:
        """Export the segments; return name, events and stored bytes of each new file."""
        write, files = work
        return [self._export(write, file.path) for file in files]

    def _export(self, write: Write, path: str) -> tuple[str, int, int]:
        name = write.staged(f"exported-{secrets.token_hex(8)}")
        place = str(write.place(name))
        try:
            if self.format == "orc":
                events = write_orc(path, place, allow_loss=self._allow_loss)
            else:
                form = "jsonl" if self.format == "json" else self.format
                how = Conversion(source_format="esdb", target_format=form, allow_loss=self._allow_loss)
                events = convert_file(path, place, how)
        except EsdbError as error:
            raise type(error)(error.message, path=path, hint=_LOSS_HINT if error.hint else None) from None
        write.keep(name)
        return name, events, Path(place).stat().st_size


def _ledgers(out: str) -> list[list[Entry]]:
    """The inputs recorded by committed groups."""
    return [record["facts"].get("inputs", []) for record in commits(folder_at(out)).values()]
