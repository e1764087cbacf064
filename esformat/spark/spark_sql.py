"""`sql`: SQL on segments that reads only what the query needs.

Spark 4.3 does not tell Python data sources which columns a query uses, nor its filters. So the query is planned twice:
first over stand-ins without rows, to see what it needs of each source (`pushdown`), then over the sources opened with
just that. Columns that are not needed are present but empty, so that names and positions stay the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import AtomicType, BinaryType, StringType, StructField, StructType, TimestampType

from esformat.read.row_range import EVENTS
from esformat.spark.catalyst import Column, class_of, items
from esformat.spark.count_rewrite import only_counts, sums_for_counts
from esformat.spark.event_columns import column_name
from esformat.spark.figures import figures_of, known_from_metadata
from esformat.spark.files import segments_at
from esformat.spark.load import read
from esformat.spark.options import ReadOptions, as_list
from esformat.spark.packed import can_be_packed, packed_schema, unpacked
from esformat.spark.pushdown import Pushdown, everything, find_pushdown
from esformat.spark.query_sources import SOURCE, Source, query_sources
from esformat.spark.reader import SegmentReader
from esformat.spark.requirement import require_classic
from esformat.spark.scan_plan import Extent, count_events, extent
from esformat.spark.source import EsdbDataSource, ensure_registered, in_zone, zone_of
from esformat.spark.stand_ins import named, new_name, stand_ins
from esformat.spark.types import arrow_schema

FEW_EVENTS = 100_000
"""Up to this many events are read by the driver: starting Spark tasks with Python takes longer than reading them."""
MANY_ROWS = 10_000_000  # above this, several tasks create rows without columns
FEW_BYTES = 32 << 20  # of these events in memory: Spark accepts up to 48 MiB without a job


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed rows to be read by Spark tasks."""

    rows: DataFrame


Rows: TypeAlias = Extent | pa.Table | DataFrame | Packed
"""The rows of a source: a number of rows without columns, rows already read, or rows to be read by Spark tasks."""


def sql(spark: SparkSession, query: str) -> DataFrame:
    """Run a query in Spark SQL in which `` esdb.`path` `` stands for the segments at a path, as for Parquet files.

    Views created with `view`, temporary views over `format("esdb")` or `format("aggregator")`, and tables created with
    `CREATE TABLE … USING esdb LOCATION '…'` are read in the same way: only the columns that the query needs, and the
    events that match its conditions as far as the option `where` can express them. `EXPLAIN SELECT …` shows both. The
    column `_file_path` exists if the query uses it. Raises UsageError or OSError if a path names nothing, and Spark's
    errors for the query.
    """
    require_classic(spark, "esformat.spark.sql")
    ensure_registered(spark)
    plan = _parsed(spark, query)
    sources = list(query_sources(spark, query, plan))
    if not sources:
        return spark.sql(query)
    found, execution = _pushdowns(spark, query, sources)
    rows = [_rows(spark, source, pushdown) for source, pushdown in zip(sources, found, strict=True)]
    answer = _from_figures(spark, found, rows, execution)
    explained = class_of(plan) == "ExplainCommand"
    if answer is None:
        answer = _run_on_packed(spark, query, sources, found, rows, execution) or _run(
            spark, query, sources, found, rows
        )
        text = answer.collect()[0][0] if explained else ""
    else:
        text = str(answer._jdf.queryExecution().explainString(plan.mode())) if explained else ""
    if not explained:
        return answer
    lines = "".join(_line(source, pushdown) for source, pushdown in zip(sources, found, strict=True))
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
    """Create a temporary view of segments, of which `sql` reads only what each query needs. Returns its DataFrame.

    where, columns, options: as for `read`; they apply to all queries. Plain `spark.sql` returns the same results but
    reads more.
    """
    df = read(spark, paths, where=where, columns=columns, **options)
    df.createOrReplaceTempView(name)
    return df


def _parsed(spark: SparkSession, query: str) -> Any:
    return spark._jsparkSession.sessionState().sqlParser().parsePlan(query)


# ------------------------------------------------------------ what the query needs of its sources


def _pushdowns(spark: SparkSession, query: str, sources: Sequence[Source]) -> tuple[list[Pushdown], Any]:
    """The pushdown of each source (everything, if the plan does not show it), and Spark's execution of the plan."""
    relations = stand_ins(spark, [source.schema.json() for source in sources])
    numbers = [each.number for each in relations]
    with named(spark, relations) as names:
        execution = _execution(spark, _rewritten(query, _in_place(sources, names)))
        current = _constant_of(spark, "catalyst.trees.TreePattern", "CURRENT_LIKE")
        timeless = not execution.analyzed().containsPattern(current)
        found = find_pushdown(
            execution.optimizedPlan(), numbers, [_columns_of(source.schema) for source in sources], conditions=timeless
        )
    return [pushdown or everything(each.schema.names) for pushdown, each in zip(found, sources, strict=True)], execution


