"""Seals unsealed events into a segment, in this order:

1. the segment file is written, synced and renamed into place, and its directory is synced (by `esformat`, or by
   `seal.process` if a separate process writes);
2. the manifest gets its row, with the partition's sealed index and its producers, in one transaction;
3. readers see the segment instead of the unsealed events;
4. log files whose events are all sealed are deleted, oldest first.

A crash before step 2 leaves a file that the manifest does not name: the next opening deletes it, and its events are in
the log. A crash after step 2 leaves log files with sealed events: the replay skips these, and the files are then
deleted. The scheduler retries failed deletions, even if there is nothing more to seal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from aggregator.base.interrupts import uninterrupted
from aggregator.engine.seal.choice import Load, sealed_at_once
from aggregator.engine.seal.isolation import Isolation
from aggregator.engine.seal.journal import SealJournal
from aggregator.engine.seal.poison import Quarantine
from aggregator.engine.seal.process import PROCESSES_SUPPORTED, SealingProcess
from aggregator.engine.seal.table import families, plain_batch, sealing_table
from aggregator.errors import LogFailedError, ManifestFailedError
from aggregator.model import ProducerEntry, QuarantinedBatch, SchemaInfo, SegmentInfo, TopicInfo, newest_notes
from aggregator.storage.manifest import Edit
from aggregator.storage.memtable.batch import MemtableBatch
from aggregator.storage.memtable.memtable import Memtable
from aggregator.storage.parts import Storage
from aggregator.storage.segments.file import TopicTemplates, write_segment
from aggregator.storage.state.state import Partition, Topic
from aggregator.storage.state.tombstones import Hidden, hidden_in
from esformat import ClosedError
from esformat.parts import make_schema

SYSTEM_ERRORS = (OSError, ClosedError, ManifestFailedError, LogFailedError)
"""Errors of the system, not of the events: sealing is retried indefinitely."""
MAX_CRASHES = 2
"""How many times in a row this process may end while it seals the same events; then another process seals them."""

MOST_SHRINKS = 4.0
"""Maximum compression ratio that is assumed, even if segments are smaller: the next events may compress less."""

_Write = Callable[..., SegmentInfo | None]


@dataclass(frozen=True, slots=True)
class _Written:
    """Files whose manifest rows are not written yet."""

    segments: list[SegmentInfo]
    quarantined: list[QuarantinedBatch] = field(default_factory=list)


class Sealer:
    """Seals partitions. Thread-safe; each partition is sealed by one thread at a time."""

    def __init__(
        self,
        storage: Storage,
        quarantine: Quarantine,
        *,
        kept_bytes: int | None,
        next_segment: int,
        clock: Callable[[], int],
        write: _Write | None = None,
    ) -> None:
        """kept_bytes: maximum size of the catalog; None: unlimited. clock: creation times of segments, never the same
        twice. write: writes a segment, like `SealingProcess.write_segment`; None: write it in this process.
        """
        self._state, self._manifest, self._log = storage.state, storage.manifest, storage.log
        self._layout, self._budget, self._kept_bytes, self.clock = storage.layout, storage.budget, kept_bytes, clock
        self._sealed_bytes = storage.tuning.sealed_bytes
        self._next_segment, self._write_segment = next_segment, write
        self._write_here = partial(_write_here, TopicTemplates())
        self._lock = Lock()
        self._releasing = Lock()
        self.seals = 0
        """Number of seals since the catalog was opened."""
        self.quarantine = quarantine
        """Receives events that cannot be sealed."""
        self.stopping = False
        """Set to abort work that takes many attempts."""
        self._journal = SealJournal(storage.layout)
        self._written: dict[int, _Written] = {}  # by partition
        self._shrinks: dict[int, float] = {}  # by topic; see `sealed_at_once`
        self._rolls: dict[int, tuple[TopicInfo, int, float, int]] = {}  # by topic: inputs and result of `roll_bytes`
        self._ended: dict[int, int] = {}  # partition -> end of the events on which the writing process last ended

    def take_number(self) -> int:
        """A number for a new segment. Raises CatalogLockedError if another writer may assign the same."""
        self._manifest.check_ownership()
        with self._lock:
            number = self._next_segment
            self._next_segment += 1
            return number

    def take_numbers(self, numbers: Iterable[int]) -> bool:
        """Take these numbers for new segments. Returns False and changes nothing if one of them was assigned before.

        Raises as `take_number`.
        """
        self._manifest.check_ownership()
        wanted = sorted(numbers)
        with self._lock:
            if wanted and wanted[0] < self._next_segment:
                return False
            self._next_segment = max(self._next_segment, wanted[-1] + 1 if wanted else 0)
            return True

    def loads(self) -> list[Load]:
        """The load of each partition that is not being sealed."""
        pinning = set(self._log.pinning(self._state.sealed()))
        with self._state.view_lock:
            found = []
            for number, (topic, partition) in self._state.partitions.items():
                oldest = partition.memtable.oldest_us
                if oldest is not None and partition.sealing is None:
                    roll = topic.info.roll
                    found.append(
                        Load(
                            number,
                            partition.memtable.rows,
                            partition.memtable.size_bytes,
                            oldest,
                            roll.rows,
                            self.roll_bytes(topic),
                            roll.age_us,
                            number in pinning,
                        )
                    )
            return found

    def roll_bytes(self, topic: Topic) -> int:
        """The size at which a partition of a topic is sealed, in bytes."""
        shrinks = self._shrinks.get(topic.info.number, 1.0)
        known = self._rolls.get(topic.info.number)
        if known is None or (known[0], known[1], known[2]) != (topic.info, len(topic.partitions), shrinks):
            most = sealed_at_once(
                topic.info.roll.bytes, topic.info.retention, self._kept_bytes, len(topic.partitions), shrinks
            )
            known = self._rolls[topic.info.number] = topic.info, len(topic.partitions), shrinks, most
        return known[3]

    def _note_size(self, topic: Topic, held_bytes: int, stored_bytes: int) -> None:
        """Learn from a seal how much smaller segments are than their events in memory."""
        if stored_bytes:
            shrinks = min(max(1.0, held_bytes / stored_bytes), MOST_SHRINKS)
            before = self._shrinks.get(topic.info.number, 1.0)
            self._shrinks[topic.info.number] = shrinks if shrinks < before else (before + shrinks) / 2

    def seal(
        self,
        topic: Topic,
        partition: Partition,
        *,
        threads: int | None = None,
        sealed: Callable[[], None] = lambda: None,
        begun_only: bool = False,
    ) -> list[SegmentInfo]:
        """Write the unsealed events of a partition to segments, one after the other. Return the segments.

        sealed: called after each. begun_only: only finish a seal that failed, and leave later events unsealed.
        Events that cannot be sealed go to quarantine. Raises OSError, AggregatorError, esformat.EsdbError if the system
        is at fault; then the events stay in memory and in the log, and the next call tries again.
        """
        written: list[SegmentInfo] = []
        with partition.seal_lock:
            with self._state.view_lock:
                end = partition.visible_end
            while partition.sealed_index < end:
                shrinks = self._shrinks.get(topic.info.number, 1.0)
                few = sealed_at_once(self._sealed_bytes, topic.info.retention, self._kept_bytes, 1, shrinks)
                frozen = partition.sealing or (None if begun_only else self._state.freeze(partition, few))
                if frozen is None:
                    break
                written += self._seal(topic, partition, frozen, threads)
                sealed()
        return written

    def _seal(self, topic: Topic, partition: Partition, frozen: Memtable, threads: int | None) -> list[SegmentInfo]:
        end = self._end_of(partition, frozen)
        producers = _producers_to_keep(partition, end)
        written = self._written.get(partition.number)
        if written is None:
            with self._journal.sealing(partition.number, frozen.batches[0].first_index):
                written = self._write_or_quarantine(topic, partition, frozen, producers, threads)
            self._written[partition.number] = written

        def commit() -> None:
            with self._state.edit_lock:
                change = self._manifest.apply(
                    Edit(
                        added=written.segments,
                        sealed={partition.number: end},
                        producers=producers,
                        quarantined=written.quarantined,
                    )
                )
                del self._written[partition.number]
                self._state.change_segments(topic, change, written.segments, (), {partition.number: end})
                self.seals += 1
            self.quarantine.keep(written.quarantined)
            self._budget.release(frozen.size_bytes, sealed=True)

        uninterrupted(commit)
        self._note_size(topic, frozen.size_bytes, sum(info.size_bytes for info in written.segments))
        self.release_log()
        return written.segments

    def _end_of(self, partition: Partition, frozen: Memtable) -> int:
        """The record index up to which sealing these events reaches: unreadable events that follow are skipped."""
        with self._state.view_lock:
            following = partition.memtable.batches
            if not following or following[0].first_index >= partition.unreadable_end:
                return max(frozen.end_index, partition.unreadable_end)
        return frozen.end_index

    def pass_unreadable(self) -> None:
        """Release log files that contain only unreadable events, which were reported, with a copy of the files."""
        for topic, partition in list(self._state.partitions.values()):
            with partition.seal_lock, self._state.edit_lock:
                end = partition.unreadable_end
                if partition.visible_end == partition.sealed_index < end:
                    change = self._manifest.apply(Edit(sealed={partition.number: end}))
                    self._state.change_segments(topic, change, (), (), {partition.number: end})

    def _write_or_quarantine(
        self,
        topic: Topic,
        partition: Partition,
        frozen: Memtable,
        producers: Sequence[ProducerEntry],
        threads: int | None,
    ) -> _Written:
        """Write events to segments, and those that cannot be sealed to quarantined batches."""

        def write(
            batches: Sequence[MemtableBatch], schemas: Iterable[SchemaInfo], by: _Write | None = self._write_segment
        ) -> list[SegmentInfo]:
            return self._write(topic, partition, batches, schemas, producers, threads, by=by or self._write_here)

        number = partition.number
        if PROCESSES_SUPPORTED and self._journal.crashes(number, frozen.batches[0].first_index) >= MAX_CRASHES:
            with closing(SealingProcess(self._layout)) as process:  # which may end any number of times
                return self._quarantine_poison(
                    topic, partition, frozen, producers, partial(write, by=process.write_segment)
                )
        try:
            return _Written(write(frozen.batches, tuple(topic.schemas.values())))
        except SYSTEM_ERRORS:
            raise
        except Exception as error:
            if getattr(error, "ended", False) and self._ended.get(number) != frozen.end_index:
                self._ended[number] = frozen.end_index  # only a second time are the events blamed
                raise
            self._check_system(topic, partition, error)
        return self._quarantine_poison(topic, partition, frozen, producers, write)

    def _quarantine_poison(
        self,
        topic: Topic,
        partition: Partition,
        frozen: Memtable,
        producers: Sequence[ProducerEntry],
        write: Callable[[Sequence[MemtableBatch], Iterable[SchemaInfo]], list[SegmentInfo]],
    ) -> _Written:
        """Find the events that cannot be sealed; write them to quarantine, and the rest to segments."""

        def seal(batches: Sequence[MemtableBatch]) -> list[SegmentInfo]:
            return write(batches, [batch.schema for batch in batches])  # not newer schemas, which may be at fault

        def attempt(batches: Sequence[MemtableBatch]) -> Exception | None:
            if self.stopping:
                raise ClosedError("the catalog is being closed", path=str(self._layout.root))
            try:
                self._discard(seal(batches))
            except SYSTEM_ERRORS:
                raise
            except Exception as error:  # noqa: BLE001  stored with the events as the reason
                return error.with_traceback(None)
            return None

        isolation = Isolation(attempt, lambda error: self._check_system(topic, partition, error), plain_batch)
        isolation.run(frozen.batches)
        written = _Written([])
        try:
            try:
                written.segments.extend(seal([batch for group in isolation.sealable for batch in group]))
            except SYSTEM_ERRORS:
                raise
            except Exception:  # noqa: BLE001  each group was tried, but not all together
                for group in isolation.sealable:
                    written.segments.extend(seal(group))
            hidden, now = hidden_in(topic.tombstones, partition.number), self.clock()
            for poison in isolation.poison:
                quarantined = self.quarantine.write(topic, partition, poison, hidden, producers, now)
                written.quarantined.extend([] if quarantined is None else [quarantined])
        except BaseException:
            self._discard(written.segments)
            self.quarantine.discard(written.quarantined)
            raise
        self._ended.pop(partition.number, None)
        return written

    def _check_system(self, topic: Topic, partition: Partition, error: Exception) -> None:
        """Raise the error if not even a plain event can be sealed: then the events are not at fault."""
        info = SchemaInfo(0, topic.info.number, 0, make_schema(pa.schema([]), (), binary_keys=topic.binary_keys))
        plain = plain_batch(info)
        assert plain is not None
        by = self._write_segment or self._write_here
        try:
            self._discard(self._write(topic, partition, [plain], [info], (), 1, by=by))
        except Exception:  # noqa: BLE001  the first error is raised
            raise error from None

    def _write(
        self,
        topic: Topic,
        partition: Partition,
        batches: Sequence[MemtableBatch],
        schemas: Iterable[SchemaInfo],
        producers: Sequence[ProducerEntry],
        threads: int | None,
        *,
        by: _Write,
    ) -> list[SegmentInfo]:
        written: list[SegmentInfo] = []
        numbers: list[int] = []
        hidden = hidden_in(topic.tombstones, partition.number)
        try:
            for schema, record_batches in families(batches, schemas):
                number = self.take_number()
                numbers.append(number)
                info = by(
                    self._layout.segment(number), record_batches, number=number, topic=topic.info,
                    partition=(partition.number, partition.name), schema=schema, producers=producers,
                    now_us=self.clock(), threads=threads, hidden=hidden,
                )  # fmt: skip
                written.extend([] if info is None else [info])  # None: all was erased before sealing
        except BaseException:
            for number in numbers:
                with contextlib.suppress(OSError):
                    self._layout.segment(number).unlink(missing_ok=True)
            raise
        return written

    def _discard(self, written: Iterable[SegmentInfo]) -> None:
        """Delete segment files that are not needed."""
        for info in written:
            with contextlib.suppress(OSError):  # the next opening deletes it
                self._layout.segment(info.number).unlink(missing_ok=True)

    def forget(self, partition: Partition) -> None:
        """Delete files that were written for a partition and have no rows. Called under its seal lock."""
        written = self._written.pop(partition.number, None)
        if written is not None:
            self._discard(written.segments)
            self.quarantine.discard(written.quarantined)

    def release_log(self) -> None:
        """Delete log files that contain only sealed events. Raises OSError; then the next call tries again."""
        with self._releasing:
            sealed = self._state.sealed()
            if not self._log.releasable(sealed):
                return
            self._manifest.write_backup()
            self._log.release(sealed)


def _write_here(
    known: TopicTemplates,
    path: Path,
    batches: Sequence[pa.RecordBatch],
    *,
    topic: TopicInfo,
    schema: SchemaInfo,
    hidden: Hidden,
    **facts: Any,
) -> SegmentInfo | None:
    """Write a segment in this process. known: templates of earlier segments."""
    table = sealing_table(batches, schema.schema, hidden)
    if not len(table):
        return None
    templates = known.of(topic, schema, table.nbytes)
    return write_segment(path, [table], topic=topic, schema=schema, templates=templates, **facts)


def _producers_to_keep(partition: Partition, end: int) -> list[ProducerEntry]:
    """All remembered batches below record index `end`, of the producers that have batches being sealed."""
    kept: list[ProducerEntry] = []
    for window in list(partition.producers.values()):
        entries = [entry for entry in list(window.values()) if entry.first_index < end]
        if any(entry.first_index >= partition.sealed_index for entry in entries):
            kept += newest_notes(entries)
    return kept
