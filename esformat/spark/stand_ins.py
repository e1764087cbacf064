"""Empty relations with a source's columns and unique names, for plans that show what a query needs."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

MOST_SCHEMAS = 100  # per session, with cached stand-ins


@dataclass(frozen=True, slots=True)
class StandIn:
    """An empty relation: an unnamed temporary view in Java, and the number of its RDD."""

    view: Any
    number: int


_kept: WeakKeyDictionary[SparkSession, dict[str, list[StandIn]]] = WeakKeyDictionary()


def stand_ins(spark: SparkSession, schemas: Sequence[str]) -> list[StandIn]:
    """Return a distinct stand-in for each schema (in Spark's JSON). Cached, since creating them is slow."""
    kept = _kept.setdefault(spark, {})
    if len(kept) > MOST_SCHEMAS:
        kept.clear()
    found, used = [], Counter[str]()
    for schema in schemas:
        alike = kept.setdefault(schema, [])
        if used[schema] == len(alike):
            alike.append(_made(spark, schema))
        found.append(alike[used[schema]])
        used[schema] += 1
    return found


def _made(spark: SparkSession, schema: str) -> StandIn:
    rows = spark.sparkContext._jsc.emptyRDD()
    frame = spark._jsparkSession.createDataFrame(rows, spark._jsparkSession.parseDataType(schema))
    name, catalog = new_name(), spark._jsparkSession.sessionState().catalog()
    frame.createOrReplaceTempView(name)
    try:
        return StandIn(catalog.getRawTempView(name).get(), int(frame.queryExecution().analyzed().rdd().id()))
    finally:
        catalog.dropTempView(name)


@contextmanager
def named(spark: SparkSession, each: Sequence[StandIn]) -> Iterator[list[str]]:
    """Create temporary views of stand-ins and yield their names, until the block ends."""
    names = [new_name() for _ in each]
    catalog = spark._jsparkSession.sessionState().catalog()
    try:
        for name, stand_in in zip(names, each, strict=True):
            catalog.createTempView(name, stand_in.view, True)
        yield names
    finally:
        for name in names:
            catalog.dropTempView(name)


def new_name() -> str:
    """Return a unique name."""
    return f"_esdb_{secrets.token_hex(8)}"
