"""`sql`: SQL over segments that reads what the query needs, and no more.

Spark 4.3 tells a data source written in Python neither which columns a query uses nor its filters. So the query is
planned twice: first over stand-ins without rows, to see what it needs of each source (`handed`), then over the sources
opened with just that. A column that is not needed is there, with nothing in it: names and positions stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import AtomicType, BinaryType, StringType, StructField, StructType, TimestampType

from esformat.read.row_range import EVENTS
from esformat.spark.catalyst import Column, class_of, items
from esformat.spark.counted import only_counts, sums_for_counts
from esformat.spark.event_columns import column_name
from esformat.spark.figures import figures_of, told_by_files
from esformat.spark.files import segments_at
from esformat.spark.handed import Handed, everything, handed_over
from esformat.spark.load import read
from esformat.spark.options import ReadOptions, as_list
from esformat.spark.packed import can_be_packed, packed_schema, unpacked
from esformat.spark.reader import FILE_PATH, SegmentReader
from esformat.spark.requirement import require_classic
from esformat.spark.scan_plan import Extent, count_events, extent
from esformat.spark.source import EsdbDataSource, ensure_registered, in_zone, zone_of
from esformat.spark.stand_ins import named, new_name, stand_ins
from esformat.spark.types import arrow_schema

SOURCE = EsdbDataSource.name()
FEW_EVENTS = 100_000
"""So many are read at once, by the driver: Spark's tasks and their Python take longer to begin than those to read."""
MANY_ROWS = 10_000_000  # from so many on, several tasks make rows without columns
FEW_BYTES = 32 << 20  # of them in memory: Spark takes up to 48 MiB without a job
HANDED_TO = (SOURCE, "aggregator")
"""Data sources that take the options `columns` and `where`."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed rows that Spark's tasks will read."""

    rows: DataFrame


Rows: TypeAlias = Extent | pa.Table | DataFrame | Packed
"""Rows of a source: so many without columns, some that were read, or those that Spark's tasks will read."""


@dataclass(frozen=True, slots=True)
class Source:
    """One place of a query that reads a source.

    first, end: where its name stands in the text, and `name` itself. format, options: how Spark reads it.
    schema: all columns that the query may name.
    """

    first: int
    end: int
    name: str
    format: str
    options: Mapping[str, str]
    schema: StructType


def sql(spark: SparkSession, query: str) -> DataFrame:
    """The answer of a query in Spark's SQL, in which `` esdb.`path` `` is the segments at a path, as Parquet files are.

    Views made with `view`, temporary views over `format("esdb")` or `format("aggregator")`, and tables made with
    `CREATE TABLE … USING esdb LOCATION '…'` are read in the same way: of each, the columns that the query needs and the
    events that its conditions leave, as far as the option `where` can say them. `EXPLAIN SELECT …` shows what that is.
    The column `_file_path` is there where the query names it. Raises UsageError or OSError where a path names nothing,
    and what Spark raises for the query.
    """
    require_classic(spark, "esformat.spark.sql")
    ensure_registered(spark)
    plan = _parsed(spark, query)
    sources = list(_sources(spark, query, plan))
    if not sources:
        return spark.sql(query)
    found, execution = _handed(spark, query, sources)
    rows = [_rows(spark, source, handed) for source, handed in zip(sources, found, strict=True)]
    answer = _told(spark, found, rows, execution)
    explained = class_of(plan) == "ExplainCommand"
    if answer is None:
        answer = _counted(spark, query, sources, found, rows, execution) or _asked(spark, query, sources, found, rows)
        text = answer.collect()[0][0] if explained else ""
    else:
        text = str(answer._jdf.queryExecution().explainString(plan.mode())) if explained else ""
    if not explained:
        return answer
    lines = "".join(_line(source, handed) for source, handed in zip(sources, found, strict=True))
    return spark.createDataFrame([(f"== Handed to the data sources ==\n{lines}\n{text}",)], "plan string")


def view(
    spark: SparkSession,
    name: str,
    paths: str | Sequence[str],
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    **options: str | int,
) -> DataFrame:
    """Make a temporary view of segments, which `sql` reads by what each query needs. Gives its DataFrame.

    where, columns, options: as of `read`; they hold for all queries. Plain `spark.sql` gives the same answers and
    reads more.
    """
    df = read(spark, paths, where=where, columns=columns, **options)
    df.createOrReplaceTempView(name)
    return df