def _columns_of(schema: StructType) -> list[Column]:
    return [Column(each.name, each.dataType.simpleString()) for each in schema]


def _constant_of(spark: SparkSession, where: str, name: str) -> Any:
    """A constant of Spark's Scala code."""
    gateway: Any = spark.sparkContext._gateway
    return getattr(JavaClass(f"org.apache.spark.sql.{where}", gateway._gateway_client), name)()


def _execution(spark: SparkSession, query: str) -> Any:
    """Spark's plans for a query, or for the query that it explains, without running it."""
    plan = _parsed(spark, query)
    skip = _constant_of(spark, "execution.CommandExecutionMode", "SKIP")
    return spark._jsparkSession.sessionState().executePlan(_explained(plan), skip)


def _explained(plan: Any) -> Any:
    return plan.logicalPlan() if class_of(plan) == "ExplainCommand" else plan


def _rewritten(query: str, changes: Iterable[tuple[int, int, str]]) -> str:
    """Apply edits (start, end, new text) to the query."""
    for first, end, text in sorted(changes, reverse=True):
        query = query[:first] + text + query[end:]
    return query


# ------------------------------------------------------------ the sources, opened with just that


def _run(
    spark: SparkSession, query: str, sources: Sequence[Source], found: Sequence[Pushdown], rows: Sequence[Rows]
) -> DataFrame:
    """Run the query with Spark on these rows of the sources."""
    frames = [_frame(spark, *each) for each in zip(sources, found, rows, strict=True)]
    with _views(sources, frames) as changes:
        return spark.sql(_rewritten(query, changes))


def _run_on_packed(
    spark: SparkSession,
    query: str,
    sources: Sequence[Source],
    found: Sequence[Pushdown],
    rows: Sequence[Rows],
    execution: Any,
) -> DataFrame | None:
    """Run the query on packed rows if it only groups events by key and counts them; else return None."""
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
    """The result columns of a plan: name, type, whether nullable."""
    return [(str(each.name()), str(each.dataType().json()), bool(each.nullable())) for each in items(plan.output())]


@contextmanager
def _views(sources: Sequence[Source], frames: Sequence[DataFrame]) -> Iterator[list[tuple[int, int, str]]]:
    """Create temporary views in place of sources, and yield the edits that refer to them."""
    names = [new_name() for _ in sources]
    try:
        for name, frame in zip(names, frames, strict=True):
            frame.createOrReplaceTempView(name)
        yield _in_place(sources, names)
    finally:
        for name in names:
            frames[0].sparkSession.catalog.dropTempView(name)


def _in_place(sources: Sequence[Source], names: Sequence[str]) -> list[tuple[int, int, str]]:
    """The edits that replace sources by names in a query's text."""
    return [(source.first, source.end, name) for source, name in zip(sources, names, strict=True)]


def _from_figures(
    spark: SparkSession, found: Sequence[Pushdown], rows: Sequence[Rows], execution: Any
) -> DataFrame | None:
    """The result, if it consists of figures of a source whose rows or extent are already known; else None."""
    for pushdown, given in zip(found, rows, strict=True):
        if pushdown.figures and isinstance(given, Extent | pa.Table):
            schema = StructType.fromJson(json.loads(execution.analyzed().schema().json()))
            return spark.createDataFrame(figures_of(pushdown, given, arrow_schema(schema)), schema)
    return None


def _rows(spark: SparkSession, source: Source, pushdown: Pushdown) -> Rows:
    """Get the needed rows of a source: their number if that suffices, the rows if few, else rows for tasks to read."""
    columns = _columns(source, pushdown)
    schema = StructType(columns or [_cheapest(source.schema)])
    options = _options(spark, source, pushdown, schema)
    if source.format == SOURCE:
        known = _extent(spark, source, pushdown) if not columns or known_from_metadata(pushdown) else None
        found = known or _reader(spark, options, schema).few(FEW_EVENTS, FEW_BYTES)
        if found is not None:
            return found
        if pushdown.limit is None and can_be_packed(schema):
            packed = spark.read.format(SOURCE).options(**options, packed="true").schema(packed_schema(schema)).load()
            return Packed(packed)
    return spark.read.format(source.format).options(**options).schema(schema).load()


def _columns(source: Source, pushdown: Pushdown) -> list[StructField]:
    """The columns to read."""
    fixed = dict(pushdown.equal)
    columns = [each for each in source.schema if each.name in pushdown.columns or not _accepts_dummy(each)]
    return [each for each in columns if each.name not in fixed]


