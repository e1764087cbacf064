"""One round of a pipe: the selected records since the last round, in order, with the position after each batch.

A round covers the record indexes [begin, end) of every partition, like readers' rounds (`position`). It is cut at a
segment's end, so that a long history is read in rounds of bounded size, each segment once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from aggregator.engine.backend import Backend
from aggregator.engine.writer import WriterEngine
from aggregator.lql import Filter, TimeSpan, time_span
from aggregator.lql.parse.tree import Expression, Source
from aggregator.storage.segments.table import Bounds
from aggregator.storage.state.state import Snapshot
from aggregator.streams.reading.position import Position
from aggregator.streams.reading.record_ranges import gone_between
from aggregator.streams.reading.row_filter import Round
from aggregator.streams.reading.windows import Material, TopicPart, hold, last_key, read_round
from esformat import EsdbError

PIPE_TAG = "logrange.pipe"
"""The tag of streams that pipes write to. Pipes do not read such streams."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a pipe copies: the streams, and the condition on their records."""

    source: Source | None
    where: Expression | None


@dataclass(slots=True)
class PipeRound:
    """A round that is being read; must be closed. gone: records of it that were removed before it began. last: whether
    it ends at what was visible when it began.
    """

    around: Round
    material: Material
    where: Filter | None  # None: no stream is chosen
    span: TimeSpan
    gone: int
    last: bool
    backend: Backend
    standing: Position = field(init=False)
    """The position after the last returned batch."""

    def __post_init__(self) -> None:
        self.standing = Position(self.around.begin, self.around.end, self.around.after)

    @property
    def empty(self) -> bool:
        """Whether no records arrived since the last round."""
        return all(end <= self.around.begin.get(number, 0) for number, end in self.around.end.items())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The selected records. Raises OSError, esformat.EsdbError."""
        if self.where is not None and not self.empty:
            names = self.material.schema.names
            merged = read_round(self.material, self.around, self.where, self.span, names, self.backend.pool)
            for batch in merged:
                if len(batch):
                    yield batch
        self.standing = Position(self.around.end)

    def behind(self, batch: pa.RecordBatch) -> Position:
        """The position after the last record of a part of a batch."""
        return Position(self.around.begin, self.around.end, last_key(batch))

    def close(self) -> None:
        """Release the files."""
        self.material.pins.close()


def begin_round(
    backend: WriterEngine, chosen: Chosen, standing: Position, now_ns: int, *, new: bool = False
) -> PipeRound:
    """Begin the round that continues at a position. new: the pipe is being created; then raises LqlError if the
    existing columns do not allow the condition. Raises OSError.
    """
    backend.refresh()
    ends = visible_ends(backend)  # first, so that everything below is in the index and in the snapshots
    streams = backend.streams.names(chosen.source, without_tag=PIPE_TAG)
    topics = [topic for topic in list(backend.state.topics.values()) if not topic.binary_keys]
    with ExitStack() as until_here:
        held = [backend.snapshot(topic, None) for topic in topics]
        for snapshot, pin in held:
            if snapshot.topic.name not in streams:
                until_here.callback(pin.release)
        mine = [(snapshot, pin) for snapshot, pin in held if snapshot.topic.name in streams]
        pins, schema = hold(mine)
        try:
            parts = [TopicPart(snapshot, streams[snapshot.topic.name]) for snapshot, _ in mine]
            material = Material(parts, pins, schema, ends)
            snapshots = [snapshot for snapshot, _ in held]
            begin = dict(standing.begin)
            most = backend.tuning.pipe_round_records
            end = _cut(snapshots, begin, ends, most) if standing.after is None else dict(standing.end)
            gone = 0
            for snapshot in snapshots:  # a damaged segment of a topic that it does not read must not stop a pipe
                with suppress(*(() if snapshot.topic.name in streams else (EsdbError, OSError))):
                    gone += gone_between(snapshot, begin, end, backend.pool)
            where = Filter.compile(chosen.where, material.columns, now_ns, standing=not new) if parts else None
            around = Round(begin, end, standing.after)
            last = all(end.get(number, 0) >= visible for number, visible in ends.items())
            return PipeRound(around, material, where, time_span(chosen.where, now_ns), gone, last, backend)
        except BaseException:
            pins.close()
            raise


def visible_ends(backend: Backend) -> dict[int, int]:
    """The record index after the last visible record of each partition that pipes can read."""
    with backend.state.view_lock:
        partitions = list(backend.state.partitions.items())
        return {number: p.visible_end for number, (topic, p) in partitions if not topic.binary_keys and p.visible_end}


def fresh_streams(backend: Backend, begin: dict[int, int], end: dict[int, int]) -> set[tuple[str, str]] | None:
    """Topic and name of each space that got records between two positions; None if unsealed batches do not show it."""
    grown = {number for number, index in end.items() if index > begin.get(number, 0)}
    with backend.state.view_lock:
        topics = {topic.info.number: topic for topic, _ in (backend.state.partitions[number] for number in grown)}
    found: set[tuple[str, str]] = set()
    for topic in topics.values():
        snapshot, pin = backend.snapshot(topic, None)
        pin.release()
        for number in grown.intersection(number for number, _ in snapshot.partitions):
            low, high = begin.get(number, 0), end[number]
            batches = [
                batch
                for part in snapshot.memtables
                for batch in (part.batches if part.partition == number else ())
                if batch.first_index < high and batch.end_index > low
            ]
            if sum(min(batch.end_index, high) - max(batch.first_index, low) for batch in batches) < high - low:
                return None  # some were sealed or removed
            for batch in batches:
                found.update((topic.info.name, name) for name in pc.unique(batch.events.column("space")).to_pylist())
    return found


def first_indexes(backend: Backend) -> dict[int, int]:
    """The record index of the first remaining record of each partition."""
    firsts: dict[int, int] = {}
    for topic in list(backend.state.topics.values()):
        if topic.binary_keys:
            continue
        snapshot, pin = backend.snapshot(topic, None)
        pin.release()
        places = [(info.partition, info.first_index) for info in snapshot.segments]
        places += [(part.partition, batch.first_index) for part in snapshot.memtables for batch in part.batches[:1]]
        for number, first in places:
            firsts[number] = min(first, firsts.get(number, first))
    return firsts


def _cut(snapshots: list[Snapshot], begin: dict[int, int], ends: dict[int, int], most: int) -> dict[int, int]:
    """Where a round from `begin` ends: after the segment with which it has `most` records, or at the end of all."""
    cut = {number: max(end, begin.get(number, 0)) for number, end in ends.items()}
    for snapshot in snapshots:
        for number, _ in snapshot.partitions:
            bounds = Bounds(partition=number, first_index=begin.get(number, 0))
            records = 0
            for info in sorted(snapshot.segments.select(bounds), key=lambda info: info.last_index):
                records += info.rows
                if records >= most and number in cut:
                    cut[number] = min(cut[number], info.last_index + 1)
                    break
    return cut