# ------------------------------------------------------------ which sources a query names


def _parsed(spark: SparkSession, query: str) -> Any:
    return spark._jsparkSession.sessionState().sqlParser().parsePlan(query)


def _sources(spark: SparkSession, query: str, plan: Any) -> Iterator[Source]:
    """The places that name a source that takes what it is told, in the order of the text."""
    relations, shadowed = _relations(plan.logicalPlan() if class_of(plan) == "ExplainCommand" else plan)
    known: dict[tuple[str, ...], tuple[str, dict[str, str], StructType] | None] = {}
    places = {}
    for relation in relations:
        parts = tuple(map(str, items(relation.multipartIdentifier())))
        if len(parts) == 1 and parts[0].lower() in shadowed:
            continue
        if parts not in known:
            known[parts] = _known(spark, parts, with_path=FILE_PATH in query.lower())
        origin, found = relation.origin(), known[parts]
        if found is not None and origin.startIndex().isDefined():
            first, end = int(origin.startIndex().get()), int(origin.stopIndex().get()) + 1
            places[first] = Source(first, end, query[first:end], *found)
    yield from (places[first] for first in sorted(places))


def _relations(node: Any) -> tuple[list[Any], set[str]]:
    """The relations that a parsed query names, and the names that it defines itself."""
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


def _known(
    spark: SparkSession, parts: tuple[str, ...], *, with_path: bool
) -> tuple[str, dict[str, str], StructType] | None:
    """How a relation is read, where it is one of ours: its format, options and columns."""
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
    """The same of a temporary view that is a source and nothing else."""
    node = spark.table(column_name(name))._jdf.queryExecution().analyzed()
    while class_of(node) in ("SubqueryAlias", "View"):
        node = node.child()
    if class_of(node) != "DataSourceV2Relation" or str(node.table().name()) not in HANDED_TO:
        return None
    options = {str(key): str(text) for key, text in dict(node.options().asCaseSensitiveMap()).items()}
    if "limit" in map(str.lower, options):  # a condition would choose among other events
        return None
    schema = StructType.fromJson(json.loads(node.schema().json()))
    return str(node.table().name()), options, schema


# ------------------------------------------------------------ what the query needs of them


def _handed(spark: SparkSession, query: str, sources: Sequence[Source]) -> tuple[list[Handed], Any]:
    """What is handed to each source: everything, where the plan does not show it. And Spark's execution of the plan."""
    there = stand_ins(spark, [source.schema.json() for source in sources])
    numbers = [each.number for each in there]
    with named(spark, there) as names:
        execution = _execution(spark, _rewritten(query, _in_place(sources, names)))
        current = _constant_of(spark, "catalyst.trees.TreePattern", "CURRENT_LIKE")
        timeless = not execution.analyzed().containsPattern(current)
        found = handed_over(
            execution.optimizedPlan(), numbers, [_columns_of(source.schema) for source in sources], conditions=timeless
        )
    return [handed or everything(each.schema.names) for handed, each in zip(found, sources, strict=True)], execution


def _columns_of(schema: StructType) -> list[Column]:
    return [Column(each.name, each.dataType.simpleString()) for each in schema]


def _constant_of(spark: SparkSession, where: str, name: str) -> Any:
    """A constant of Spark's in Scala."""
    gateway: Any = spark.sparkContext._gateway
    return getattr(JavaClass(f"org.apache.spark.sql.{where}", gateway._gateway_client), name)()


def _execution(spark: SparkSession, query: str) -> Any:
    """Spark's plans for a query, or for the one that it explains; no command is run."""
    plan = _parsed(spark, query)
    skip = _constant_of(spark, "execution.CommandExecutionMode", "SKIP")
    return spark._jsparkSession.sessionState().executePlan(_explained(plan), skip)


def _explained(plan: Any) -> Any:
    return plan.logicalPlan() if class_of(plan) == "ExplainCommand" else plan


def _rewritten(query: str, changes: Iterable[tuple[int, int, str]]) -> str:
    """The query with other text from some places to others."""
    for first, end, text in sorted(changes, reverse=True):
        query = query[:first] + text + query[end:]
    return query


# ------------------------------------------------------------ the sources, opened with just that


