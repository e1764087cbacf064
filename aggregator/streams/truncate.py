"""TRUNCATE: hide the oldest records of streams immediately, up to a position in each; compaction frees the space."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.base.merge import Source, merge, numbers
from aggregator.engine.backend import Backend, writer_of
from aggregator.lql import resolve_time
from aggregator.lql.parse.tree import Truncate
from aggregator.lql.text.times import NANOS_PER_MICRO
from aggregator.model import LAST, PARTITION, RECORD_INDEX, Cut
from aggregator.read.memtable_source import Group, unsealed_batches
from aggregator.read.query import Query
from aggregator.read.segment_source import segment_batches
from aggregator.read.view import View
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.state.state import Snapshot
from aggregator.storage.state.streams import Stream
from aggregator.storage.state.tombstones import FEW_SPACES, hidden_in
from aggregator.streams.sizes import record_bytes, shares_of, unsealed_record_bytes
from aggregator.streams.trimming import Rows, Rules, Trimming

_SIZE = "record_bytes"
_READ = pa.schema(
    [
        pa.field("space", pa.string()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field(RECORD_INDEX, pa.int64()),
        pa.field(PARTITION, pa.string()),
    ]
)
_ANSWER = (
    ("tags", pa.string()),
    ("topic", pa.string()),
    ("removed records", pa.int64()),
    ("removed bytes", pa.int64()),
    ("records", pa.int64()),
    ("bytes", pa.int64()),
)


@dataclass(slots=True)
class _Streams:
    """The selected streams in this run's snapshots, numbered over all topics."""

    snapshots: list[Snapshot]
    names: list[tuple[str, str]]  # topic and name, by number
    records: list[int]
    sizes: list[float]

    def of(self, topic: str) -> list[str]:
        return [name for owner, name in self.names if owner == topic]


