"""Other people's files as inputs of jobs: what a path names, in which format, in groups, as events."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import IntegralType, StringType

from esformat.errors import UsageError
from esformat.location import local_path
from esformat.spark.event_columns import column_name
from esformat.spark.foreign import ForeignSource
from esformat.spark.jobs.identity import content_identity, origin_of

GROUP_BYTES = 8 << 30
"""Input that is read, sorted and published together: what a job that is stopped has to do again, at most."""
GROUP_FILES = 1000
"""So many files are in a group at most: what is kept of it names them all."""

INPUT_FORMATS = ("parquet", "orc", "json", "csv", "arrow", "customerio")
_IN_A_STORE = "jobs read other formats from directories that all machines share, not from a store"
_SUFFIXES = {
    ".parquet": "parquet", ".orc": "orc", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv",
    ".arrow": "arrow", ".feather": "arrow", ".esdb": "esdb",
}  # fmt: skip
_READ_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "json": {"mode": "FAILFAST"},  # Spark's own default turns what it cannot read into nulls
    "csv": {"mode": "FAILFAST", "header": "true", "inferSchema": "true"},
}


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as the record of a commit knows it. identities: of what its events come from, once that was looked up."""

    path: str
    size_bytes: int
    modified_ns: int
    identities: tuple[str, ...] = ()

    @classmethod
    def at(cls, path: str) -> InputFile:
        """The file as it is now."""
        found = Path(path).stat()
        return cls(str(Path(path).resolve()), found.st_size, found.st_mtime_ns)

    def identified(self, kind: str) -> InputFile:
        """The same with its identities. kind: its format. Raises OSError, CorruptSegmentError."""
        found = origin_of(self.path).identities if kind == "esdb" else (content_identity(self.path),)
        return replace(self, identities=found)


def choose_groups(files: Sequence[InputFile], group_bytes: int) -> list[list[InputFile]]:
    """Cut files, in their order, into groups of up to so many bytes and GROUP_FILES; each has one at least."""
    groups: list[list[InputFile]] = []
    size = 0
    for file in files:
        if groups and size + file.size_bytes <= group_bytes and len(groups[-1]) < GROUP_FILES:
            groups[-1].append(file)
            size += file.size_bytes
        else:
            groups.append([file])
            size = file.size_bytes
    return groups


def input_files(inputs: Sequence[str]) -> list[str]:
    """The files that paths, directories and patterns name, each once. Raises UsageError where one names nothing."""
    found: dict[str, None] = {}
    for path in (local_path(path, _IN_A_STORE) for path in inputs):
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


def format_of(files: Sequence[InputFile]) -> str:
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


def read_inputs(spark: SparkSession, kind: str, paths: list[str], options: Mapping[str, str]) -> DataFrame:
    """Files of one format as a DataFrame."""
    if kind == "esdb":
        return spark.read.format(kind).options(**{"paths": json.dumps(paths), **options}).load()
    if kind in ("arrow", "customerio"):
        spark.dataSource.register(ForeignSource)
        return spark.read.format(ForeignSource.name()).options(kind=kind, paths=json.dumps(paths)).load()
    return spark.read.format(kind).options(**{**_READ_OPTIONS.get(kind, {}), **options}).load(paths)


def as_events(df: DataFrame, roles: Mapping[str, Any]) -> DataFrame:
    """Keys as text where they are whole numbers, the timestamp as one where it is text."""
    types = {field.name: field.dataType for field in df.schema}
    for name in (roles.get("space", "space"), roles.get("grouping")):
        if name in types and isinstance(types[name], IntegralType):
            df = df.withColumn(name, fn.col(column_name(name)).cast("string"))
    name = roles.get("timestamp", "timestamp")
    if name in types and isinstance(types[name], StringType):
        df = df.withColumn(name, fn.col(column_name(name)).cast("timestamp"))
    grouping = roles.get("grouping")
    if grouping in types:
        df = df.fillna("", subset=[grouping]) if isinstance(types[grouping], StringType) else df
    return df