def _asked(
    spark: SparkSession, query: str, sources: Sequence[Source], found: Sequence[Handed], rows: Sequence[Rows]
) -> DataFrame:
    """Spark's answer, of sources that have just those rows."""
    frames = [_frame(spark, *each) for each in zip(sources, found, rows, strict=True)]
    with _views(sources, frames) as changes:
        return spark.sql(_rewritten(query, changes))


def _counted(
    spark: SparkSession,
    query: str,
    sources: Sequence[Source],
    found: Sequence[Handed],
    rows: Sequence[Rows],
    execution: Any,
) -> DataFrame | None:
    """Spark's answer of packed rows as they are, where the query groups events by keys and counts them; else None."""
    if len(rows) != 1 or not isinstance(rows[0], Packed) or EVENTS not in rows[0].rows.columns:
        return None
    events = new_name()
    sums = sums_for_counts(_explained(_parsed(spark, query)), sources[0].first, events)
    if sums is None:
        return None
    frame = _frame(spark, sources[0], found[0], rows[0].rows.withColumnRenamed(EVENTS, events), more=(events,))
    with _views(sources, [frame]) as changes:
        text = _rewritten(query, [*changes, *sums])
        analyzed = _execution(spark, text).analyzed()
        columns = _shape(execution.analyzed())
        same = columns and columns == _shape(analyzed)
        return spark.sql(text) if same and only_counts(analyzed, events) else None


def _shape(plan: Any) -> list[tuple[str, str, bool]]:
    """The columns of a plan's answer: names, types, whether there may be nulls."""
    return [(str(each.name()), str(each.dataType().json()), bool(each.nullable())) for each in items(plan.output())]


@contextmanager
def _views(sources: Sequence[Source], frames: Sequence[DataFrame]) -> Iterator[list[tuple[int, int, str]]]:
    """Temporary views in place of sources, and how a query's text is changed for them."""
    names = [new_name() for _ in sources]
    try:
        for name, frame in zip(names, frames, strict=True):
            frame.createOrReplaceTempView(name)
        yield _in_place(sources, names)
    finally:
        for name in names:
            frames[0].sparkSession.catalog.dropTempView(name)


def _in_place(sources: Sequence[Source], names: Sequence[str]) -> list[tuple[int, int, str]]:
    """How a query's text is changed for names in place of sources."""
    return [(source.first, source.end, name) for source, name in zip(sources, names, strict=True)]


def _told(spark: SparkSession, found: Sequence[Handed], rows: Sequence[Rows], execution: Any) -> DataFrame | None:
    """The answer, where it is figures of one source's rows that are at hand; else None."""
    for handed, given in zip(found, rows, strict=True):
        if handed.figures and isinstance(given, Extent | pa.Table):
            schema = StructType.fromJson(json.loads(execution.analyzed().schema().json()))
            return spark.createDataFrame(figures_of(handed, given, arrow_schema(schema)), schema)
    return None


def _rows(spark: SparkSession, source: Source, handed: Handed) -> Rows:
    """A source's rows that are needed: what files say of them where that will do, or they themselves where few."""
    columns = _columns(source, handed)
    schema = StructType(columns or [_cheapest(source.schema)])
    options = _options(spark, source, handed, schema)
    if source.format == SOURCE:
        there = _extent(spark, source, handed) if not columns or told_by_files(handed) else None
        here = there or _reader(spark, options, schema).few(FEW_EVENTS, FEW_BYTES)
        if here is not None:
            return here
        if handed.limit is None and can_be_packed(schema):
            packed = spark.read.format(SOURCE).options(**options, packed="true").schema(packed_schema(schema)).load()
            return Packed(packed)
    return spark.read.format(source.format).options(**options).schema(schema).load()


def _columns(source: Source, handed: Handed) -> list[StructField]:
    """The columns that are read."""
    fixed = dict(handed.equal)
    columns = [each for each in source.schema if each.name in handed.columns or not _can_be_void(each)]
    return [each for each in columns if each.name not in fixed]


