"""Shuffling of rows by range of space and time, and sorting within each range, by Spark's own engine."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from esformat.errors import UsageError
from esformat.spark.event_columns import column_name


def clustered(
    df: DataFrame,
    *,
    space: str,
    timestamp: str,
    grouping: str | None = None,
    partitions: int | None = None,
    first: Sequence[str] = (),
) -> DataFrame:
    """Cluster the rows so that a space is in one partition, or in adjacent ones if it is large. Raises UsageError.

    partitions: number of ranges; None: Spark decides by size. first: columns that precede the space in range and order.
    """
    for name in (space, timestamp, *([grouping] if grouping else []), *first):
        if name not in df.columns:
            raise UsageError(f"unknown column {name!r}", hint=f"the columns are {', '.join(df.columns)}")
    by_grouping = grouping or ("grouping" if "grouping" in df.columns else None)
    before = [df[column_name(name)] for name in first]
    space_key, time_key = df[column_name(space)], df[column_name(timestamp)]
    range_keys = [*before, space_key, time_key]
    sort_keys = [*before, space_key, *([df[column_name(by_grouping)]] if by_grouping else []), time_key]
    ranges = df.repartitionByRange(partitions, *range_keys) if partitions else df.repartitionByRange(*range_keys)
    return ranges.sortWithinPartitions(*sort_keys)
