"""Unsealed events become a segment, in one order:

1. the segment file is written, synced and gets its name, and its directory is synced (`esformat` does that, or
   `sealing_process` where a process of its own writes);
2. the manifest gets its row, with the partition's sealed index and its producers, in one transaction;
3. readers see the segment in place of the unsealed events;
4. log files whose events are all sealed are deleted, oldest first.

A crash before 2 leaves a file that the manifest does not name: it is swept when the catalog is opened, and its events
are in the log. A crash after 2 leaves log files with sealed events: they are passed over when the log is read back, and
then deleted. What cannot be deleted is tried again by `maintenance`, whether or not there is more to seal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import pyarrow as pa

from aggregator.budget import Budget
from aggregator.files import Layout
from aggregator.footprint import UNSEALED_SHARE, Footprint
from aggregator.log import Log
from aggregator.manifest import Edit, Manifest
from aggregator.model import ProducerEntry, SchemaInfo, SegmentInfo, newest_notes
from aggregator.policy import Limits
from aggregator.schema_change import newest_of_families
from aggregator.segment_file import arrow_schema, write_segment
from aggregator.state import CatalogState, Partition, Topic
from aggregator.tombstones import hidden_in, without_hidden
from aggregator.uninterrupted import uninterrupted
from aggregator.unsealed import Piece, Unsealed

SEALED_BYTES = 96 << 20
"""About so many bytes are sealed at once: sealing takes about three times as much memory."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is needed to decide whether a partition is sealed now."""

    partition: int
    rows: int
    size_bytes: int
    oldest_us: int
    max_rows: int
    max_bytes: int
    max_age_us: int
    pins_log: bool = False


