"""The data source `aggregator`, and its registration with a session."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from aggregator.spark.options import CatalogReadOptions, CatalogWriteOptions
from aggregator.spark.reader import CatalogReader, choose_columns
from aggregator.spark.save import CatalogStreamWriter, CatalogWriter
from aggregator.spark.stream import CatalogStreamReader
from esformat import UsageError
from esformat.spark.parts import PUSH_DOWN, activate, as_list, clustered, filters_are_scoped, in_zone, zone_of


class AggregatorDataSource(DataSource):
    """`format("aggregator")` of `spark.read`, `df.write`, `spark.readStream` and `df.writeStream`."""

    zone = "UTC"  # or the session's zone in the subclass that `register` creates

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "aggregator"

    def schema(self) -> StructType:
        """The columns of the topic, or those of the option `columns`, if set."""
        return choose_columns(CatalogReadOptions.parse(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of a schema: the topic's own, or those of `.schema(…)`."""
        return CatalogReader(self._read_options(schema, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A reader that follows the topic."""
        return CatalogStreamReader(self._read_options(schema, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer that adds rows to the topic, all of them or none."""
        return CatalogWriter(CatalogWriteOptions.parse(self.options, streaming=False), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """A writer that adds micro-batches to the topic, each once."""
        return CatalogStreamWriter(CatalogWriteOptions.parse(self.options, streaming=True), schema, overwrite=overwrite)

    def _read_options(self, schema: StructType, *, streaming: bool) -> CatalogReadOptions:
        options = CatalogReadOptions.parse(self.options, streaming=streaming, zone=self.zone)
        if options.columns is not None and list(options.columns) != schema.fieldNames():
            raise UsageError("the option columns and .schema(…) name different columns", hint="give one of them")
        return options


def register(spark: SparkSession, *, push_down: bool = True) -> None:
    """Register `format("aggregator")` with a session. push_down: as for `esformat.spark.register`."""
    activate(spark)
    spark.dataSource.register(in_zone(AggregatorDataSource, zone_of(spark)))
    if push_down and filters_are_scoped():
        spark.conf.set(PUSH_DOWN, "true")


def read(
    spark: SparkSession,
    root: str,
    topic: str,
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    **options: str | int,
) -> DataFrame:
    """Read a topic as a DataFrame: the events that satisfy a condition, sealed or not, when Spark plans the read.

    where, columns and other options: as for `format("aggregator")`. Raises UsageError, or Spark's error for it, if an
    option is invalid.
    """
    given = {name: str(value) for name, value in options.items()} | {"path": str(root), "topic": topic}
    if where is not None:
        given["where"] = where
        given.setdefault("timeZone", zone_of(spark))
    if columns is not None:
        given["columns"] = as_list(columns)
    CatalogReadOptions.parse(given, streaming=False)
    register(spark)
    return spark.read.format("aggregator").options(**given).load()


def write(
    df: DataFrame,
    root: str,
    topic: str,
    *,
    space: str = "space",
    timestamp: str = "timestamp",
    grouping: str | None = None,
    indexes: Sequence[str] = (),
    partitions: int | None = None,
    **options: str | int,
) -> None:
    """Add a DataFrame's rows to a topic, clustered: Spark first shuffles them by range of space and time.

    space, timestamp, grouping: its columns. indexes: for a topic that is created. partitions: number of ranges to
    shuffle into, each written by one task; None: Spark decides. Other options: as for `format("aggregator")`.
    Raises UsageError for unsuitable columns, and Spark's error if a task fails; then nothing changes.
    """
    given = {name: str(value) for name, value in options.items()} | {"path": str(root), "topic": topic}
    given |= {"space": space, "timestamp": timestamp, "indexes": as_list(indexes)}
    if grouping is not None:
        given["grouping"] = grouping
    CatalogWriteOptions.parse(given, streaming=False)
    register(df.sparkSession)
    rows = clustered(df, space=space, timestamp=timestamp, grouping=grouping, partitions=partitions)
    rows.write.format("aggregator").options(**given).mode("append").save()
