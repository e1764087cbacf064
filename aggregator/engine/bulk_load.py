"""Bulk loads: add segments that were written elsewhere, such as by the tasks of a Spark job, to a topic: all or none.

Their files are written to `staging/`, with record indexes and numbers that were free when writing began (`Target`).
Then, in this order:

1. the partition's unsealed events are sealed, so that record indexes only grow;
2. a note of the segments is written durably (`staging`);
3. their files are renamed into place, and the directories are synced;
4. the manifest gets their rows, the partition's sealed index and the key of the batch, in one transaction;
5. readers see them; the note is deleted.

If their record indexes or numbers were assigned meanwhile, the segments are rewritten with others. A crash before step
4 leaves files that the next opening deletes, by the note. Appends wait during steps 2 to 5.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import esformat
from aggregator.base.common_type import magnitudes_of
from aggregator.base.merge import numbers
from aggregator.engine.ingest.batch import BatchAdapter
from aggregator.engine.writer import WriterEngine, now_us
from aggregator.errors import InvalidRequestError, OverloadedError
from aggregator.model import RECORD_INDEX, ProducerEntry, SchemaInfo, SegmentInfo, TopicInfo
from aggregator.storage.files.layout import Layout, make_directory
from aggregator.storage.files.staging import claim, forget_note, note, staging, undo
from aggregator.storage.log.entry import Action
from aggregator.storage.manifest import Edit, Manifest
from aggregator.storage.segments.file import write_segment
from aggregator.storage.state.schema import choose_schema
from aggregator.storage.state.state import PRODUCER_WINDOW, Partition, Topic
from esformat import EsdbError, InvalidEventError
from esformat.parts import sync_directory

ATTEMPTS = 5
"""Number of attempts to add segments while events keep arriving in their partition."""
_STALE, _BUSY = "stale", "busy"
Key = tuple[str, int]
"""The identity of a batch: a producer and its sequence, as in `Topic.append`."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What is remembered of segments that are added together: nothing if `key` is None. note: stored with the key."""

    key: Key | None = None
    note: str = ""

    def known_to(self, place: Partition) -> ProducerEntry | None:
        """The batch that was added before under the same key, if any. Raises SequenceForgottenError."""
        return None if self.key is None else place.remembered(*self.key)

    def entries(self, partition: int, first_index: int, count: int) -> list[ProducerEntry]:
        """The entries of this batch for the manifest and the segments."""
        if self.key is None:
            return []
        return [ProducerEntry(partition, *self.key, 0, first_index, count, self.note)]


@dataclass(frozen=True, slots=True)
class Target:
    """What writers of segments for a partition need. `first_index`, `first_number` and those after them were free."""

    topic: TopicInfo
    partition: tuple[int, str]
    schema: SchemaInfo
    first_index: int
    first_number: int


@dataclass(frozen=True, slots=True)
class StagedSegment:
    """A finished segment that waits to be added. magnitudes: of its columns, for the topic's schema."""

    path: str
    info: SegmentInfo
    magnitudes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Added:
    """Segments that were added to a topic: number of segments and events, and record indexes from `first` to `last`.

    duplicate: the batch was added before, and these are its events and record indexes; `segments` is then 0.
    """

    topic: str
    partition: str
    segments: int
    events: int
    first: int
    last: int
    duplicate: bool = False


# ------------------------------------------------------------ staging: in any process


def find_target(manifest: Manifest, topic: str, partition: str, given: pa.Schema) -> Target | None:
    """The target for events with these columns; None if the topic, partition or schema must be created first."""
    contents = manifest.load(since=1 << 62)  # without segments
    info = next((info for info in contents.topics if info.name == topic), None)
    if info is None:
        return None
    place = next((p for p in contents.partitions if p.topic == info.number and p.name == partition), None)
    schema = _schema_for([s for s in contents.schemas if s.topic == info.number], given, info)
    if place is None or schema is None:
        return None
    index, number = manifest.free(place.number)
    return Target(info, (place.number, place.name), schema, index, number)


def _schema_for(schemas: Iterable[SchemaInfo], given: pa.Schema, info: TopicInfo) -> SchemaInfo | None:
    """The schema that appends would choose for these columns, if it needs no change; else None."""
    known, wanted = choose_schema(schemas, given, info.indexes, binary_keys=info.keys == "binary")
    return known if wanted == known else None


def stage(folder: Path, target: Target, events: pa.Table, batch: Batch, *, threads: int | None = 1) -> StagedSegment:
    """Write events as a segment for a target into a directory of `staging/`. For tasks in any process, at any time.

    Raises InvalidEventError for events that cannot be stored, OSError; then no file is left.
    """
    rows = BatchAdapter(events.schema, target.schema.schema).apply(events.combine_chunks())
    index, number = claim(folder, len(rows))
    index, number = target.first_index + index, target.first_number + number
    entries = batch.entries(target.partition[0], index, len(rows))
    table = _numbered(rows, np.arange(index, index + len(rows)))
    return _write(folder, target, [table], number, entries, threads)


