"""Rows shuffled by range of space and time and sorted within each range, by Spark's own engine."""

from __future__ import annotations

from pyspark.sql import DataFrame

from esformat.errors import UsageError
from esformat.spark.event_columns import column_name


def clustered(
    df: DataFrame, *, space: str, timestamp: str, grouping: str | None = None, partitions: int | None = None
) -> DataFrame:
    """The rows so that a space lies in one partition, a large one in neighbours. Raises UsageError.

    partitions: ranges to shuffle into; None: Spark decides by their size.
    """
    for name in (space, timestamp, *([grouping] if grouping else [])):
        if name not in df.columns:
            raise UsageError(f"there is no column {name!r}", hint=f"the columns are {', '.join(df.columns)}")
    by_grouping = grouping or ("grouping" if "grouping" in df.columns else None)
    range_keys = [df[column_name(space)], df[column_name(timestamp)]]
    sort_keys = [range_keys[0], *([df[column_name(by_grouping)]] if by_grouping else []), range_keys[1]]
    ranges = df.repartitionByRange(partitions, *range_keys) if partitions else df.repartitionByRange(*range_keys)
    return ranges.sortWithinPartitions(*sort_keys)
