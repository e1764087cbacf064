"""`convert`: other people's files into segments, and segments into files of theirs, a group of files at a time."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import BinaryType

from esformat.commit_folder import LocalFolder
from esformat.commits import Write, commits
from esformat.errors import UsageError
from esformat.location import folder_at
from esformat.spark.event_columns import column_name
from esformat.spark.files import name_of, segments_at
from esformat.spark.jobs.inputs import (
    GROUP_BYTES,
    INPUT_FORMATS,
    InputFile,
    as_events,
    choose_groups,
    format_of,
    input_files,
    ledger,
    not_done,
    read_inputs,
)
from esformat.spark.jobs.summary import FAILURES, Progress, Summary, reason_of
from esformat.spark.write import write

OUTPUT_FORMATS = ("parquet", "orc", "json", "csv")
_COUNT_OPTIONS: Mapping[str, Mapping[str, str]] = {"csv": {"multiLine": "true"}, "json": {"primitivesAsString": "true"}}


def convert(
    spark: SparkSession,
    inputs: Sequence[str],
    out: str,
    *,
    format: str | None = None,
    read_options: Mapping[str, str] | None = None,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
    **roles: Any,
) -> Summary:
    """Convert files of another format into segments of the directory or prefix `out`, clustered by space.

    inputs: files, directories, patterns. format: one of INPUT_FORMATS; None: by the files' names. read_options: as of
    `spark.read.format(format)`; JSON and CSV that cannot be read fail, unless `mode` says otherwise. roles: `space`,
    `timestamp`, `grouping`, `indexes` and others of `esformat.spark.write`; whole numbers in the keys become text, text
    in the timestamp is read as Spark reads times.
    Files that were converted into `out` before are skipped: a job that was stopped goes on with its next group. One
    that has changed since is an error. A group is published whole and after its events have been counted.
    Raises UsageError for what cannot be; what goes wrong with a group is in the summary's `failed`.
    """
    summary = Summary("convert")
    files = [InputFile.at(path) for path in input_files(inputs)]
    kind = format or format_of(files)
    if kind not in INPUT_FORMATS:
        raise UsageError(f"format {kind!r} is none of {', '.join(INPUT_FORMATS)}")
    todo = not_done(files, _ledgers(out), out, summary)
    total, done = sum(file.size_bytes for file in todo), 0
    for group in choose_groups(todo, group_bytes):
        try:
            df = read_inputs(spark, kind, [file.path for file in group], read_options or {})
            df = as_events(df, roles)
            rows = df.count()
            written = write(
                df, out, facts=json.dumps({"job": "convert", "rows": rows, "inputs": ledger(group)}), **roles
            )
            if written.events != rows:
                raise UsageError(f"{rows} rows were read and {written.events} events written", path=out)
        except FAILURES as error:
            summary.failed += [(file.path, reason_of(error)) for file in group]
        else:
            summary.made += written.files
            summary.events += written.events
            summary.bytes += written.bytes
        summary.files += len(group)
        done += sum(file.size_bytes for file in group)
        if progress:
            progress(done, total)
    return summary.finish()


def export(
    spark: SparkSession,
    inputs: Sequence[str],
    out: str,
    *,
    format: str,
    write_options: Mapping[str, str] | None = None,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
) -> Summary:
    """Convert segments into files of another format in the directory `out`.

    format: one of OUTPUT_FORMATS; JSON means JSON lines, and CSV has a header. Binary columns become
    base64 in CSV, as they do in JSON. Restarts and failures as for `convert`.
    """
    if not isinstance(folder_at(out), LocalFolder):
        raise UsageError("Spark's own formats are written to a directory that all machines share", path=out)
    if format not in OUTPUT_FORMATS:
        raise UsageError(f"format {format!r} is none of {', '.join(OUTPUT_FORMATS)}")
    summary = Summary("export")
    todo = not_done([InputFile.at(path) for path in _local_segments(inputs)], _ledgers(out), out, summary)
    total, done = sum(file.size_bytes for file in todo), 0
    for group in choose_groups(todo, group_bytes):
        try:
            _export_group(spark, group, out, format, dict(write_options or {}), summary)
        except FAILURES as error:
            summary.failed += [(file.path, reason_of(error)) for file in group]
        summary.files += len(group)
        done += sum(file.size_bytes for file in group)
        if progress:
            progress(done, total)
    return summary.finish()


def _local_segments(inputs: Sequence[str]) -> list[str]:
    places = segments_at(inputs)
    for place in places:
        if not isinstance(place, str):
            raise UsageError(
                "what was exported is remembered by time of change, which objects are not asked for",
                path=name_of(place), hint='read them with spark.read.format("esdb"), and write what you read',
            )  # fmt: skip
    return [place for place in places if isinstance(place, str)]


def _export_group(
    spark: SparkSession, group: list[InputFile], out: str, format: str, options: dict[str, str], summary: Summary
) -> None:
    df = spark.read.format("esdb").option("paths", json.dumps([file.path for file in group])).load()
    rows = df.count()
    if format == "csv":
        options.setdefault("header", "true")
        options.setdefault("escape", '"')
        binary = [field.name for field in df.schema if isinstance(field.dataType, BinaryType)]
        df = df.withColumns({name: fn.base64(fn.col(column_name(name))) for name in binary})
    write = Write(LocalFolder(out), secrets.token_hex(8), f".{format}")
    write.begin()
    try:
        folder = Path(out) / write.folder.staged(write.job, "data")
        df.write.format(format).options(**options).save(str(folder))
        counted = spark.read.format(format).options(**{**_COUNT_OPTIONS.get(format, {}), **options}).load(str(folder))
        found = counted.count()
        if found != rows:
            raise UsageError(f"{rows} events were read and {found} rows written", path=out)
        parts = sorted(folder.glob("part-*"))
        stored = sum(path.stat().st_size for path in parts)
        staged = [str(path.relative_to(out)) for path in parts]
        write.commit(staged, facts={"job": "export", "rows": rows, "inputs": ledger(group)})
    except BaseException:
        write.abort()
        raise
    summary.made += len(staged)
    summary.events += rows
    summary.bytes += stored


def _ledgers(out: str) -> list[list[list[Any]]]:
    """What committed groups name as their inputs."""
    return [record["facts"].get("inputs", []) for record in commits(folder_at(out)).values()]
