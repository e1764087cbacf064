"""`read`: segments as a DataFrame, with what is read of them said beforehand."""

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
    """Segments as a DataFrame of the events that meet a condition.

    where: comparisons joined by AND, e.g. `space = 'ada' AND type IN ('page', 'purchase')`: what it rules out by
    space, grouping, time and indexes is not read, whatever version and settings Spark has. Times in it that name no
    zone are of the session's. columns: those to read.
    Other options as of `format("esdb")`. Raises what Spark raises for a path or option that is wrong.
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
