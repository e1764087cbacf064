"""`convert`: other people's files into segments, and segments into files of theirs, a group of files at a time."""

from __future__ import annotations

import glob
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import BinaryType, IntegralType, StringType

from esformat.commits import Write, commits
from esformat.errors import EsdbError, UsageError
from esformat.spark.foreign import ForeignSource
from esformat.spark.jobs.in_place import local_segments
from esformat.spark.jobs.summary import Progress, Summary, reason_of
from esformat.spark.write import write

GROUP_BYTES = 8 << 30
"""Input that is read, sorted and published together: what a job that is stopped has to do again, at most."""

INPUT_FORMATS = ("parquet", "orc", "json", "csv", "arrow", "customerio")
OUTPUT_FORMATS = ("parquet", "orc", "json", "csv")
_SUFFIXES = {
    ".parquet": "parquet", ".orc": "orc", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv",
    ".arrow": "arrow", ".feather": "arrow",
}  # fmt: skip
_READ_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "json": {"mode": "FAILFAST"},  # Spark's own default turns what it cannot read into nulls
    "csv": {"mode": "FAILFAST", "header": "true", "inferSchema": "true"},
}
_COUNT_OPTIONS: Mapping[str, Mapping[str, str]] = {"csv": {"multiLine": "true"}, "json": {"primitivesAsString": "true"}}
_FAILURES = (EsdbError, OSError, PySparkException, Py4JError)


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as the record of a commit knows it."""

    path: str
    size_bytes: int
    modified_ns: int

    @classmethod
    def at(cls, path: str) -> InputFile:
        """The file as it is now."""
        found = Path(path).stat()
        return cls(str(Path(path).resolve()), found.st_size, found.st_mtime_ns)


def choose_groups(files: Sequence[InputFile], group_bytes: int) -> list[list[InputFile]]:
    """Cut files, in their order, into groups of up to so many bytes; each has one at least."""
    groups: list[list[InputFile]] = []
    size = 0
    for file in files:
        if groups and size + file.size_bytes <= group_bytes:
            groups[-1].append(file)
            size += file.size_bytes
        else:
            groups.append([file])
            size = file.size_bytes
    return groups


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
    """Convert files of another format into segments of the directory `out`, clustered by space.

    inputs: files, directories, patterns. format: one of INPUT_FORMATS; None: by the files' names. read_options: as of
    `spark.read.format(format)`; JSON and CSV that cannot be read fail, unless `mode` says otherwise. roles: `space`,
    `timestamp`, `grouping`, `indexes` and others of `esformat.spark.write`; whole numbers in the keys become text, text
    in the timestamp is read as Spark reads times.
    Files that were converted into `out` before are skipped: a job that was stopped goes on with its next group. One
    that has changed since is an error. A group is published whole and after its events have been counted.
    Raises UsageError for what cannot be; what goes wrong with a group is in the summary's `failed`.
    """
    summary = Summary("convert")
    files = [InputFile.at(path) for path in _files(inputs)]
    kind = format or _format_of(files)
    if kind not in INPUT_FORMATS:
        raise UsageError(f"format {kind!r} is none of {', '.join(INPUT_FORMATS)}")
    if kind in ("arrow", "customerio"):
        spark.dataSource.register(ForeignSource)
    todo = _not_done(files, out, summary)
    total, done = sum(file.size_bytes for file in todo), 0
    for group in choose_groups(todo, group_bytes):
        try:
            df = _read(spark, kind, [file.path for file in group], read_options or {})
            df = _as_events(df, roles)
            rows = df.count()
            written = write(
                df, out, facts=json.dumps({"job": "convert", "rows": rows, "inputs": _ledger(group)}), **roles
            )
            if written.events != rows:
                raise UsageError(f"{rows} rows were read and {written.events} events written", path=out)
        except _FAILURES as error:
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
    if format not in OUTPUT_FORMATS:
        raise UsageError(f"format {format!r} is none of {', '.join(OUTPUT_FORMATS)}")
    summary = Summary("export")
    todo = _not_done([InputFile.at(path) for path in local_segments(inputs)], out, summary)
    total, done = sum(file.size_bytes for file in todo), 0
    for group in choose_groups(todo, group_bytes):
        try:
            _export_group(spark, group, out, format, dict(write_options or {}), summary)
        except _FAILURES as error:
            summary.failed += [(file.path, reason_of(error)) for file in group]
        summary.files += len(group)
        done += sum(file.size_bytes for file in group)
        if progress:
            progress(done, total)
    return summary.finish()


def _export_group(
    spark: SparkSession, group: list[InputFile], out: str, format: str, options: dict[str, str], summary: Summary
) -> None:
    df = spark.read.format("esdb").option("paths", json.dumps([file.path for file in group])).load()
    rows = df.count()
    if format == "csv":
        options.setdefault("header", "true")
        options.setdefault("escape", '"')
        binary = [field.name for field in df.schema if isinstance(field.dataType, BinaryType)]
        df = df.withColumns({name: fn.base64(_column(name)) for name in binary})
    write = Write(out, secrets.token_hex(8), f".{format}")
    write.begin()
    try:
        folder = write.staging / "data"
        df.write.format(format).options(**options).save(str(folder))
        counted = spark.read.format(format).options(**{**_COUNT_OPTIONS.get(format, {}), **options}).load(str(folder))
        found = counted.count()
        if found != rows:
            raise UsageError(f"{rows} events were read and {found} rows written", path=out)
        staged = sorted(str(path) for path in folder.glob("part-*"))
        stored = sum(Path(path).stat().st_size for path in staged)
        write.commit(staged, facts={"job": "export", "rows": rows, "inputs": _ledger(group)})
    except BaseException:
        write.abort()
        raise
    summary.made += len(staged)
    summary.events += rows
    summary.bytes += stored


# ------------------------------------------------------------ what was done before


def _ledger(group: Sequence[InputFile]) -> list[list[Any]]:
    return [[file.path, file.size_bytes, file.modified_ns] for file in group]


def _not_done(files: Sequence[InputFile], out: str, summary: Summary) -> list[InputFile]:
    """The files that no committed group holds; those that do are counted as skipped, or failed if they changed."""
    known = {}
    for record in commits(out).values() if Path(out).is_dir() else ():
        known.update({path: (size, modified) for path, size, modified in record["facts"].get("inputs", [])})
    todo = []
    for file in files:
        before = known.get(file.path)
        if before is None:
            todo.append(file)
        elif before == (file.size_bytes, file.modified_ns):
            summary.skipped += 1
        else:
            summary.failed.append((file.path, f"it was taken into {out} before, and has changed since"))
    return todo


# ------------------------------------------------------------ inputs


def _files(inputs: Sequence[str]) -> list[str]:
    """The files that paths, directories and patterns name, each once. Raises UsageError where one names nothing."""
    found: dict[str, None] = {}
    for path in inputs:
        here = sorted(_expand(path))
        if not here:
            raise UsageError("no such file", path=path)
        found.update(dict.fromkeys(here))
    return list(found)


def _expand(path: str) -> Iterator[str]:
    if Path(path).is_dir():
        for file in Path(path).rglob("*"):
            if file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts):
                yield str(file)
    else:
        for name in [path] if Path(path).exists() else glob.glob(path, recursive=True):  # noqa: PTH207 - `**`
            yield from [name] if Path(name).is_file() else _expand(name)


def _format_of(files: Sequence[InputFile]) -> str:
    """The one format that the names tell. Raises UsageError."""
    kinds = set()
    for file in files:
        suffixes = [suffix for suffix in Path(file.path).suffixes if suffix not in (".gz", ".bz2", ".zst")]
        kinds.add(_SUFFIXES.get(suffixes[-1]) if suffixes else None)
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        raise UsageError(
            "the names of the files do not tell one format", path=files[0].path, hint="say which with format"
        )
    return kind


def _read(spark: SparkSession, kind: str, paths: list[str], options: Mapping[str, str]) -> DataFrame:
    if kind in ("arrow", "customerio"):
        return spark.read.format(ForeignSource.name()).options(kind=kind, paths=json.dumps(paths)).load()
    return spark.read.format(kind).options(**{**_READ_OPTIONS.get(kind, {}), **options}).load(paths)


def _as_events(df: DataFrame, roles: Mapping[str, Any]) -> DataFrame:
    """Keys as text where they are whole numbers, the timestamp as one where it is text."""
    types = {field.name: field.dataType for field in df.schema}
    for name in (roles.get("space", "space"), roles.get("grouping")):
        if name in types and isinstance(types[name], IntegralType):
            df = df.withColumn(name, _column(name).cast("string"))
    name = roles.get("timestamp", "timestamp")
    if name in types and isinstance(types[name], StringType):
        df = df.withColumn(name, _column(name).cast("timestamp"))
    grouping = roles.get("grouping")
    if grouping in types:
        df = df.fillna("", subset=[grouping]) if isinstance(types[grouping], StringType) else df
    return df


def _column(name: str) -> Any:
    return fn.col("`" + name.replace("`", "``") + "`")
