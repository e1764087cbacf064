"""Read a topic in a batch, planned on the driver from a snapshot, without the writer's help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from aggregator.engine.backend import is_store, reader_of
from aggregator.engine.follower import ReaderEngine
from aggregator.errors import CatalogNotFoundError, TopicNotFoundError
from aggregator.model import SchemaInfo, TopicInfo
from aggregator.spark.options import CatalogReadOptions
from aggregator.spark.plan import Request, catalog_schema, plan_tasks, read_task, with_catalog_columns
from aggregator.storage.files.layout import Layout
from aggregator.storage.manifest import Manifest
from aggregator.storage.state.state import Topic
from esformat import UsageError
from esformat.spark.parts import (
    PushFilters,
    arrow_schema,
    check_requested,
    filters_are_scoped,
    parse_condition,
    readable,
    spark_schema,
)


def known_columns(options: CatalogReadOptions) -> tuple[pa.Schema, TopicInfo]:
    """All columns of a topic that can be read, as known now. Raises CatalogNotFoundError and others."""
    if is_store(options.root):
        with closing(reader_of(options.root)) as following:
            topic = topic_of(following, options.topic)
            return _columns(list(topic.schemas.values()), topic.info), topic.info
    layout = Layout(Path(options.root))
    try:
        manifest = Manifest(layout.manifest, read_only=True)
    except FileNotFoundError:
        raise CatalogNotFoundError("no catalog found", path=str(layout.root)) from None
    with closing(manifest):
        contents = manifest.load()
    for info in contents.topics:
        if info.name == options.topic:
            return _columns([each for each in contents.schemas if each.topic == info.number], info), info
    raise _no_topic(options.topic, options.root, (info.name for info in contents.topics))


def _columns(schemas: Sequence[SchemaInfo], info: TopicInfo) -> pa.Schema:
    return with_catalog_columns(catalog_schema(schemas, info.indexes, binary_keys=info.keys == "binary").arrow)


def _no_topic(name: str, place: str, known: Iterable[str]) -> TopicNotFoundError:
    return TopicNotFoundError(f"no topic {name!r}", path=place, hint=f"its topics: {', '.join(known) or 'none'}")


def topic_of(following: ReaderEngine, name: str) -> Topic:
    """Refresh a reader engine, and return its topic of that name. Raises TopicNotFoundError."""
    following.refresh()
    found = following.state.topics.get(name)
    if found is None:
        raise _no_topic(name, following.address, following.state.topics)
    return found


def choose_columns(options: CatalogReadOptions) -> StructType:
    """The columns of a DataFrame without `.schema(…)`. Raises UsageError."""
    known, _ = known_columns(options)
    names = options.columns if options.columns is not None else tuple(known.names[:-2])
    check_known(names, known)
    return spark_schema(pa.schema([known.field(name) for name in names]))


def check_known(names: Iterable[str], known: pa.Schema) -> None:
    """Raise UsageError for a column that the topic does not have."""
    for name in names:
        if name not in known.names:
            raise UsageError(f"no column {name!r}", hint=f"the columns are {', '.join(known.names)}")


def make_request(options: CatalogReadOptions, schema: StructType) -> Request:
    """Create the request of a DataFrame with this schema. Raises UsageError."""
    union, _ = known_columns(options)
    check_known(schema.fieldNames(), union)
    check_requested(schema, spark_schema(pa.schema([union.field(name) for name in schema.fieldNames()])))
    where = parse_condition(options.where, readable(union), options.zone) if options.where else ()
    return Request(arrow_schema(schema), union, where)


class CatalogReader(DataSourceReader):
    """Reads a topic. Spark creates it on the driver, and pickles it for the tasks."""

    def __init__(self, options: CatalogReadOptions, schema: StructType) -> None:
        """Raises UsageError, AggregatorError."""
        self._options = options
        self._request = make_request(options, schema)

    @property
    def pushFilters(self) -> Any:  # noqa: N802 - Spark's name, and a property: see PushFilters
        """Takes the filters of a query, which Spark applies again; none if they might be another query's."""
        return PushFilters(self._take)

    def _take(self, filters: list[Filter]) -> Iterable[Filter]:
        request = self._request
        taken = tuple(filters) if filters_are_scoped() else ()
        self._request = Request(request.wanted, request.union, request.where, taken)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks from a snapshot taken now."""
        options = self._options
        following = reader_of(options.root)
        try:
            snapshot, pin = following.snapshot(topic_of(following, options.topic), None)
            try:
                tasks = plan_tasks(
                    following.layout,
                    snapshot,
                    self._request,
                    partition_bytes=options.partition_bytes,
                    partitions=options.partitions,
                    store=following.objects.settings,
                )
            finally:
                pin.release()
        finally:
            following.close()
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of one task. A partition of None, which Spark may pass, has no events."""
        return read_task(partition.value or (), self._request, self._options.root)
