"""The sources that a Spark SQL query names: segments at a path, temporary views and tables over them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructType

from esformat.spark.catalyst import class_of, items
from esformat.spark.event_columns import column_name
from esformat.spark.reader import FILE_PATH
from esformat.spark.source import EsdbDataSource

SOURCE = EsdbDataSource.name()
PUSHDOWN_SOURCES = (SOURCE, "aggregator")
"""Data sources that support the options `columns` and `where`."""


@dataclass(frozen=True, slots=True)
class Source:
    """One reference to a source in a query.

    first, end: the position of `name` in the text.
    format, options: how Spark reads it.
    schema: all columns that the query may use.
    """

    first: int
    end: int
    name: str
    format: str
    options: Mapping[str, str]
    schema: StructType


def query_sources(spark: SparkSession, query: str, plan: Any) -> Iterator[Source]:
    """Yield the references to sources that support the options, in text order."""
    relations, shadowed = _relations(plan.logicalPlan() if class_of(plan) == "ExplainCommand" else plan)
    known: dict[tuple[str, ...], tuple[str, dict[str, str], StructType] | None] = {}
    places = {}
    for relation in relations:
        parts = tuple(map(str, items(relation.multipartIdentifier())))
        if len(parts) == 1 and parts[0].lower() in shadowed:
            continue
        if parts not in known:
            known[parts] = _resolve(spark, parts, with_path=FILE_PATH in query.lower())
        origin, found = relation.origin(), known[parts]
        if found is not None and origin.startIndex().isDefined():
            first, end = int(origin.startIndex().get()), int(origin.stopIndex().get()) + 1
            places[first] = Source(first, end, query[first:end], *found)
    yield from (places[first] for first in sorted(places))


def _relations(node: Any) -> tuple[list[Any], set[str]]:
    """The relations that a parsed query uses, and the names that it defines itself."""
    if class_of(node) == "UnresolvedRelation":
        return [node], set()
    relations, shadowed = [], set()
    for inner in (*items(node.children()), *items(node.innerChildren()), *items(node.subqueries())):
        if hasattr(inner, "innerChildren"):
            more, names = _relations(inner)
            relations += more
            shadowed |= names
    if class_of(node) == "UnresolvedWith":
        shadowed |= {str(pair._1()).lower() for pair in items(node.cteRelations())}
    return relations, shadowed


def _resolve(
    spark: SparkSession, parts: tuple[str, ...], *, with_path: bool
) -> tuple[str, dict[str, str], StructType] | None:
    """The format, options and columns of a relation; None if its source is another."""
    if len(parts) == 2 and parts[0].lower() == SOURCE:
        return _of_files({"path": parts[1]}, with_path=with_path)
    catalog = spark._jsparkSession.sessionState().catalog()
    if len(parts) == 1 and catalog.getTempView(parts[0]).isDefined():
        return _of_view(spark, parts[0])
    identifier = ".".join(map(column_name, parts))
    if len(parts) > 2 or not spark.catalog.tableExists(identifier):
        return None
    table = catalog.getTempViewOrPermanentTableMetadata(
        spark._jsparkSession.sessionState().sqlParser().parseTableIdentifier(identifier)
    )
    location = table.storage().locationUri()
    if not table.provider().isDefined() or str(table.provider().get()).lower() != SOURCE or not location.isDefined():
        return None
    return _of_files({"path": str(location.get().toString())}, with_path=with_path)


def _of_files(options: dict[str, str], *, with_path: bool) -> tuple[str, dict[str, str], StructType]:
    schema = EsdbDataSource(options).schema()
    if with_path and FILE_PATH not in schema.names:
        schema.add(FILE_PATH, StringType(), nullable=False)
    return SOURCE, options, schema


def _of_view(spark: SparkSession, name: str) -> tuple[str, dict[str, str], StructType] | None:
    """The format, options and columns of a temporary view that is only a source; else None."""
    node = spark.table(column_name(name))._jdf.queryExecution().analyzed()
    while class_of(node) in ("SubqueryAlias", "View"):
        node = node.child()
    if class_of(node) != "DataSourceV2Relation" or str(node.table().name()) not in PUSHDOWN_SOURCES:
        return None
    options = {str(key): str(text) for key, text in dict(node.options().asCaseSensitiveMap()).items()}
    if "limit" in map(str.lower, options):  # a condition would apply before the limit
        return None
    schema = StructType.fromJson(json.loads(node.schema().json()))
    return str(node.table().name()), options, schema
