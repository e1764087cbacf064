"""Plan a read as tasks. A task reads rows of segments from their files; unsealed events are sent along with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import Filter

from aggregator.base.merge import numbers
from aggregator.errors import SegmentMissingError
from aggregator.model import PARTITION, RECORD_INDEX, Cut, SchemaInfo, SegmentInfo
from aggregator.policy import StoreSettings
from aggregator.read.query import Query
from aggregator.read.view import View
from aggregator.spark.replaced import KEY_COLUMNS, RowKey, Share, key_of, opened_now, place_of
from aggregator.storage.files.layout import Layout
from aggregator.storage.memtable.batch import MemtableBatch
from aggregator.storage.segments.table import Bounds as TableBounds
from aggregator.storage.segments.table import SegmentView
from aggregator.storage.state.schema import union_schema
from aggregator.storage.state.state import MemtableView, Snapshot
from aggregator.storage.state.tombstones import Hidden, hidden_in
from esformat import Segment
from esformat.parts import EventSchema, default_schema
from esformat.spark.parts import (
    Bounds,
    Domain,
    Place,
    RowRange,
    SegmentGoneError,
    bounds_of_filters,
    columns_of,
    convert_batch,
    find_candidates,
    freeze_imports,
    matching,
    opened_as_planned,
    readable,
    scan_rows,
    schema_of,
    share_out,
)

UNSEALED_BYTES = 16 << 20
"""Bytes of unsealed events, as Arrow, sent to one task: compressed, a message of a few MB."""
FEW_SPACES = 32
"""Up to this many spaces are looked up one by one in the manifest's space filters."""
_ANY = Query()


@dataclass(frozen=True, slots=True)
class SegmentRows:
    """Rows of a sealed segment. share: the same events by their keys, in case the segment is gone.

    indexes: the range [first, end) of record indexes to read; None: all.
    hidden: spaces with hidden events, and the cuts that hide them.
    """

    rows: RowRange
    share: Share
    partition: str
    indexes: tuple[int, int] | None
    hidden: tuple[tuple[bytes, tuple[Cut, ...]], ...]


@dataclass(frozen=True, slots=True)
class UnsealedRows:
    """Unsealed events, with the requested columns, as a compressed Arrow stream."""

    stream: bytes


Task = tuple[SegmentRows | UnsealedRows, ...]


def catalog_schema(schemas: Sequence[SchemaInfo], indexes: tuple[str, ...], *, binary_keys: bool) -> EventSchema:
    """The schema of a topic's events."""
    if not schemas:  # nothing was appended yet
        return default_schema(indexes, binary_keys=binary_keys)
    return union_schema(schemas, binary_keys=binary_keys)


def with_catalog_columns(arrow: pa.Schema) -> pa.Schema:
    """Add the other columns that can be read: the record index, and the name of the partition."""
    arrow = arrow.append(pa.field(RECORD_INDEX, pa.int64(), nullable=False))
    return arrow.append(pa.field(PARTITION, pa.string(), nullable=False))