def _write(
    folder: Path,
    target: Target,
    tables: Iterable[pa.Table],
    number: int,
    producers: Sequence[ProducerEntry],
    threads: int | None,
) -> StagedSegment:
    path = folder / f"{number}-{secrets.token_hex(4)}.esdb"
    found: dict[str, int] = {}
    info = write_segment(
        path, _measured(tables, found), number=number, topic=target.topic, partition=target.partition,
        schema=target.schema, producers=producers, now_us=now_us(), threads=threads, templates=True,
    )  # fmt: skip
    return StagedSegment(str(path), info, tuple(found.items()))


def _measured(tables: Iterable[pa.Table], found: dict[str, int]) -> Iterator[pa.Table]:
    """Yield the tables, and collect the magnitudes of their columns in `found`."""
    for table in tables:
        for name, magnitude in magnitudes_of(table.drop_columns([RECORD_INDEX])).items():
            found[name] = max(magnitude, found.get(name, 0))
        yield table


def _numbered(batch: pa.RecordBatch, indexes: npt.NDArray[np.int64]) -> pa.Table:
    """Add a column of record indexes to events."""
    field = pa.field(RECORD_INDEX, pa.int64(), nullable=False)
    return pa.Table.from_batches([batch]).append_column(field, pa.array(indexes, pa.int64()))


# ------------------------------------------------------------ adding: in the writer