def _frame(spark: SparkSession, source: Source, handed: Handed, rows: Rows, *, more: Sequence[str] = ()) -> DataFrame:
    """Rows of a source, with all its columns; nothing is in those that are not needed. more: columns besides."""
    if isinstance(rows, Packed):
        rows = unpacked(rows.rows)
    if isinstance(rows, pa.Table):
        return _here(spark, source, handed, rows)
    given = {each.name for each in _columns(source, handed)}
    if isinstance(rows, Extent):
        given = set()
        count = rows.events if handed.limit is None else min(rows.events, handed.limit)
        rows = spark.range(0, count, 1, 1 if count < MANY_ROWS else None).select()
    if given == set(source.schema.names) and not more:
        return rows
    fixed = dict(handed.equal)
    return rows.selectExpr(
        *(
            f"{text} AS {column_name(each.name)}"
            for each in source.schema
            for text in (column_name(each.name) if each.name in given else _constant(each, fixed.get(each.name)),)
        ),
        *more,
    )


def _options(spark: SparkSession, source: Source, handed: Handed, schema: StructType) -> dict[str, str]:
    """The options of a source with what is handed to it."""
    options = {name: text for name, text in source.options.items() if name.lower() not in ("columns", "where")}
    given = {name.lower(): text for name, text in source.options.items()}
    wheres = [text for text in (given.get("where", ""), handed.where) if text]
    if wheres:
        options["where"] = wheres[0] if len(wheres) == 1 else " AND ".join(f"({text})" for text in wheres)
        options.setdefault("timeZone", zone_of(spark))
    options["columns"] = as_list(schema.names)
    if handed.limit is not None and source.format == SOURCE:
        options["limit"] = str(handed.limit)
    return options


def _reader(spark: SparkSession, options: dict[str, str], schema: StructType) -> SegmentReader:
    return in_zone(EsdbDataSource, zone_of(spark))(options).reader(schema)


def _here(spark: SparkSession, source: Source, handed: Handed, few: pa.Table) -> DataFrame:
    """Rows that were read, with all columns of their source. Spark shuffles nothing where they are one partition."""
    fixed, schema = dict(handed.equal), arrow_schema(source.schema)
    columns = [
        few[field.name] if field.name in few.schema.names else _filled(field, fixed.get(field.name), len(few))
        for field in schema
    ]
    rows = spark.createDataFrame(pa.table(columns, schema), source.schema)
    return rows if handed.shown else rows.coalesce(1)


def _filled(field: pa.Field, value: Any, count: int) -> pa.Array:
    """A column of one value; for None any that the column can have."""
    if value is None and not field.nullable:
        value = 0 if pa.types.is_timestamp(field.type) else ""
    return pa.repeat(pa.scalar(value, field.type), count)


def _extent(spark: SparkSession, source: Source, handed: Handed) -> Extent | None:
    """How many events there are, and where told so from when to when, from what files say; None where they do not."""
    options = ReadOptions.parse(source.options, zone_of(spark))
    fixed = dict(handed.equal)
    if options.where or set(fixed) - {"space"} or len(handed.conditions) != len(fixed):
        return None
    places = segments_at(options.paths, options.name_pattern)
    return Extent(count_events(places, fixed["space"]), None, None) if fixed else extent(places)


def _cheapest(schema: StructType) -> StructField:
    """A column that costs little to read."""
    return schema["timestamp"] if "timestamp" in schema.names else schema[0]


def _can_be_void(column: StructField) -> bool:
    """Whether there is a value to put in a column that nobody looks at: null, where the column may be."""
    return isinstance(column.dataType, AtomicType) and (
        column.nullable or isinstance(column.dataType, StringType | BinaryType | TimestampType)
    )


def _constant(column: StructField, value: Any) -> str:
    """A value for a column as SQL; for None any that the column can have, as Spark counts on what cannot be null."""
    kind = column.dataType.simpleString()
    if value is None and column.nullable:
        return f"CAST(NULL AS {kind})"
    if value is None and isinstance(column.dataType, TimestampType):
        return "timestamp_micros(0)"
    if isinstance(value, int):  # a truth value is one, too
        return f"CAST({value} AS {kind})"
    return f"CAST(X'{(value or '').encode().hex()}' AS {kind})"


def _line(source: Source, handed: Handed) -> str:
    """What one source is told, for people."""
    parts = [f"columns {', '.join(handed.columns)}" if handed.columns else "no columns"]
    if handed.where:
        parts.append(f"where {handed.where}")
    if handed.limit is not None:
        parts.append(f"limit {handed.limit}")
    return f"{source.name}: {'; '.join(parts)}\n"
