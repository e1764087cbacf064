"""`write`: write a DataFrame as segments that each contain a range of spaces, sorted by Spark."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from esformat.errors import UsageError
from esformat.io.commits import commit_of
from esformat.io.location import folder_at
from esformat.spark.cluster import clustered
from esformat.spark.files import listed_below
from esformat.spark.options import WriteOptions, as_list
from esformat.spark.source import register

SPARK_MODES = ("append", "overwrite")  # modes that Spark supports for Python data sources
MODES = (*SPARK_MODES, "error", "errorifexists", "default", "ignore")


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write: the job's name, files, events and stored bytes; all empty if mode "ignore" skipped it."""

    job: str
    files: int
    events: int
    bytes: int


def write(
    df: DataFrame,
    path: str,
    *,
    space: str = "space",
    timestamp: str = "timestamp",
    grouping: str | None = None,
    indexes: Sequence[str] = (),
    mode: str = "append",
    partitions: int | None = None,
    segment_bytes: int | str | None = None,
    partition_by: Sequence[str] = (),
    **options: str | int,
) -> Written:
    """Write a DataFrame as segments in a directory or prefix, clustered: a space is in one segment or in adjacent ones.

    Spark shuffles the rows by range of space and time and sorts each range, and each task writes one or more segments.
    A space with more events than fit in a task is split by time.

    space, timestamp, grouping, indexes: columns, as in the options of `format("esdb")`. options: further such options.
    mode: "append", "overwrite", "error" (or Spark's "errorifexists" and "default": existing segments are an error) or
    "ignore" (write nothing if there are segments). Writes are atomic for readers.
    partitions: the number of ranges, each written by one task; None: Spark decides by size.
    partition_by: columns, outermost first, whose values name directories `name=value` for the rows; segments keep the
    columns. Values are text, integers, dates or booleans.
    segment_bytes: a task starts its next segment at so many bytes of Arrow in memory (default: 256 MiB).
    Raises UsageError for unsuitable columns, and Spark's errors if a task fails; then nothing is changed.
    """
    if mode not in MODES:
        raise UsageError(f"invalid mode {mode!r}: expected one of {', '.join(MODES)}")
    register(df.sparkSession)
    job = str(options.pop("job", "")) or secrets.token_hex(8)
    given = {"space": space, "timestamp": timestamp, "indexes": as_list(indexes), "job": job}
    if grouping is not None:
        given["grouping"] = grouping
    if segment_bytes is not None:
        given["segmentBytes"] = str(segment_bytes)
    if partition_by:
        given["partitionBy"] = as_list(partition_by)
    given |= {name: str(value) for name, value in options.items()}
    WriteOptions.parse({**given, "path": path})
    if mode not in SPARK_MODES and listed_below(folder_at(path)):
        if mode == "ignore":
            return Written("", 0, 0, 0)
        raise UsageError("segments exist already", path=path, hint='give mode="append" or mode="overwrite"')
    rows = clustered(df, space=space, timestamp=timestamp, grouping=grouping, partitions=partitions, first=partition_by)
    rows.write.format("esdb").options(**given).mode(mode if mode in SPARK_MODES else "append").save(path)
    facts = commit_of(folder_at(path), job)["facts"]
    return Written(job, facts["files"], facts["events"], facts["bytes"])