def truncate(backend: Backend, statement: Truncate) -> pa.Table:
    """Run TRUNCATE; return a row for each stream that loses records, or would, with what remains of it.

    Raises LqlError, ReadOnlyError (except for a dry run), ManifestFailedError, OSError.
    """
    if not statement.dry_run:
        writer_of(backend)
    before = statement.before
    before_us = (
        None if before is None else -(-resolve_time(before.text, time.time_ns(), before.mark) // NANOS_PER_MICRO)
    )
    least = float(statement.min_size or 0)
    with ExitStack() as pins:
        streams = _held(backend, statement, pins)
        trimmed: list[Trimming] = []
        left = np.array(streams.sizes, np.float64)
        if before_us is not None or statement.max_size is not None:
            rules = Rules(before_us, statement.max_size, least)
            stop = before_us if statement.max_size is None else None
            trimmed.append(_trim(backend.pool, streams, Trimming(rules, left), None, stop))
            left = trimmed[-1].bytes_left
        if statement.max_db_size is not None and left.sum() > statement.max_db_size:
            rules = Rules(least_bytes=least, total_bytes=statement.max_db_size)
            trimmed.append(_trim(backend.pool, streams, Trimming(rules, left), trimmed[-1] if trimmed else None, None))
        if not statement.dry_run:
            _apply(backend, streams, trimmed)
        return _answer(streams, trimmed)


def _held(backend: Backend, statement: Truncate, pins: ExitStack) -> _Streams:
    backend.refresh()
    topics: dict[str, list[Stream]] = {}
    for stream in backend.streams.select(statement.source):
        topics.setdefault(stream.topic, []).append(stream)
    found = _Streams([], [], [], [])
    for topic, mine in topics.items():
        state = backend.state.topics.get(topic)
        if state is None:  # deleted in between
            continue
        snapshot, pin = backend.snapshot(state, None)
        pins.callback(pin.release)
        found.snapshots.append(snapshot)
        records = {stream.name: 0 for stream in mine}
        sizes = dict.fromkeys(records, 0.0)
        for share in shares_of(backend.pool, snapshot, set(records)):
            records[share.name] += share.records
            sizes[share.name] += share.size_bytes
        found.names += [(topic, name) for name in records]
        found.records += records.values()
        found.sizes += sizes.values()
    return found


# ------------------------------------------------------------ choosing records


def _trim(
    pool: SegmentPool, streams: _Streams, trimming: Trimming, before: Trimming | None, stop_us: int | None
) -> Trimming:
    """Remove records, oldest first, until the rules are satisfied. before: the trimming that already removed others."""
    numbered = pa.array([f"{topic}\0{name}" for topic, name in streams.names])
    sources = [source for snapshot in streams.snapshots for source in _sources(pool, snapshot, streams, stop_us)]
    for batch in merge(sources, by="timestamp", reverse=False):
        rows = _rows(batch, numbered)
        if before is not None:
            rows = rows.where(_behind(rows, before))
        if len(rows.times) and trimming.done(int(rows.times[0])):
            break
        trimming.take(rows)
    return trimming


def _rows(batch: pa.RecordBatch, numbered: pa.Array) -> Rows:
    partitions = np.asarray(batch.column(PARTITION).cast(pa.int64()).to_numpy())
    streams = np.asarray(pc.index_in(batch.column("space"), numbered).to_numpy()).astype(np.int64)
    sizes = np.asarray(batch.column(_SIZE).to_numpy())
    return Rows(streams, sizes, numbers(batch, "timestamp"), partitions, numbers(batch, RECORD_INDEX))


def _behind(rows: Rows, trimming: Trimming) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The records that the trimming kept."""
    time_us, partition, index = trimming.last[:, rows.streams]
    same_time = rows.times == time_us
    later = (rows.partitions > partition) | ((rows.partitions == partition) & (rows.indexes > index))
    return np.asarray((rows.times > time_us) | (same_time & later))


def _sources(pool: SegmentPool, snapshot: Snapshot, streams: _Streams, stop_us: int | None) -> Iterator[Source]:
    """The records of a topic's streams before a time, in order, each source with the size that its records count as."""
    names = streams.of(snapshot.topic.name)
    one_by_one = len(names) <= FEW_SPACES
    chosen = None if one_by_one else pa.array(names)
    for number, _ in snapshot.partitions:
        hidden = hidden_in(snapshot.tombstones, number)
        for space in [name.encode() for name in names] if one_by_one else [None]:
            query = Query(space=space, end=stop_us, partition=number)
            view = View(query, _READ, hidden)
            shaped = partial(_weighed, topic=snapshot.topic.name, chosen=chosen)
            for info in snapshot.segments.select(query):
                read = partial(segment_batches, pool, info, view, str(number))
                yield Source(info.min_timestamp, number, partial(shaped, read, record_bytes(info)))
            for part in snapshot.memtables:
                for lookup in part.lookups() if part.partition == number else ():
                    size = unsealed_record_bytes(part)
                    read = partial(unsealed_batches, Group((lookup,), (number,)), view, str(number))
                    yield Source(lookup.min_timestamp, number, partial(shaped, read, size))


def _weighed(
    read: Callable[[], Iterator[pa.RecordBatch]], size: float, *, topic: str, chosen: pa.Array | None
) -> Iterator[pa.RecordBatch]:
    """Batches with the size that each record counts as, and with streams named by topic and name."""
    for batch in read():
        if chosen is not None:
            batch = batch.filter(pc.is_in(batch.column("space"), value_set=chosen))
        names = pc.binary_join_element_wise(topic, batch.column("space"), "\0")
        arrays = [names, *batch.columns[1:], pa.array(np.full(len(batch), size))]
        yield pa.RecordBatch.from_arrays(arrays, [*batch.schema.names, _SIZE])


# ------------------------------------------------------------ applying


def _apply(backend: Backend, streams: _Streams, trimmed: Sequence[Trimming]) -> None:
    writing = writer_of(backend)
    cuts: dict[tuple[int, bytes], Cut] = {}
    ends = {snapshot.topic.name: _ends(snapshot) for snapshot in streams.snapshots}
    for trimming in trimmed:
        for number in np.flatnonzero(trimming.removed).tolist():
            topic, name = streams.names[number]
            time_us, last_partition, index = trimming.last[:, number].tolist()
            for partition, end in ends[topic].items():
                tie = index + 1 if partition == last_partition else LAST if partition < last_partition else 0
                cuts[partition, name.encode()] = Cut(end, time_us, tie)
    writing.upkeep.erasures.truncate(cuts)
    writing.scheduler.run_chores()


def _ends(snapshot: Snapshot) -> dict[int, int]:
    """The record index after the last record in each partition of the snapshot."""
    ends: dict[int, int] = {}
    places = [(info.partition, info.last_index + 1) for info in snapshot.segments]
    places += [(part.partition, batch.end_index) for part in snapshot.memtables for batch in part.batches[-1:]]
    for number, end in places:
        ends[number] = max(end, ends.get(number, 0))
    return ends


def _answer(streams: _Streams, trimmed: Sequence[Trimming]) -> pa.Table:
    rows = []
    removed = sum((trimming.removed for trimming in trimmed), start=np.zeros(len(streams.names), np.int64))
    left = trimmed[-1].bytes_left if trimmed else np.array(streams.sizes)
    for number in np.flatnonzero(removed).tolist():
        topic, name = streams.names[number]
        records, gone = streams.records[number], int(removed[number])
        rest = int(left[number] + 0.5)
        rows.append((name, topic, gone, int(streams.sizes[number] + 0.5) - rest, records - gone, rest))
    rows.sort(key=lambda row: (-row[3], row[1], row[0]))
    totals = {"total removed records": sum(row[2] for row in rows), "total removed bytes": sum(row[3] for row in rows)}
    schema = pa.schema(_ANSWER, metadata={name: str(total) for name, total in totals.items()})
    return pa.table([list(column) for column in zip(*rows, strict=True)] or [[] for _ in _ANSWER], schema=schema)