class BulkLoad:
    """Adds segments to a topic of a catalog that is open for writing. Not thread-safe."""

    def __init__(self, writing: WriterEngine, topic: Topic) -> None:
        self._writing, self._topic = writing, topic
        self._folder = staging(writing.layout) / f"anew-{secrets.token_hex(8)}"

    def prepare(self, partition: str, given: pa.Schema) -> Target:
        """Create the partition and schema that events with these columns need. Raises as `Topic.append`."""
        topic = self._topic
        self._writing.ingest.append(topic, given.empty_table(), partition, None, None)
        schema = _schema_for(topic.schemas.values(), given, topic.info)
        assert schema is not None
        place = topic.partitions[partition]
        index, number = self._writing.manifest.free(place.number)
        return Target(topic.info, (place.number, place.name), schema, index, number)

    def add_files(self, paths: Sequence[str], partition: str, batch: Batch) -> Added:
        """Add copies of finished segments of any origin, all with the same columns. Raises as `add`, and UsageError."""
        with ExitStack() as stack:
            segments = [stack.enter_context(esformat.open(path, cache_bytes=0)) for path in paths]
            schemas = [_without_index(segment.schema) for segment in segments]
        if not paths:
            raise esformat.UsageError("no segments to add")
        for path, schema in zip(paths, schemas, strict=True):
            if schema != schemas[0]:
                raise esformat.UsageError(
                    f"its columns differ from those of {paths[0]}", path=path, hint="add the files separately"
                )
        target = self.prepare(partition, schemas[0])
        place = self._topic.partitions[partition]
        known = batch.known_to(place)
        if known is not None:
            return self._duplicate(place, known)
        with self._room(sum(Path(path).stat().st_size for path in paths)):
            return self._add(place, self._anew([(path, None) for path in paths], target, batch), target, batch)

    def add(self, target: Target, staged: Sequence[StagedSegment], batch: Batch) -> Added:
        """Add segments that were staged for a target: all of them, or none. Their files are moved.

        Raises InvalidEventError (values that the topic's columns cannot store), SequenceForgottenError (a key too old
        to check), OverloadedError (no room, or events keep arriving), InvalidRequestError (another catalog),
        LogFailedError, ManifestFailedError, OSError; then nothing changed.
        """
        place = self._topic.partitions.get(target.partition[1])
        if place is None or (place.number, self._topic.info.number) != (target.partition[0], target.topic.number):
            raise InvalidRequestError("this is not the catalog for which the segments were begun")
        known = batch.known_to(place)
        if known is not None:
            return self._duplicate(place, known)
        with self._room(sum(each.info.size_bytes for each in staged)):
            ordered = sorted(staged, key=lambda each: each.info.first_index)
            if not self._writing.sealer.take_numbers([each.info.number for each in ordered]):
                ordered = self._anew(_sources(ordered), target, batch)
            return self._add(place, ordered, target, batch)

    @contextmanager
    def _room(self, size: int) -> Iterator[None]:
        self._writing.quota.check_disk(size)
        try:
            yield
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _add(self, place: Partition, staged: list[StagedSegment], target: Target, batch: Batch) -> Added:
        self._admit(staged, target)
        for _ in range(ATTEMPTS):
            self._writing.sealer.seal(self._topic, place)
            outcome = self._try(place, staged, batch)
            if isinstance(outcome, Added):
                self._writing.scheduler.run_chores()
                return outcome
            if outcome is _STALE:
                staged = self._anew(_sources(staged), target, batch)
        raise OverloadedError(
            f"events keep arriving in partition {place.name!r}",
            hint="nothing was added: add segments to a separate partition",
            retry_after_s=1.0,
        )

    def _admit(self, staged: Iterable[StagedSegment], target: Target) -> None:
        """Record the magnitudes of the values in the topic's schema. Raises InvalidEventError if no type could store
        these values together with the topic's.
        """
        found: dict[str, int] = {}
        for name, magnitude in (item for each in staged for item in each.magnitudes):
            found[name] = max(magnitude, found.get(name, 0))
        schema = self._writing.ingest.schema_for(self._topic, target.schema.schema.arrow, found)
        if schema.family != target.schema.family:
            raise InvalidEventError(
                "values of the segments do not fit the type of events appended since they were begun",
                hint="begin them again",
            )

    def _try(self, place: Partition, staged: list[StagedSegment], batch: Batch) -> Added | str:
        """Add the segments between two groups of appends, if the partition has no unsealed events then."""
        outcome: list[Added | str] = []

        def act() -> None:
            self._topic.check_there()
            known = batch.known_to(place)
            if known is not None:
                outcome.append(self._duplicate(place, known))
            elif place.memtable.batches or place.sealing is not None:
                outcome.append(_BUSY)
            elif staged and place.next_index > staged[0].info.first_index:
                outcome.append(_STALE)
            else:
                outcome.append(self._commit(place, staged, batch))

        with place.seal_lock:
            self._writing.log.append(Action(act))
        return outcome[0]

    def _commit(self, place: Partition, staged: list[StagedSegment], batch: Batch) -> Added:
        layout, state, manifest = self._writing.layout, self._writing.state, self._writing.manifest
        # not the clock of a task's machine: retention must know which segment came first
        infos = [each.info._replace(created_us=self._writing.sealer.clock()) for each in staged]
        events = sum(info.rows for info in infos)
        first = infos[0].first_index if infos else place.next_index
        end = max((info.last_index + 1 for info in infos), default=first)
        new = batch.entries(place.number, first, events)
        window = [entry for mine in new for entry in place.producers.get(mine.producer, {}).values()]
        entries = [*sorted(window, key=lambda entry: entry.sequence)[1 - PRODUCER_WINDOW :], *new]
        note(layout, [info.number for info in infos])
        try:
            _name(layout, staged)
            with state.edit_lock:
                sealed = {place.number: max(place.sealed_index, end)}
                change = manifest.apply(Edit(added=infos, sealed=sealed, producers=entries))
                place.next_index = max(place.next_index, end)
                state.change_segments(self._topic, change, infos, (), sealed)
        except BaseException:
            with contextlib.suppress(EsdbError, OSError):  # else the next opening cleans up
                manifest.commit_empty()
                undo(layout, {info.number for info in manifest.load(since=state.change).segments})
            raise
        for entry in new:
            place.keep_producer(entry)
        with contextlib.suppress(OSError):  # else the next opening deletes it: the manifest names the segments
            forget_note(layout)
        with state.view_lock:
            state.arrivals.notify()
        return Added(self._topic.info.name, place.name, len(infos), events, first, end - 1)

    def _anew(self, sources: Sequence[tuple[str, int | None]], target: Target, batch: Batch) -> list[StagedSegment]:
        """Write copies of segments, with record indexes and numbers that are free now, in the order of `sources`.

        sources: paths, each with the first of its record indexes, which have no gaps; None if it has none to preserve.
        """
        index = self._topic.partitions[target.partition[1]].next_index
        staged: list[StagedSegment] = []
        for path, first in sources:
            with esformat.open(path, cache_bytes=0) as segment:
                if segment.num_events:
                    entries = batch.entries(target.partition[0], index, segment.num_events)
                    number = self._writing.sealer.take_number()
                    tables = _renumbered(segment, target, first, index)
                    staged.append(_write(self._folder, target, tables, number, entries, None))
                    index += segment.num_events
        return staged

    def _duplicate(self, place: Partition, known: ProducerEntry) -> Added:
        first, last = known.first_index, known.first_index + known.count - 1
        return Added(self._topic.info.name, place.name, 0, known.count, first, last, duplicate=True)


def _name(layout: Layout, staged: Iterable[StagedSegment]) -> None:
    """Rename the files of segments into place, durably."""
    folders = set()
    for each in staged:
        path = layout.segment(each.info.number)
        make_directory(path.parent)
        Path(each.path).rename(path)
        folders.add(path.parent)
    for folder in folders:
        sync_directory(folder)


def _sources(staged: Iterable[StagedSegment]) -> list[tuple[str, int | None]]:
    return [(each.path, each.info.first_index) for each in staged]


def _renumbered(segment: esformat.Segment, target: Target, first: int | None, index: int) -> Iterator[pa.Table]:
    """A segment's events in the schema of a target, with record indexes from `index` on.

    first: the first of their present record indexes, whose order is kept; None: number them in the order of the file.
    """
    given = _without_index(segment.schema)
    adapter = BatchAdapter(given, target.schema.schema)
    for events in segment.scan(columns=given.names if first is None else segment.schema.names).batches():
        if len(events):
            if first is None:
                indexes = np.arange(index, index + len(events))
                index += len(events)
            else:
                indexes = numbers(events, RECORD_INDEX) + (index - first)
            yield _numbered(adapter.apply(events.select(given.names)), indexes)


def _without_index(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != RECORD_INDEX])