def _frame(
    spark: SparkSession, source: Source, pushdown: Pushdown, rows: Rows, *, more: Sequence[str] = ()
) -> DataFrame:
    """The rows of a source as a DataFrame with all its columns, empty if not needed. more: additional columns."""
    if isinstance(rows, Packed):
        rows = unpacked(rows.rows)
    if isinstance(rows, pa.Table):
        return _local_frame(spark, source, pushdown, rows)
    given = {each.name for each in _columns(source, pushdown)}
    if isinstance(rows, Extent):
        given = set()
        count = rows.events if pushdown.limit is None else min(rows.events, pushdown.limit)
        rows = spark.range(0, count, 1, 1 if count < MANY_ROWS else None).select()
    if given == set(source.schema.names) and not more:
        return rows
    fixed = dict(pushdown.equal)
    return rows.selectExpr(
        *(
            f"{text} AS {column_name(each.name)}"
            for each in source.schema
            for text in (column_name(each.name) if each.name in given else _constant(each, fixed.get(each.name)),)
        ),
        *more,
    )


def _options(spark: SparkSession, source: Source, pushdown: Pushdown, schema: StructType) -> dict[str, str]:
    """The options of a source, including what is pushed down to it."""
    options = {name: text for name, text in source.options.items() if name.lower() not in ("columns", "where")}
    given = {name.lower(): text for name, text in source.options.items()}
    wheres = [text for text in (given.get("where", ""), pushdown.where) if text]
    if wheres:
        options["where"] = wheres[0] if len(wheres) == 1 else " AND ".join(f"({text})" for text in wheres)
        options.setdefault("timeZone", zone_of(spark))
    options["columns"] = as_list(schema.names)
    if pushdown.limit is not None and source.format == SOURCE:
        options["limit"] = str(pushdown.limit)
    return options


def _reader(spark: SparkSession, options: dict[str, str], schema: StructType) -> SegmentReader:
    return in_zone(EsdbDataSource, zone_of(spark))(options).reader(schema)


def _local_frame(spark: SparkSession, source: Source, pushdown: Pushdown, few: pa.Table) -> DataFrame:
    """Rows already read, as a DataFrame with all columns. Spark shuffles nothing if they are one partition."""
    fixed, schema = dict(pushdown.equal), arrow_schema(source.schema)
    columns = [
        few[field.name] if field.name in few.schema.names else _filled(field, fixed.get(field.name), len(few))
        for field in schema
    ]
    rows = spark.createDataFrame(pa.table(columns, schema), source.schema)
    return rows if pushdown.shown else rows.coalesce(1)


def _filled(field: pa.Field, value: Any, count: int) -> pa.Array:
    """A column with one value; for None, any value that the column allows."""
    if value is None and not field.nullable:
        value = 0 if pa.types.is_timestamp(field.type) else ""
    return pa.repeat(pa.scalar(value, field.type), count)


def _extent(spark: SparkSession, source: Source, pushdown: Pushdown) -> Extent | None:
    """The number of events and their time range from file metadata, as far as known; None if that does not suffice."""
    options = ReadOptions.parse(source.options, zone_of(spark))
    fixed = dict(pushdown.equal)
    if options.where or set(fixed) - {"space"} or len(pushdown.conditions) != len(fixed):
        return None
    places = segments_at(options.paths, options.name_pattern)
    return Extent(count_events(places, fixed["space"]), None, None) if fixed else extent(places)


def _cheapest(schema: StructType) -> StructField:
    """A column that is cheap to read."""
    return schema["timestamp"] if "timestamp" in schema.names else schema[0]


def _accepts_dummy(column: StructField) -> bool:
    """Whether an unused column can be filled with a dummy value: null, or a value of some types."""
    return isinstance(column.dataType, AtomicType) and (
        column.nullable or isinstance(column.dataType, StringType | BinaryType | TimestampType)
    )


def _constant(column: StructField, value: Any) -> str:
    """A value for a column as SQL; for None any allowed value, since Spark relies on non-nullable columns."""
    kind = column.dataType.simpleString()
    if value is None and column.nullable:
        return f"CAST(NULL AS {kind})"
    if value is None and isinstance(column.dataType, TimestampType):
        return "timestamp_micros(0)"
    if isinstance(value, int):  # includes booleans
        return f"CAST({value} AS {kind})"
    return f"CAST(X'{(value or '').encode().hex()}' AS {kind})"


def _line(source: Source, pushdown: Pushdown) -> str:
    """One line about what is pushed down to a source, for EXPLAIN."""
    parts = [f"columns {', '.join(pushdown.columns)}" if pushdown.columns else "no columns"]
    if pushdown.where:
        parts.append(f"where {pushdown.where}")
    if pushdown.limit is not None:
        parts.append(f"limit {pushdown.limit}")
    return f"{source.name}: {'; '.join(parts)}\n"