@dataclass(frozen=True)
class Request:
    """A read of a topic: the columns `wanted` (in Spark's types) of the events that satisfy all of `where`.

    union: all columns of the topic, in its types. filters: further filters, which Spark applies again.
    """

    wanted: pa.Schema
    union: pa.Schema
    where: tuple[Filter, ...] = ()
    filters: tuple[Filter, ...] = ()
    known: pa.Schema = field(init=False)
    whole: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        """Set known: all columns for which Spark has a type, in that type; whole: the wanted columns and `where`'s."""
        known = readable(self.union)
        looked_at = dict.fromkeys(name for each in self.where for name in columns_of(each))
        extra = [known.field(name) for name in looked_at if name not in self.wanted.names]
        object.__setattr__(self, "known", known)
        object.__setattr__(self, "whole", pa.schema([*self.wanted, *extra]))

    def bounds(self, schema: EventSchema) -> Bounds:
        """The bounds of keys, times and indexed columns that the conditions imply."""
        return bounds_of_filters((*self.where, *self.filters), schema)

    def convert(self, table: pa.Table, partition: str, hidden: Hidden) -> pa.RecordBatch:
        """Convert events of one source to the requested columns and those of `where`, in Spark's types."""
        target = pa.schema([self.union.field(name) for name in self.whole.names])
        return convert_batch(View(_ANY, target, hidden).shape(table, partition), self.whole)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Select the shaped events that satisfy `where`, with the requested columns only."""
        found = matching(batch, self.where)
        return found if found.schema.names == self.wanted.names else found.select(self.wanted.names)

    def may_match(self, partition: str) -> bool:
        """Whether events of a partition can satisfy `where`."""
        named = tuple(each for each in self.where if columns_of(each) == (PARTITION,))
        return not named or len(matching(pa.record_batch({PARTITION: [partition]}), named)) > 0


# ------------------------------------------------------------ on the driver


def plan_tasks(
    layout: Layout,
    snapshot: Snapshot,
    request: Request,
    *,
    indexes: Mapping[int, tuple[int, int]] | None = None,
    partition_bytes: int,
    partitions: int | None = None,
    store: StoreSettings | None = None,
) -> list[Task]:
    """Divide the contents of a snapshot into tasks. Its files must stay until the tasks have run; else they fail.

    indexes: the range [first, end) of record indexes by partition; None: all. store: where segments without a file are.
    Raises SegmentMissingError, EsdbError, OSError.
    """
    names = {number: name for number, name in snapshot.partitions if request.may_match(name)}
    spans = {number: indexes.get(number, (0, 0)) if indexes is not None else None for number in names}
    schema = catalog_schema(snapshot.schemas, snapshot.topic.indexes, binary_keys=snapshot.binary_keys)
    bounds = request.bounds(schema)
    chosen: dict[Place, SegmentInfo] = {}
    for number in names:
        for info in _segments(snapshot.segments, number, spans[number], bounds):
            chosen[place_of(layout, info, store)] = info
    try:
        candidates = find_candidates(list(chosen), request.bounds)
    except FileNotFoundError as error:
        what = "a segment is missing" if error.filename else f"a segment is missing: {error}"  # as stores raise it
        raise SegmentMissingError(what, path=error.filename, hint="`aggregator verify` lists what is missing") from None
    tasks: list[Task] = []
    shared_out = share_out(candidates, partition_bytes=partition_bytes, partitions=partitions)
    for ranges, ends in zip(shared_out, _ends(shared_out), strict=True):
        task = []
        for rows, (first, end) in zip(ranges, ends, strict=True):
            info = chosen[rows.place]
            inside = _inside(info, spans[info.partition])
            hidden = _hidden(snapshot, info)
            share = Share(info, first, end)
            span = None if inside else spans[info.partition]
            task.append(SegmentRows(rows, share, names[info.partition], span, hidden))
        tasks.append(tuple(task))
    fresh = (
        batch
        for part in snapshot.memtables
        if part.partition in names
        for batch in _unsealed(snapshot, part, names[part.partition], spans[part.partition], request)
    )
    return [*tasks, *((UnsealedRows(stream),) for stream in _streams(fresh, request.wanted))]


def _ends(tasks: Sequence[Sequence[RowRange]]) -> list[list[tuple[RowKey | None, RowKey | None]]]:
    """The first and end key of each range; None on a side where no other task reads events of the segment."""
    cuts = [
        key_of(following[0]) if task[-1].place == following[0].place else None for task, following in pairwise(tasks)
    ]
    ends: list[list[tuple[RowKey | None, RowKey | None]]] = [[(None, None)] * len(task) for task in tasks]
    for number, cut in enumerate(cuts):
        first, _ = ends[number][-1]
        ends[number][-1] = (first, cut)
        ends[number + 1][0] = (cut, None)
    return ends


def _segments(view: SegmentView, partition: int, span: tuple[int, int] | None, bounds: Bounds) -> Iterator[SegmentInfo]:
    """Segments of a partition that may have events within the bounds, according to the manifest."""
    times = bounds.get("timestamp", Domain()).hull(lambda moment: moment + 1)
    first, end = span or (None, None)
    if (span is not None and span[0] >= span[1]) or any(domain.empty for domain in bounds.values()):
        return
    asked = {"partition": partition, "start": times.low, "end": times.high, "first_index": first, "end_index": end}
    spaces = bounds.get("space", Domain())
    if spaces.listed is not None and len(spaces.listed) <= FEW_SPACES:
        found = {info.number: info for key in spaces.listed for info in view.select(TableBounds(space=key, **asked))}
        yield from (found[number] for number in sorted(found))
        return
    whole = spaces.hull(lambda key: key + b"\0")
    for info in view.select(TableBounds(**asked)):
        if (whole.low is None or info.max_space >= whole.low) and (whole.high is None or info.min_space < whole.high):
            yield info


def _inside(info: SegmentInfo, span: tuple[int, int] | None) -> bool:
    return span is None or (span[0] <= info.first_index and info.last_index < span[1])


def _hidden(snapshot: Snapshot, info: SegmentInfo) -> tuple[tuple[bytes, tuple[Cut, ...]], ...]:
    return tuple(
        (space, cuts)
        for space, cuts in hidden_in(snapshot.tombstones, info.partition).items()
        if info.min_space <= space <= info.max_space and any(info.first_index < cut.end_index for cut in cuts)
    )


def _unsealed(
    snapshot: Snapshot, part: MemtableView, name: str, span: tuple[int, int] | None, request: Request
) -> Iterator[pa.RecordBatch]:
    """Yield the matching unsealed events of a partition."""
    hidden = hidden_in(snapshot.tombstones, part.partition)
    groups: dict[int, list[MemtableBatch]] = {}
    for batch in part.batches:
        if span is None or (batch.first_index < span[1] and batch.end_index > span[0]):
            groups.setdefault(batch.schema.number, []).append(batch)
    for batches in groups.values():
        table = pa.Table.from_batches([batch.events for batch in batches])
        column = pa.array(np.concatenate([batch.record_indexes() for batch in batches]))
        table = table.append_column(pa.field(RECORD_INDEX, pa.int64(), nullable=False), column)
        found = request.filter(request.convert(_between(table, span), name, hidden))
        if len(found):
            yield found


def _between(table: pa.Table, span: tuple[int, int] | None) -> pa.Table:
    """The rows with record indexes in [first, end)."""
    if span is None:
        return table
    indexes = numbers(table, RECORD_INDEX)
    mask = (indexes >= span[0]) & (indexes < span[1])
    return table if mask.all() else table.filter(pa.array(mask))


def _streams(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[bytes]:
    """Yield the batches as compressed streams, each of about UNSEALED_BYTES of Arrow."""
    for batch in batches:
        step = max(1, len(batch) * UNSEALED_BYTES // max(1, batch.nbytes))
        for first in range(0, len(batch), step):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
                writer.write_batch(batch.slice(first, step))
            yield sink.getvalue().to_pybytes()


# ------------------------------------------------------------ in tasks


def read_task(task: Task, request: Request, root: str) -> Iterator[pa.RecordBatch]:
    """Yield the matching events of one task, even if its segments were replaced. root: the catalog, or its store.

    Raises EsdbError, OSError.
    """
    freeze_imports()
    for each in task:
        if isinstance(each, UnsealedRows):
            with pa.ipc.open_stream(each.stream) as stream:
                yield from stream
        else:
            yield from _read_segment(each, request, root)


def _read_segment(each: SegmentRows, request: Request, root: str) -> Iterator[pa.RecordBatch]:
    needed = {*request.whole.names}
    if each.hidden:
        needed |= {"space", "timestamp", RECORD_INDEX}
    if each.indexes is not None:
        needed.add(RECORD_INDEX)
    with ExitStack() as stack:
        try:
            segment = stack.enter_context(opened_as_planned(each.rows))
        except SegmentGoneError:
            for found in opened_now(root, each.share.segment, stack):
                tables = _scanned(found, needed | {*KEY_COLUMNS}, request)
                yield from _matching(map(each.share.of, tables), each, request)
        else:
            yield from _matching(_scanned(segment, needed, request, each.rows), each, request)


def _scanned(segment: Segment, needed: set[str], request: Request, rows: RowRange | None = None) -> Iterator[pa.Table]:
    """Yield the events that may be within the bounds. rows: None: all."""
    columns = [name for name in segment.schema.names if name in needed] or ["timestamp"]
    first, last = (rows.first, rows.last) if rows is not None else (0, segment.num_events)
    scan: Any = scan_rows(segment, first, last, columns=columns, bounds=request.bounds(schema_of(segment)))
    return (pa.Table.from_batches([batch]) for batch in scan.batches())


def _matching(tables: Iterable[pa.Table], each: SegmentRows, request: Request) -> Iterator[pa.RecordBatch]:
    hidden = dict(each.hidden)
    for whole in tables:
        table = _between(whole, each.indexes)
        if len(table):
            found = request.filter(request.convert(table, each.partition, hidden))
            if len(found):
                yield found
