"""Reading of segments as a Spark data source: planned on the driver, then tasks return Arrow batches."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from esformat.format.schema import ROW_COUNT_COLUMNS, EventSchema
from esformat.io.location import Place
from esformat.read.ask.bounds import Bounds
from esformat.read.row_range import scan_rows, schema_of
from esformat.spark.condition import columns_of, matching, parse_condition
from esformat.spark.directories import meant_by, roots_of, values_of
from esformat.spark.files import name_of, segments_at
from esformat.spark.filter_bounds import bounds_of_filters
from esformat.spark.options import ReadOptions
from esformat.spark.scan_plan import (
    Candidate,
    RowRange,
    at_most,
    find_candidates,
    in_threads,
    opened_as_planned,
    schemas_of,
    share_out,
)
from esformat.spark.scoping import filters_are_scoped
from esformat.spark.types import arrow_schema, check_requested, convert_batch, spark_schema, unify_schemas


def freeze_imports() -> None:
    """Exclude the modules imported by a worker's first task from garbage collection.

    Spark's workers collect garbage after each task, which takes 20-40 ms for some hundred thousand objects of modules
    while Java still receives the task's output. Does nothing outside a worker.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.freeze()


class PushFilters:
    """A reader's `pushFilters` that looks unimplemented to Spark, so that reading works with push-down switched off.

    Spark rejects readers that override `pushFilters` unless the setting is on, and detects this by comparing functions:
    this object claims to be the original.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)


FILE_PATH = "_file_path"
"""A virtual column, present when a query names it: the file that an event was read from."""
_FILE_PATH = pa.field(FILE_PATH, pa.string(), nullable=False)


def with_path_columns(
    schemas: list[tuple[str, pa.Schema]], wanted: Sequence[str] | None, roots: Sequence[str]
) -> list[tuple[str, pa.Schema]]:
    """Add columns for directories `name=value` below the roots to the files' columns.

    Adds the path column too if it is wanted and no file has a column of that name.
    """
    found = []
    path_too = FILE_PATH in (wanted or ()) and not any(FILE_PATH in schema.names for _, schema in schemas)
    for name, schema in schemas:
        constants = [pa.field(each, pa.string()) for each in values_of(name, roots) if each not in schema.names]
        found.append((name, pa.schema([*schema, *constants, *([_FILE_PATH] if path_too else [])])))
    return found


class SegmentReader(DataSourceReader):
    """Reads the columns of a schema from segments. Spark creates it on the driver and pickles it to tasks."""

    def __init__(self, options: ReadOptions, schema: StructType, known: pa.Schema | None = None) -> None:
        """known: the columns that the option `where` may use, in Spark's types. Raises UsageError."""
        self._options = options
        self._schema = schema
        self._known = pa.schema([]) if known is None else known
        self._roots = roots_of(options.paths)
        self._where = parse_condition(options.where, self._known, options.zone) if options.where else ()
        self._filters: tuple[Filter, ...] = ()

    @property
    def pushFilters(self) -> Any:  # noqa: N802 - Spark's name, and a property: see PushFilters
        """Takes the filters of a query, which Spark applies again; ignores them if they might be another query's."""
        return PushFilters(self._take)

    def _take(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = tuple(filters) if filters_are_scoped() else ()
        return filters

    def _bounds(self, schema: EventSchema) -> Bounds:
        return bounds_of_filters((*self._where, *self._filters), schema)

    def partitions(self) -> Sequence[InputPartition]:
        """The work of each task. Raises UsageError for a schema that does not match the segments."""
        return self.tasks(segments_at(self._options.paths, self._options.name_pattern))

    def tasks(self, places: Sequence[Place]) -> list[InputPartition]:
        """The work of each task for some segments. Raises UsageError."""
        options = self._options
        tasks = share_out(
            self._candidates(places),
            partition_bytes=options.partition_bytes,
            partitions=options.partitions,
            cores=options.cores,
        )
        return [InputPartition(task) for task in tasks]

    def few(self, most_events: int, most_bytes: int) -> pa.Table | None:
        """Read all events in this process if metadata says that they are few; else return None.

        most_bytes: limit of their size in Arrow; None is returned if they turn out to be larger. Raises UsageError.
        """
        candidates = self._candidates(segments_at(self._options.paths, self._options.name_pattern))
        if sum(candidate.events for candidate in candidates) > most_events:
            return None
        ranges = [
            RowRange(each.place, each.identity, each.pieces[0].first, each.pieces[-1].last)
            for each in candidates
            if each.pieces
        ]

        def within(rows: RowRange) -> list[pa.RecordBatch] | None:
            return self._within(rows, most_bytes // len(ranges))

        # threads help only with waiting: for local files they would only compete for the GIL
        local = all(isinstance(each.place, str) for each in ranges)
        found = list(map(within, ranges)) if local else in_threads(within, ranges)
        if None in found:
            return None
        batches = [batch for part in found if part is not None for batch in part]
        schema = arrow_schema(self._schema)  # a table of no batches has no chunks, which PySpark requires for lists
        return pa.Table.from_batches(batches, schema) if batches else schema.empty_table()

    def _within(self, rows: RowRange, most_bytes: int) -> list[pa.RecordBatch] | None:
        """Read the events of a range; None if they exceed `most_bytes`."""
        batches = []
        for batch in self.read(InputPartition((rows,))):
            most_bytes -= batch.nbytes
            if most_bytes < 0:
                return None
            batches.append(batch)
        return batches

    def _candidates(self, places: Sequence[Place]) -> list[Candidate]:
        """Find the candidates in the segments, and check that these have the columns of the schema."""
        options = self._options
        candidates = find_candidates([place for place in places if self._admits(place)] or places[:1], self._bounds)
        if options.limit is not None and not self._where:
            candidates = at_most(candidates, options.limit)
        names = tuple(self._schema.fieldNames())
        existing = unify_schemas(with_path_columns(schemas_of(candidates), names, self._roots), names)
        check_requested(self._schema, spark_schema(existing))
        return candidates

    def _constants(self, place: Place, names: Sequence[str]) -> dict[str, str | None]:
        """The values of columns that a file lacks and its path supplies."""
        constants = {FILE_PATH: name_of(place), **values_of(name_of(place), self._roots)}
        return {name: constants[name] for name in names if name in constants}

    def _admits(self, place: Place) -> bool:
        """Whether a file can satisfy the condition according to its directories alone."""
        constants = values_of(name_of(place), self._roots)
        conditions = [each for each in self._where if set(columns_of(each)) <= set(constants)]
        conditions = [
            each for each in conditions if all(self._known.field(name).type == pa.string() for name in columns_of(each))
        ]
        names = list(dict.fromkeys(name for each in conditions for name in columns_of(each)))
        rows = list(product(*(meant_by(constants[name]) for name in names)))  # one empty row if no columns are involved
        columns = {
            name: pa.array(values, pa.string()) for name, values in zip(names, zip(*rows, strict=True), strict=True)
        }
        return not columns or len(matching(pa.record_batch(columns), conditions)) > 0

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of one task. For a read without rows, Spark passes a partition of None."""
        freeze_imports()
        ranges: tuple[RowRange, ...] = partition.value or ()
        schema = arrow_schema(self._schema)
        looked_at = dict.fromkeys(name for each in self._where for name in columns_of(each))
        whole = pa.schema([*schema, *(self._known.field(name) for name in looked_at if name not in schema.names)])
        left = self._options.limit
        for rows in ranges:
            if left == 0:
                return
            with opened_as_planned(rows) as segment:
                bounds = self._bounds(schema_of(segment))
                columns = [name for name in whole.names if name in segment.schema.names] or list(ROW_COUNT_COLUMNS)
                constants = self._constants(rows.place, [name for name in whole.names if name not in columns])
                for batch in scan_rows(segment, rows.first, rows.last, columns=columns, bounds=bounds).batches():
                    for name, value in constants.items():
                        batch = batch.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(batch)))
                    found = matching(convert_batch(batch, whole), self._where)
                    if left is not None:
                        found = found.slice(0, left)
                        left -= len(found)
                    if len(found):
                        yield found if found.schema.names == schema.names else found.select(schema.names)
                    if left == 0:
                        break
