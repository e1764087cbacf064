"""`read`: segments as a DataFrame, with condition and columns given in advance."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from esformat.spark.options import ReadOptions, as_list
from esformat.spark.source import register, zone_of


def read(
    spark: SparkSession,
    paths: str | Sequence[str],
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    **options: str | int,
) -> DataFrame:
    """Return a DataFrame of the events of segments that satisfy a condition.

    where: a condition such as `space = 'ada' AND type IN ('page', 'purchase')`. Events that it excludes by space,
    grouping, time or indexes are not read, independent of Spark's version and settings. Its times without a zone are in
    the session's zone.
    columns: those to read.
    Other options are those of `format("esdb")`. Raises Spark's errors for an invalid path or option.
    """
    given = {name: str(value) for name, value in options.items()}
    given["paths"] = json.dumps([paths] if isinstance(paths, str) else list(paths))
    if where is not None:
        given["where"] = where
        given.setdefault("timeZone", zone_of(spark))
    if columns is not None:
        given["columns"] = as_list(columns)
    ReadOptions.parse(given)
    register(spark)
    return spark.read.format("esdb").options(**given).load()