def roll_bytes(topic: Topic) -> int:
    """Bytes at which a partition is sealed: fewer than its policy says where the topic keeps few."""
    roll, kept = topic.info.roll.bytes, topic.info.retention.max_bytes
    return roll if kept is None else min(roll, max(1, kept // (UNSEALED_SHARE * len(topic.partitions))))


def choose_to_seal(
    loads: Sequence[Load], limits: Limits, log_bytes: int, now_us: int, wanted_bytes: int = 0
) -> list[int]:
    """Partitions to seal now: those past a roll limit, and, where a budget is half used, those that would free most.

    wanted_bytes: what a batch takes for which there was no memory.
    """
    chosen = [
        load.partition
        for load in loads
        if load.rows >= load.max_rows
        or load.size_bytes >= load.max_bytes
        or not 0 <= now_us - load.oldest_us < load.max_age_us  # a clock that went back seals too early, never never
    ]
    left = [load for load in loads if load.partition not in set(chosen)]
    held = sum(load.size_bytes for load in left)
    most = min(limits.memory_bytes // 2, limits.memory_bytes - wanted_bytes)
    for load in sorted(left, key=lambda load: load.size_bytes, reverse=True):
        if held > most or (load.pins_log and log_bytes > limits.log_bytes // 2):
            chosen.append(load.partition)
            held -= load.size_bytes
    return chosen


def next_due_us(loads: Iterable[Load]) -> int | None:
    """When the first of them comes of age; None without any."""
    return min((load.oldest_us + load.max_age_us for load in loads), default=None)


def family_tables(pieces: Sequence[Piece], schemas: Sequence[SchemaInfo]) -> list[tuple[SchemaInfo, pa.Table]]:
    """Pieces as one table for each family of schemas, in the newest schema of it, with record indexes."""
    newest = {info.family: info for info in newest_of_families(schemas)}
    tables = []
    for family in dict.fromkeys(piece.schema.family for piece in pieces):
        schema = newest[family]
        mine = [piece for piece in pieces if piece.schema.family == family]
        target = schema.schema.arrow
        table = pa.Table.from_batches([conform(piece.batch, target) for piece in mine])
        indexes = np.concatenate([piece.record_indexes() for piece in mine])
        columns = [*table.columns, pa.chunked_array([pa.array(indexes)])]
        tables.append((schema, pa.Table.from_arrays(columns, schema=arrow_schema(schema.schema))))
    return tables


def conform(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """A batch of an older schema of a family in a newer one: columns that were added since are null."""
    if batch.schema.equals(target):
        return batch
    known = set(batch.schema.names)
    arrays = [batch.column(field.name) if field.name in known else pa.nulls(len(batch), field.type) for field in target]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


class Sealer:
    """Seals partitions. Safe to share between threads; one partition is sealed by one thread at a time."""

    def __init__(
        self,
        state: CatalogState,
        manifest: Manifest,
        log: Log,
        layout: Layout,
        budget: Budget,
        footprint: Footprint,
        *,
        next_segment: int,
        clock: Callable[[], int],
        write: Callable[..., SegmentInfo] | None = None,
    ) -> None:
        """write: what writes a segment, with the parameters of `write_segment`; None: that."""
        self._state, self._manifest, self._log = state, manifest, log
        self._layout, self._budget, self._footprint, self._clock = layout, budget, footprint, clock
        self._next_segment, self._write_segment = next_segment, write
        self._lock = Lock()
        self._releasing = Lock()
        self.seals = 0
        """How often a partition was sealed since the catalog was opened."""
        self._written: dict[int, list[SegmentInfo]] = {}  # files whose manifest rows could not be written yet

    def take_number(self) -> int:
        """A number for a new segment."""
        with self._lock:
            number = self._next_segment
            self._next_segment += 1
            return number

    def take_numbers(self, numbers: Iterable[int]) -> bool:
        """Take these numbers for new segments. False, and nothing changes, where one of them was given before."""
        wanted = sorted(numbers)
        with self._lock:
            if wanted and wanted[0] < self._next_segment:
                return False
            self._next_segment = max(self._next_segment, wanted[-1] + 1 if wanted else 0)
            return True

    def loads(self) -> list[Load]:
        """What each partition holds that is not being sealed."""
        pinning = set(self._log.pinning(self._state.sealed()))
        with self._state.view_lock:
            found = []
            for number, (topic, partition) in self._state.partitions.items():
                oldest = partition.unsealed.oldest_us
                if oldest is not None and partition.sealing is None:
                    roll = topic.info.roll
                    found.append(
                        Load(
                            number, partition.unsealed.rows, partition.unsealed.size_bytes, oldest, roll.rows,
                            roll_bytes(topic), roll.age_us, number in pinning,
                        )
                    )  # fmt: skip
            return found

    def seal(self, topic: Topic, partition: Partition, *, threads: int | None = None) -> list[SegmentInfo]:
        """Write what a partition holds to segments, one after the other; gives none where there is nothing.

        Raises OSError, AggregatorError, esformat.EsdbError; then the events stay in memory and in the log, and the
        next call tries again.
        """
        written: list[SegmentInfo] = []
        with partition.seal_lock:
            with self._state.view_lock:
                end = partition.visible_end
            while partition.sealed_index < end:
                frozen = partition.sealing or self._state.freeze(partition, SEALED_BYTES)
                if frozen is None:
                    break
                written += self._seal(topic, partition, frozen, threads)
        return written

    def _seal(self, topic: Topic, partition: Partition, frozen: Unsealed, threads: int | None) -> list[SegmentInfo]:
        end = frozen.end_index
        producers = _producers_to_keep(partition, end)
        written = self._written.get(partition.number)
        if written is None:
            written = self._write(topic, partition, frozen.pieces, producers, threads)
            self._written[partition.number] = written

        def take_in() -> None:
            with self._state.edit_lock:
                change = self._manifest.apply(Edit(added=written, sealed={partition.number: end}, producers=producers))
                del self._written[partition.number]
                self._state.change_segments(topic, change, written, (), {partition.number: end})
                self.seals += 1
            self._budget.give_back(frozen.size_bytes, sealed=True)
            self._footprint.let_go(topic, partition, frozen.size_bytes)

        uninterrupted(take_in)
        self.release_log()
        return written

    def _write(
        self,
        topic: Topic,
        partition: Partition,
        pieces: Sequence[Piece],
        producers: Sequence[ProducerEntry],
        threads: int | None,
    ) -> list[SegmentInfo]:
        written: list[SegmentInfo] = []
        numbers: list[int] = []
        hidden = hidden_in(topic.tombstones, partition.number)
        try:
            for schema, whole in family_tables(pieces, tuple(topic.schemas.values())):
                table = without_hidden(whole, hidden)
                if not len(table):  # all of it was erased before it was sealed
                    continue
                number = self.take_number()
                numbers.append(number)
                written.append(
                    (self._write_segment or write_segment)(
                        self._layout.segment(number), [table], number=number, topic=topic.info,
                        partition=(partition.number, partition.name), schema=schema, producers=producers,
                        now_us=self._clock(), threads=threads,
                    )
                )  # fmt: skip
        except BaseException:
            for number in numbers:
                with contextlib.suppress(OSError):
                    self._layout.segment(number).unlink(missing_ok=True)
            raise
        return written

    def release_log(self) -> None:
        """Delete log files that hold sealed events only. Raises OSError; then they are left for the next call."""
        with self._releasing:
            sealed = self._state.sealed()
            if not self._log.releasable(sealed):
                return
            self._manifest.keep_facts()
            self._log.release(sealed)


def _producers_to_keep(partition: Partition, end: int) -> list[ProducerEntry]:
    """Of producers with batches that are being sealed, all that is remembered of them below record index `end`."""
    kept: list[ProducerEntry] = []
    for window in list(partition.producers.values()):
        entries = [entry for entry in list(window.values()) if entry.first_index < end]
        if any(entry.first_index >= partition.sealed_index for entry in entries):
            kept += newest_notes(entries)
    return kept
