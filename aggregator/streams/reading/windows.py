"""Read one round: the records of selected streams by time, with each source filtered before the merge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import esformat
from aggregator.base.allowance import check
from aggregator.base.merge import Source, numbers, sort_order
from aggregator.lql import Columns, Filter, TimeSpan
from aggregator.model import PARTITION, RECORD_INDEX, SchemaInfo, SegmentInfo
from aggregator.read.memtable_source import Group, lookup_groups, unsealed_batches
from aggregator.read.query import Query
from aggregator.read.segment_source import FIRST_WINDOW_ROWS, segment_batches, segment_blocks
from aggregator.read.view import View
from aggregator.read.waves import Waves
from aggregator.storage.files.pins import Pin
from aggregator.storage.memtable.batch import MemtableBatch, SchemaPlaces
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.segments.records import FIELD_MAP, FIELDS
from aggregator.storage.state.schema import union_schema
from aggregator.storage.state.state import Snapshot
from aggregator.storage.state.tombstones import hidden_in
from aggregator.streams.reading.event_tags import EventTags, Streams, streams_of, tag_texts
from aggregator.streams.reading.position import Key
from aggregator.streams.reading.row_filter import Round, RowFilter
from esformat.parts import default_schema

FEW_STREAMS = 32
"""Up to this many streams of a topic are looked up one by one; more are filtered out of everything that is read."""
FEW_SPACES = 16
"""If a segment has at least this many events per space, its list of spaces is checked before its events."""
FRESH_ROWS, FRESH_BATCHES, FRESH_BYTES = 1 << 15, 1 << 10, 2 << 20
"""Limits for unsealed events, batches and bytes scanned directly; slow readers keep them in memory."""


@dataclass(frozen=True, slots=True)
class TopicPart:
    """A topic in one query. spaces: the names of the selected streams; None: all its spaces.

    streams: the names of all its streams. others: which events that belong to no stream are selected; None: none.
    """

    snapshot: Snapshot
    spaces: tuple[str, ...] | None
    conditions: tuple[tuple[str, object], ...] = ()
    streams: tuple[str, ...] = ()
    others: EventTags | None = None


@dataclass(slots=True)
class Tally:
    """What a query reads: segments and the queries on them, by number; the number of unsealed batches."""

    read: dict[int, tuple[SegmentInfo, list[Query]]] = field(default_factory=dict)
    batches: int = 0

    def add(self, info: SegmentInfo, query: Query) -> None:
        """Add a segment and the query on it."""
        self.read.setdefault(info.number, (info, []))[1].append(query)

    def blocks(self, pool: SegmentPool) -> tuple[int, int]:
        """The number of data blocks of the segments, and of those that the queries read. Opens the segments."""
        held = looked_at = 0
        for info, queries in self.read.values():
            blocks = [segment_blocks(pool, info, query) for query in queries]
            held += blocks[0][1]
            looked_at += len(set().union(*(found for found, _ in blocks)))
        return held, looked_at


@dataclass(slots=True)
class Material:
    """Everything that one query reads from, held until it is released. `ends`: where the partitions ended before."""

    parts: list[TopicPart]
    pins: ExitStack
    schema: pa.Schema
    ends: dict[int, int]
    tally: Tally = field(default_factory=Tally)

    @property
    def columns(self) -> Columns:
        """The columns of the batches, for LQL."""
        extra = FIELDS if FIELDS in self.schema.names and self.schema.field(FIELDS).type == FIELD_MAP else None
        hidden = frozenset({"grouping", RECORD_INDEX, PARTITION})
        return Columns(self.schema, extra=extra, hidden=hidden)


def hold(snapshots: Sequence[tuple[Snapshot, Pin]]) -> tuple[ExitStack, pa.Schema]:
    """Collect the pins, to release them together, and the union of the topics' columns."""
    pins = ExitStack()
    for _, pin in snapshots:
        pins.callback(pin.release)
    schemas: list[SchemaInfo] = [schema for snapshot, _ in snapshots for schema in snapshot.schemas]
    arrow = (union_schema(schemas, binary_keys=False) if schemas else default_schema((), binary_keys=False)).arrow
    if "data" not in arrow.names:
        arrow = arrow.append(pa.field("data", pa.binary()))
    return pins, arrow


