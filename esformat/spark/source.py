"""The data source `esdb`, and its registration with a session."""

from __future__ import annotations

import re
from typing import TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from esformat.errors import UsageError
from esformat.format.schema import KEY_COLUMNS
from esformat.spark.directories import roots_of
from esformat.spark.files import segments_at
from esformat.spark.follow import SegmentStreamReader
from esformat.spark.options import ReadOptions, WriteOptions
from esformat.spark.packed import PackedReader, can_be_packed, packed_schema, unpacked_schema
from esformat.spark.reader import SegmentReader, with_path_columns
from esformat.spark.save import SegmentWriter
from esformat.spark.scan_plan import read_schemas
from esformat.spark.scoping import filters_are_scoped
from esformat.spark.stream_save import SegmentStreamWriter
from esformat.spark.types import readable, spark_schema, unify_schemas

T = TypeVar("T", bound=DataSource)

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?")
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"

_zones: WeakKeyDictionary[SparkSession, str] = WeakKeyDictionary()
"""The time zones of sessions at registration."""


class EsdbDataSource(DataSource):
    """`format("esdb")` of `spark.read`, `df.write`, `spark.readStream` and `df.writeStream`."""

    zone = "UTC"  # of the session, set by `register`
    cores = 1  # of the session, likewise

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "esdb"

    def schema(self) -> StructType:
        """The columns of the segments, or those of the option `columns` if given."""
        options = ReadOptions.parse(self.options)
        places = segments_at(options.paths, options.name_pattern)
        schemas = read_schemas(places) if options.merge_schema else _nullable(read_schemas(places[:1]))
        return spark_schema(
            unify_schemas(with_path_columns(schemas, options.columns, roots_of(options.paths)), options.columns)
        )

    def reader(self, schema: StructType) -> SegmentReader:
        """Return a reader of the columns of a schema: the segments' own, or that given with `.schema(…)`."""
        return self._reader(ReadOptions.parse(self.options, self.zone, self.cores), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader that follows a directory and reads each new segment once."""
        options = ReadOptions.parse(self.options, self.zone, self.cores)
        if len(options.paths) != 1 or options.limit is not None:
            raise UsageError("a stream follows one directory, without the option limit", path=", ".join(options.paths))
        return SegmentStreamReader(
            options.paths[0],
            self._reader(options, schema),
            names=options.name_pattern,
            most=options.max_files,
            fail=options.fail_on_data_loss,
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return a writer of micro-batches as segments in a directory, each exactly once."""
        return SegmentStreamWriter(WriteOptions.parse(self.options), schema, overwrite=overwrite)

    def _reader(self, options: ReadOptions, schema: StructType) -> SegmentReader:
        made = PackedReader if options.packed else SegmentReader
        if options.packed:
            packed, schema = schema, unpacked_schema(schema)
            if not can_be_packed(schema) or packed_schema(schema) != packed:
                raise UsageError("option packed needs a schema of packed rows", hint="esformat.spark.sql gives both")
        if options.columns is not None and list(options.columns) != schema.fieldNames():
            raise UsageError("the option columns and .schema(…) name different columns", hint="give one of them")
        if not options.where:
            return made(options, schema)
        places = segments_at(options.paths, options.name_pattern)
        schemas = with_path_columns(read_schemas(places), schema.fieldNames(), roots_of(options.paths))
        return made(options, schema, readable(unify_schemas(schemas)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer of rows as segments in a directory."""
        return SegmentWriter(WriteOptions.parse(self.options), schema, overwrite=overwrite)


def _nullable(schemas: list[tuple[str, pa.Schema]]) -> list[tuple[str, pa.Schema]]:
    """Make all columns but the keys nullable, since other files may lack them."""
    return [
        (name, pa.schema([field.with_nullable(field.name not in KEY_COLUMNS) for field in schema]))
        for name, schema in schemas
    ]


def register(spark: SparkSession, *, push_down: bool = True) -> None:
    """Register `format("esdb")` with a session.

    push_down: switch on push-down of filters to Python data sources, for the whole session. Without it, results are the
    same but every block is read. Spark 4.3.0 mixes up the filters of queries on one DataFrame, so there the setting is
    not changed and filters are not used: give the option `where`, or use `read`.
    Only the thread that registers can write: Spark looks up data sources in the thread's active session. The option
    `where` uses the session's time zone at registration; after changing it, register again.
    """
    activate(spark)
    zone = zone_of(spark)
    source = in_zone(EsdbDataSource, zone)
    source.cores = cores_of(spark)
    spark.dataSource.register(source)
    if push_down and filters_are_scoped():
        spark.conf.set(PUSH_DOWN, "true")
    _zones[spark] = zone


def ensure_registered(spark: SparkSession) -> None:
    """Register unless already done for the session's current zone: it takes Spark a few hundredths of a second."""
    if _zones.get(spark) == zone_of(spark):
        activate(spark)
    else:
        register(spark)


def activate(spark: SparkSession) -> None:
    """Make a session this thread's active one, where Spark looks up data sources for writing."""
    java = getattr(spark, "_jvm", None)  # None in Spark Connect, which sends its session along
    if java is not None:
        java.SparkSession.setActiveSession(spark._jsparkSession)


def zone_of(spark: SparkSession) -> str:
    """The time zone of a session, for times without one; names such as `GMT-8` become `-08:00`."""
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    offset = _OFFSET.fullmatch(zone)
    return zone if offset is None else f"{offset[1]}{offset[2]:0>2}:{offset[3] or '00'}"


def cores_of(spark: SparkSession) -> int:
    """The number of tasks that a session runs in parallel; 1 if unknown."""
    return 1 if getattr(spark, "_jvm", None) is None else int(spark.sparkContext.defaultParallelism)


def in_zone(source: type[T], zone: str) -> type[T]:
    """Return a subclass of a data source with the session's zone, which Spark does not pass to its workers."""
    return type(source.__name__, (source,), {"zone": zone, "__module__": source.__module__, "__doc__": source.__doc__})
