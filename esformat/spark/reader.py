"""Reading segments as a Spark data source: planned on the driver, then each task gives Arrow batches."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from esformat.format.schema import ROWS_ALONE, EventSchema
from esformat.io.location import Place
from esformat.read.ask.bounds import Bounds
from esformat.read.row_range import scan_rows, schema_of
from esformat.spark.condition import columns_of, matching, parse_condition
from esformat.spark.directories import meant_by, roots_of, values_of
from esformat.spark.files import name_of, segments_at
from esformat.spark.options import ReadOptions
from esformat.spark.pushed import bounds_of_filters
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


def spare_modules() -> None:
    """Have a worker's searches for garbage pass over what it has imported by its first task.

    Spark's workers search after each task, 20-40 ms through some hundred thousand objects of modules, while Java still
    takes in what the task gave. Elsewhere than in a worker this does nothing.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.freeze()


class PushFilters:
    """`pushFilters` of a reader, which Spark takes for one that is not implemented when push-down is switched off.

    Spark refuses to read through a reader that overrides `pushFilters` unless the setting is on, and tells by comparing
    functions: this one says that it is the original.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._push = push

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)


FILE_PATH = "_file_path"
"""A column that is there when it is named: the file that an event was read from."""
_FILE_PATH = pa.field(FILE_PATH, pa.string(), nullable=False)


def with_path_columns(
    schemas: list[tuple[str, pa.Schema]], wanted: Sequence[str] | None, roots: Sequence[str]
) -> list[tuple[str, pa.Schema]]:
    """The columns of files, and what their paths say that they do not: directories `name=value` below the roots.

    The column of the path itself is among them where it is wanted, and is no column of any file.
    """
    found = []
    path_too = FILE_PATH in (wanted or ()) and not any(FILE_PATH in schema.names for _, schema in schemas)
    for name, schema in schemas:
        said = [pa.field(each, pa.string()) for each in values_of(name, roots) if each not in schema.names]
        found.append((name, pa.schema([*schema, *said, *([_FILE_PATH] if path_too else [])])))
    return found


class SegmentReader(DataSourceReader):
    """Reads the columns of a schema from segments. Made by Spark on the driver, pickled to the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType, known: pa.Schema | None = None) -> None:
        """known: the columns that the option `where` may name, as Spark has them. Raises UsageError."""
        self._options = options
        self._schema = schema
        self._known = pa.schema([]) if known is None else known
        self._roots = roots_of(options.paths)
        self._where = parse_condition(options.where, self._known, options.zone) if options.where else ()
        self._filters: tuple[Filter, ...] = ()

    @property
    def pushFilters(self) -> Any:  # noqa: N802 - Spark's name, and a property: see PushFilters
        """Takes the filters of a query, which Spark applies again; none where they might be another query's."""
        return PushFilters(self._take)

    def _take(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = tuple(filters) if filters_are_scoped() else ()
        return filters

    def _bounds(self, schema: EventSchema) -> Bounds:
        return bounds_of_filters((*self._where, *self._filters), schema)

    def partitions(self) -> Sequence[InputPartition]:
        """What each task reads. Raises UsageError for a schema that the segments do not have."""
        return self.tasks(segments_at(self._options.paths, self._options.name_pattern))

    def tasks(self, places: Sequence[Place]) -> list[InputPartition]:
        """The same of some segments. Raises UsageError."""
        options = self._options
        tasks = share_out(
            self._candidates(places),
            partition_bytes=options.partition_bytes,
            partitions=options.partitions,
            cores=options.cores,
        )
        return [InputPartition(task) for task in tasks]

    def few(self, most_events: int, most_bytes: int) -> pa.Table | None:
        """All events at once, read here, where they are few by what the segments say of themselves; else None.

        most_bytes: of them as Arrow: where they are more after all, None too. Raises UsageError.
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

        # threads are for waiting: where nothing is waited for, they would take turns at Python's lock
        local = all(isinstance(each.place, str) for each in ranges)
        found = list(map(within, ranges)) if local else in_threads(within, ranges)
        if None in found:
            return None
        batches = [batch for part in found if part is not None for batch in part]
        schema = arrow_schema(self._schema)  # a table of no batches has no chunks, which PySpark needs of lists
        return pa.Table.from_batches(batches, schema) if batches else schema.empty_table()

    def _within(self, rows: RowRange, most_bytes: int) -> list[pa.RecordBatch] | None:
        """The events of a range; None where they are more bytes than that."""
        batches = []
        for batch in self.read(InputPartition((rows,))):
            most_bytes -= batch.nbytes
            if most_bytes < 0:
                return None
            batches.append(batch)
        return batches

    def _candidates(self, places: Sequence[Place]) -> list[Candidate]:
        """What segments say of the events that are wanted, checked to have the columns of the schema."""
        options = self._options
        candidates = find_candidates([place for place in places if self._admits(place)] or places[:1], self._bounds)
        if options.limit is not None and not self._where:
            candidates = at_most(candidates, options.limit)
        names = tuple(self._schema.fieldNames())
        there = unify_schemas(with_path_columns(schemas_of(candidates), names, self._roots), names)
        check_requested(self._schema, spark_schema(there))
        return candidates

    def _said(self, place: Place, names: Sequence[str]) -> dict[str, str | None]:
        """Columns that a file lacks, as its path has them."""
        said = {FILE_PATH: name_of(place), **values_of(name_of(place), self._roots)}
        return {name: said[name] for name in names if name in said}

    def _admits(self, place: Place) -> bool:
        """Whether what directories say lets a file meet the condition, as far as nothing else is needed to tell."""
        said = values_of(name_of(place), self._roots)
        asked = [each for each in self._where if set(columns_of(each)) <= set(said)]
        asked = [
            each for each in asked if all(self._known.field(name).type == pa.string() for name in columns_of(each))
        ]
        names = list(dict.fromkeys(name for each in asked for name in columns_of(each)))
        rows = list(product(*(meant_by(said[name]) for name in names)))  # one without columns where nothing is asked
        columns = {
            name: pa.array(values, pa.string()) for name, values in zip(names, zip(*rows, strict=True), strict=True)
        }
        return not columns or len(matching(pa.record_batch(columns), asked)) > 0

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one task. Spark asks for no rows with a partition of None."""
        spare_modules()
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
                columns = [name for name in whole.names if name in segment.schema.names] or list(ROWS_ALONE)
                said = self._said(rows.place, [name for name in whole.names if name not in columns])
                for batch in scan_rows(segment, rows.first, rows.last, columns=columns, bounds=bounds).batches():
                    for name, value in said.items():
                        batch = batch.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(batch)))
                    found = matching(convert_batch(batch, whole), self._where)
                    if left is not None:
                        found = found.slice(0, left)
                        left -= len(found)
                    if len(found):
                        yield found if found.schema.names == schema.names else found.select(schema.names)
                    if left == 0:
                        break
