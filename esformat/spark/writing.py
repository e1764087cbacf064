"""`write`: a DataFrame as segments that each hold a range of spaces, sorted by Spark."""

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

SPARK_MODES = ("append", "overwrite")  # that Spark lets a data source in Python write in
MODES = (*SPARK_MODES, "error", "errorifexists", "default", "ignore")


@dataclass(frozen=True, slots=True)
class Written:
    """What a write published: the job's name, files, events and stored bytes. Nothing, by no job, where it ignored."""

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
    """Write a DataFrame as segments of a directory or prefix, clustered: a space lies in one, or in neighbours.

    Spark shuffles the rows by range of space and time, sorts each range, and each task writes one segment or more. A
    space with more events than a task takes is split by time.

    space, timestamp, grouping, indexes: columns, as the options of `format("esdb")`, and so are `options`.
    mode: "append", "overwrite", "error" (also "errorifexists" or "default", Spark's words: segments that are there are
    an error) or "ignore" (then nothing is written); readers see all of a write at once.
    partitions: ranges to shuffle into, each the work of one task; None: Spark decides by their size.
    partition_by: columns, outermost first, whose values name directories `name=value` that the rows go into; segments
    keep the columns. Values are text, whole numbers, dates or truth values.
    segment_bytes: a task begins its next segment at so many bytes of Arrow in memory (256 MiB).
    Raises UsageError for columns that cannot be it, and what Spark raises when a task fails; then nothing changes.
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
        raise UsageError("segments are there", path=path, hint='give mode="append" or mode="overwrite"')
    rows = clustered(df, space=space, timestamp=timestamp, grouping=grouping, partitions=partitions, first=partition_by)
    rows.write.format("esdb").options(**given).mode(mode if mode in SPARK_MODES else "append").save(path)
    facts = commit_of(folder_at(path), job)["facts"]
    return Written(job, facts["files"], facts["events"], facts["bytes"])
