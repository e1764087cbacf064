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

from esformat.commit_folder import staging_of
from esformat.commits import Write, commits
from esformat.errors import UsageError
from esformat.lease import owned
from esformat.location import folder_at, local_path
from esformat.spark.event_columns import column_name
from esformat.spark.files import name_of, segments_at
from esformat.spark.jobs.groups import Inputs, Published, check_count, in_groups
from esformat.spark.jobs.inputs import GROUP_BYTES, INPUT_FORMATS, InputFile
from esformat.spark.jobs.ledger import Entry, ledger
from esformat.spark.jobs.summary import Progress, Summary
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
    Files that were converted into `out` before are skipped, also where they were moved since: a job that was stopped
    goes on with its next group. One that has changed since is an error. No other job may work on `out`. A group is
    published whole and after its events have been counted.
    Raises UsageError for what cannot be; what goes wrong with a group is in the summary's `failed`.
    """
    found = Inputs.find(inputs, format, INPUT_FORMATS, read_options, roles)

    with owned(folder_at(out), "convert") as lease:

        def publish(group: list[InputFile]) -> Published:
            df = found.events(spark, group)
            rows = df.count()
            facts = json.dumps({"job": "convert", "rows": rows, "inputs": ledger(group)})
            written = write(df, out, facts=facts, lease=lease.name, **roles)
            check_count(rows, written.events, out)
            return Published(written.files, written.events, written.bytes)

        return in_groups(
            "convert", found.files, publish, kind=found.kind, ledgers=_ledgers(out), target=out,
            group_bytes=group_bytes, progress=progress,
        )  # fmt: skip


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
    out = local_path(out, "Spark's own formats are written to a directory that all machines share, not to a store")
    if format not in OUTPUT_FORMATS:
        raise UsageError(f"format {format!r} is none of {', '.join(OUTPUT_FORMATS)}")
    options = dict(write_options or {})
    files = [InputFile.at(path) for path in _local_segments(inputs)]

    with owned(folder_at(out), "export") as lease:

        def publish(group: list[InputFile]) -> Published:
            write = Write(lease.folder, secrets.token_hex(8), f".{format}", lease.name)
            return _export_group(spark, group, write, format, options)

        return in_groups(
            "export", files, publish, kind="esdb", ledgers=_ledgers(out), target=out, group_bytes=group_bytes,
            progress=progress,
        )  # fmt: skip


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
    spark: SparkSession, group: list[InputFile], write: Write, format: str, given: Mapping[str, str]
) -> Published:
    options, out = dict(given), write.folder.name
    df = spark.read.format("esdb").option("paths", json.dumps([file.path for file in group])).load()
    rows = df.count()
    if format == "csv":
        options.setdefault("header", "true")
        options.setdefault("escape", '"')
        binary = [field.name for field in df.schema if isinstance(field.dataType, BinaryType)]
        df = df.withColumns({name: fn.base64(fn.col(column_name(name))) for name in binary})
    write.begin()
    try:
        folder = Path(out) / staging_of(write.job) / "data"
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
    return Published(len(staged), rows, stored)


def _ledgers(out: str) -> list[list[Entry]]:
    """What committed groups name as their inputs."""
    return [record["facts"].get("inputs", []) for record in commits(folder_at(out)).values()]