def read_round(
    material: Material,
    around: Round,
    where: Filter,
    span: TimeSpan,
    names: Sequence[str],
    pool: SegmentPool,
    *,
    reverse: bool = False,
    limit: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The columns `names`, and additionally time, record index and partition number (as text) of each record.

    limit: approximate number of records that will be taken.
    """
    span = _narrowed(span, around)
    looked_at = limit if limit is None or not where.columns else max(limit, FIRST_WINDOW_ROWS)
    sparing = looked_at is not None and looked_at <= FIRST_WINDOW_ROWS
    span_query = Query(start=span.start_us, end=span.end_us)
    segments = [info for part in material.parts for info in part.snapshot.segments.select(span_query)]

    kept = frozenset(_target(material, where, names).names)

    def sources_of(start: int | None, end: int | None, unordered: bool) -> list[Source]:
        within = TimeSpan(start, end)
        enough = kept if unordered else None
        return round_sources(material, around, where, within, names, pool, reverse, looked_at, enough)

    waves = Waves(sources_of, pool.windows, reverse, sparing)
    merged = waves.read(segments, (span.start_us, span.end_us), limit)
    return _with_tags(merged, material.parts) if "space" in names else merged


def round_sources(
    material: Material,
    around: Round,
    where: Filter,
    span: TimeSpan,
    names: Sequence[str],
    pool: SegmentPool,
    reverse: bool = False,
    limit: int | None = None,
    unordered: frozenset[str] | None = None,
) -> list[Source]:
    """The sources that a round is merged from. Reads nothing yet. unordered: as for `segment_batches`."""
    target, span = _target(material, where, names), _narrowed(span, around)
    return [
        source
        for part in material.parts
        for source in _sources(part, around, where, span, target, pool, material.tally, reverse, limit, unordered)
    ]


def read_unordered(
    material: Material, around: Round, where: Filter, span: TimeSpan, names: Sequence[str], pool: SegmentPool
) -> Iterator[pa.RecordBatch]:
    """The records of a round in any order, without sorting, with `names` and perhaps other columns: for counting."""
    target = _target(material, where, names)
    kept = frozenset([*names, "grouping"] if "space" in names else names)  # the tags of an event need both
    for part in material.parts:
        sources = _sources(
            part, around, where, _narrowed(span, around), target, pool, material.tally, False, None, kept
        )
        partitions = _tagged_partitions([part]) if "space" in names else {}
        for source in sources:
            check()
            tags = partitions.get(source.partition)
            for batch in source.batches():
                yield batch if tags is None else _with_spaces(batch, tags(batch))


def _tagged_partitions(parts: Sequence[TopicPart]) -> dict[int | None, Callable[[pa.RecordBatch], pa.Array]]:
    """Functions that return the text of each record's tags, by partition; none for streams, whose spaces are it."""
    return {
        number: partial(tag_texts, part.snapshot.topic.name, name, streams=part.streams)
        for part in parts
        if part.spaces is None or part.others is not None
        for number, name in part.snapshot.partitions
    }


def _with_tags(batches: Iterator[pa.RecordBatch], parts: Sequence[TopicPart]) -> Iterator[pa.RecordBatch]:
    """Batches of a round, with each space replaced by the text of the record's tags."""
    partitions = _tagged_partitions(parts)
    streams = streams_of(parts[0].streams) if len(parts) == 1 else None  # one topic's space may be another's stream
    for batch in batches:
        texts, places = batch.column("space"), batch.column(PARTITION)
        if not partitions or (streams is not None and streams.mask(texts).all()):
            yield batch  # the spaces are those texts; the usual case
            continue
        numbers = pc.unique(places).to_pylist()
        for number in numbers:
            tags = partitions.get(int(number))
            if tags is not None and len(numbers) == 1:
                texts = tags(batch)
            elif tags is not None:
                mine = pc.equal(places, number)
                texts = pc.replace_with_mask(texts, mine, tags(batch.select(["space", "grouping"]).filter(mine)))
        yield _with_spaces(batch, texts)


def _with_spaces(batch: pa.RecordBatch, texts: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index("space"), batch.schema.field("space"), texts)


def _target(material: Material, where: Filter, names: Sequence[str]) -> pa.Schema:
    """The columns to read: the requested ones, and those needed for filtering and merging."""
    wanted = dict.fromkeys([*names, *sorted(where.columns), "timestamp"])  # "space" in `where`: it needs tags
    if any(part.spaces is not None for part in material.parts):
        wanted["space"] = None
    if "space" in names or "space" in where.columns or any(part.others is not None for part in material.parts):
        wanted |= dict.fromkeys(("space", "grouping"))
    held = set(material.schema.names)  # Arrow rebuilds `names` on each access: quadratic in the number of columns
    target = pa.schema([material.schema.field(name) for name in wanted if name in held])
    target = target.append(pa.field(RECORD_INDEX, pa.int64(), nullable=False))
    return target.append(pa.field(PARTITION, pa.string(), nullable=False))


def _narrowed(span: TimeSpan, around: Round) -> TimeSpan:
    if around.after is not None:
        span = span & TimeSpan(around.after[0])
    if around.up_to is not None and around.up_to[0] < 2**63 - 1:
        span = span & TimeSpan(None, around.up_to[0] + 1)
    return span


def _sources(
    part: TopicPart,
    around: Round,
    where: Filter,
    span: TimeSpan,
    target: pa.Schema,
    pool: SegmentPool,
    tally: Tally,
    reverse: bool,
    limit: int | None,
    unordered: frozenset[str] | None = None,
) -> Iterator[Source]:
    snapshot = part.snapshot
    one_by_one = part.spaces is not None and len(part.spaces) <= FEW_STREAMS
    chosen = None if part.spaces is None or one_by_one else streams_of(part.spaces)
    spaces = [space.encode() for space in part.spaces or ()] if one_by_one else [None]
    span_query = Query(start=span.start_us, end=span.end_us, reverse=reverse, limit=limit, conditions=part.conditions)
    if part.spaces == ():
        spaces = []
    asks_tags = "space" in where.columns
    topic, streams = snapshot.topic.name, part.streams
    merged = len({info.partition for info in snapshot.segments.select(span_query)})
    for partition, name in snapshot.partitions:
        first, end = around.begin.get(partition, 0), around.end.get(partition, 0)
        if first >= end or span.empty:
            continue
        hidden = hidden_in(snapshot.tombstones, partition)
        tags = partial(tag_texts, topic, name, streams=streams) if asks_tags else None
        mine = tags if part.spaces is None else None  # for streams, the space is the text
        looked_up: list[tuple[bytes | None, RowFilter]] = [
            (space, RowFilter(partition, around, where, chosen, first, end, tags=mine)) for space in spaces
        ]
        if part.others is not None and (match := part.others.match_by_partition(name)) is not False:
            others = part.others if match is None or part.streams else None
            only = part.others.space()
            looked_up.append(
                (
                    None if only is None else only.encode(),
                    RowFilter(partition, around, where, None, first, end, others, name, tags),
                )
            )
        for space, row_filter in looked_up:
            query = replace(span_query, space=space, partition=partition, first_index=first, end_index=end)
            view = View(query, target, hidden, merged)
            for info in snapshot.segments.select(query):
                tally.add(info, query)
                low = ~info.max_timestamp if reverse else info.min_timestamp
                yield Source(low, partition, _of_segment(pool, info, view, row_filter, unordered))
            yield from _unsealed_sources(snapshot, view, row_filter, tally)


def _unsealed_sources(snapshot: Snapshot, view: View, row_filter: RowFilter, tally: Tally) -> Iterator[Source]:
    query, partition = view.query, row_filter.partition
    fresh = _fresh(snapshot, query)
    if fresh is not None:
        tally.batches += len(fresh)
        for batches in _by_schema(fresh):
            low = min(batch.min_timestamp for batch in batches)
            low = ~max(batch.max_timestamp for batch in batches) if query.reverse else low
            yield Source(low, partition, _of_batches(batches, view, row_filter))
        return
    for group in lookup_groups(snapshot, query):
        tally.batches += sum(len(lookup.batches) for lookup in group.lookups)
        yield Source(group.bound(query), partition, _of_unsealed(group, view, row_filter))


def _of_segment(
    pool: SegmentPool, info: SegmentInfo, view: View, row_filter: RowFilter, unordered: frozenset[str] | None
) -> Callable[[], Iterator[pa.RecordBatch]]:
    inside = row_filter.first <= info.first_index and info.last_index < row_filter.end

    def batches() -> Iterator[pa.RecordBatch]:
        chosen = row_filter.chosen
        mine = (
            row_filter
            if chosen is None or not _all_chosen(chosen, pool.get(info))
            else replace(row_filter, chosen=None)
        )
        return segment_batches(pool, info, view, str(row_filter.partition), mine.keep(inside), unordered=unordered)

    return batches


def _all_chosen(streams: Streams, segment: esformat.Segment) -> bool:
    """Whether every space of a segment belongs to the streams, if that is cheap to check; else False."""
    spaces = segment.num_spaces
    if spaces > len(streams.names) or spaces * FEW_SPACES > segment.num_events:
        return False
    return all(space in streams.names for space in segment.spaces())


def _of_unsealed(group: Group, view: View, row_filter: RowFilter) -> Callable[[], Iterator[pa.RecordBatch]]:
    return lambda: (row_filter(batch, True) for batch in unsealed_batches(group, view, str(row_filter.partition)))


def _fresh(snapshot: Snapshot, query: Query) -> list[MemtableBatch] | None:
    """The unsealed batches from the query's first record index on, if there are few; else None. Following readers
    request them repeatedly, and a lookup over all unsealed events would cost more.
    """
    found: list[MemtableBatch] = []
    rows = size = 0
    for memtable in reversed(snapshot.memtables):
        if memtable.partition != query.partition:
            continue
        for batch in reversed(memtable.batches):
            if batch.end_index <= (query.first_index or 0):
                return found[::-1]
            rows, size = rows + batch.rows, size + batch.size_bytes
            if rows > FRESH_ROWS or len(found) >= FRESH_BATCHES or (size > FRESH_BYTES and found):
                return None
            if query.end_index is None or batch.first_index < query.end_index:
                found.append(batch)
    return found[::-1]


def _by_schema(batches: list[MemtableBatch]) -> list[list[MemtableBatch]]:
    groups: dict[int, list[MemtableBatch]] = {}
    schemas = SchemaPlaces()
    for batch in batches:
        groups.setdefault(schemas.place(batch.schema), []).append(batch)
    return list(groups.values())


def _of_batches(
    batches: list[MemtableBatch], view: View, row_filter: RowFilter
) -> Callable[[], Iterator[pa.RecordBatch]]:
    def read() -> Iterator[pa.RecordBatch]:
        query = view.query
        names = batches[0].events.schema.names
        columns = dict.fromkeys([*view.needed(names), "space"])
        table = pa.Table.from_batches([batch.events.select(list(columns)) for batch in batches])
        indexes = np.concatenate([batch.record_indexes() for batch in batches])
        table = table.append_column(pa.field(RECORD_INDEX, pa.int64(), nullable=False), pa.array(indexes))
        masks = query.masks(numbers(table, "timestamp"), indexes)
        if query.space is not None:
            masks.append(np.asarray(pc.equal(table["space"], query.space.decode()).to_numpy()))
        mask = np.logical_and.reduce(masks) if masks else None
        table = table if mask is None or mask.all() else table.filter(pa.array(mask))
        if len(table):
            times, indexes = numbers(table, "timestamp"), numbers(table, RECORD_INDEX)
            order = sort_order(times, None, indexes, reverse=query.reverse)
            table = table if order is None else table.take(pa.array(order))
            yield row_filter(view.shape(table, str(row_filter.partition)), True)

    return read


def last_key(batch: pa.RecordBatch) -> Key:
    """The key of the last record of a batch of `read_round`."""
    row = len(batch) - 1
    time = batch.column("timestamp").cast(pa.int64())[row].as_py()
    return time, int(batch.column(PARTITION)[row].as_py()), batch.column(RECORD_INDEX)[row].as_py()
