"""The quarantine for events that cannot be sealed: adds batches, removes erased events from them, and deletes them.

A batch is added in this order: the file is written and synced; the manifest gets its row, in the transaction in which
the partition's sealed index passes it; then the log releases the events. It is deleted in reverse: the row, then the
file. A crash leaves a file without a row, and `check` finds out whether its events are anywhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock

import pyarrow as pa

from aggregator.engine.seal.isolation import Poison
from aggregator.engine.seal.quarantine_file import (
    batch_files,
    batch_path,
    describe_batch,
    file_name,
    hides,
    read_batches,
    read_facts,
    without_hidden,
    write_batch,
)
from aggregator.engine.seal.table import with_indexes
from aggregator.errors import CorruptLogError
from aggregator.model import Cut, Problem, ProducerEntry, QuarantinedBatch
from aggregator.storage.files.layout import Layout
from aggregator.storage.manifest import Edit, Manifest
from aggregator.storage.state.state import CatalogState, Partition, Topic
from aggregator.storage.state.tombstones import Hidden
from esformat.parts import sync_directory

logger = logging.getLogger("aggregator")

REASON_CHARACTERS = 300
"""Maximum length of the error that is stored with a batch."""
SAID_EVERY_US = 10_000_000
"""Minimum time between log messages about new batches, in µs."""


class Quarantine:
    """The quarantined batches of a catalog that is open for writing. Thread-safe."""

    def __init__(self, layout: Layout, state: CatalogState, manifest: Manifest, clock: Callable[[], int]) -> None:
        self._layout, self._state, self._manifest, self._clock = layout, state, manifest, clock
        self.lock = RLock()
        """Held while a batch changes or is deleted, and while events are hidden, so that no erased event returns."""
        self._next = 1 + max([*batch_files(layout), *(batch.number for batch in manifest.quarantined())], default=0)
        self._spared: set[int] = set()  # numbers of files to keep without a row: being written, or unreadable
        self._said_us = 0
        self._unsaid = 0

    def batches(self, topic: Topic | None = None) -> list[QuarantinedBatch]:
        """The batches of a topic, or all."""
        found = self._manifest.quarantined()
        return found if topic is None else [b for b in found if self._state.partitions[b.partition][0] is topic]

    # ------------------------------------------------------------ adding

    def write(
        self,
        topic: Topic,
        partition: Partition,
        poison: Poison,
        hidden: Hidden,
        producers: Sequence[ProducerEntry],
        created_us: int,
    ) -> QuarantinedBatch | None:
        """Write the file of the events that are not hidden; None if there are none. `keep` or `discard` it afterwards.

        If they cannot be separated from hidden events, all are dropped, and a problem is reported. Raises OSError.
        """
        batches = [with_indexes(batch) for batch in poison.batches]
        first, last = poison.batches[0], poison.batches[-1]
        try:
            left = without_hidden(batches, hidden)
        except CorruptLogError as error:
            rows = sum(batch.rows for batch in poison.batches)
            self._report_lost(topic, partition, rows, (first.first_index, last.end_index - 1), error)
            return None
        if not left:
            return None
        mine = [e for e in producers if e.first_index < last.end_index and e.first_index + e.count > first.first_index]
        return self._write(left, topic.definition(partition, first.schema), mine, created_us, _reason(poison.error))

    def _write(
        self,
        batches: Sequence[pa.RecordBatch],
        facts: Mapping[str, object],
        producers: Iterable[ProducerEntry],
        created_us: int,
        reason: str,
    ) -> QuarantinedBatch:
        with self.lock:
            number = self._next
            self._next += 1
            self._spared.add(number)
        return write_batch(
            self._layout, batches, number=number, facts=facts, producers=producers, created_us=created_us, reason=reason
        )

    def keep(self, batches: Iterable[QuarantinedBatch]) -> None:
        """Mark batches as having their rows."""
        found = list(batches)
        with self.lock:
            self._spared.difference_update(batch.number for batch in found)
        for batch in found:
            self._say(batch)

    def discard(self, batches: Iterable[QuarantinedBatch]) -> None:
        """Delete the files of batches that got no rows."""
        with self.lock:
            for batch in batches:
                batch_path(self._layout, batch.number).unlink(missing_ok=True)
                self._spared.discard(batch.number)

    def _say(self, batch: QuarantinedBatch) -> None:
        now = self._clock()
        if abs(now - self._said_us) < SAID_EVERY_US:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} more batches since the last message)" if self._unsaid else ""
        self._said_us, self._unsaid = now, 0
        logger.error("set aside in quarantine: %s%s", describe(batch, self._state), more)

    # ------------------------------------------------------------ removing

    def remove(self, batches: Iterable[QuarantinedBatch]) -> list[QuarantinedBatch]:
        """Delete batches and their files. Return those that still existed. Raises ManifestFailedError, OSError."""
        with self.lock:
            there = {batch.number for batch in self._manifest.quarantined()}
            gone = [batch for batch in batches if batch.number in there]
            if gone:
                with self._state.edit_lock:
                    self._manifest.apply(Edit(unquarantined=[batch.number for batch in gone]))
                self.sweep()
        return gone

    def sweep(self) -> None:
        """Delete the files of batches that have no row any more. Raises OSError."""
        with self.lock:
            known = {batch.number for batch in self._manifest.quarantined()} | self._spared
            gone = [path for number, path in batch_files(self._layout).items() if number not in known]
            for path in gone:
                path.unlink(missing_ok=True)
            if gone:
                sync_directory(self._layout.quarantine)

    def erase(self, topic: Topic, partition: Partition, hidden: Hidden) -> None:
        """Remove the hidden events from the batches of a partition, also from disk.

        A batch that cannot be read, or whose events cannot be separated, is dropped whole, and a problem is reported.
        Raises OSError, ManifestFailedError.
        """
        with self.lock:
            for batch in self.batches(topic):
                if batch.partition == partition.number and any(_reaches(batch, cuts) for cuts in hidden.values()):
                    self._erase(topic, partition, batch, hidden)
            self.sweep()

    def _erase(self, topic: Topic, partition: Partition, batch: QuarantinedBatch, hidden: Hidden) -> None:
        made: list[QuarantinedBatch] = []
        try:
            if not hides(self._layout, batch, hidden):
                return
            left = without_hidden(read_batches(self._layout, batch), hidden)
            facts = read_facts(self._layout, batch.number)
        except (CorruptLogError, pa.ArrowException, FileNotFoundError) as error:
            span = (batch.first_index, batch.last_index)
            self._report_lost(topic, partition, batch.rows, span, error)
            left, facts = [], {}
        if left:  # keeps only the type of the error, whose message may name what is erased
            producers = [ProducerEntry(**entry) for entry in facts.pop("producers")]
            made.append(self._write(left, facts, producers, batch.created_us, batch.reason.partition(":")[0]))
        with self._state.edit_lock:
            self._manifest.apply(Edit(quarantined=made, unquarantined=[batch.number]))
        self._spared.difference_update(one.number for one in made)

    def _report_lost(
        self, topic: Topic, partition: Partition, rows: int, span: tuple[int, int], error: Exception
    ) -> None:
        message = (
            f"{rows} events of topic {topic.info.name!r}, partition {partition.name!r}, record indexes {span[0]} to "
            f"{span[1]}, could neither be sealed nor distinguished from erased events: {type(error).__name__}"
        )
        logger.error("%s; dropped", message)
        self._manifest.add_problem(Problem("quarantine", message, "dropped", self._clock()))

    # ------------------------------------------------------------ at opening

    def check(self, sealed: Mapping[int, int], in_log: Callable[[QuarantinedBatch], bool]) -> None:
        """Compare the files with the manifest, after the log is replayed.

        sealed: for each partition its sealed index in the manifest as it was opened. in_log: whether the log has a
        batch's events.

        Raises OSError, ManifestFailedError.
        """
        known = {batch.number: batch for batch in self._manifest.quarantined()}
        for number, path in sorted(batch_files(self._layout).items()):
            if number in known:
                continue
            try:
                found = describe_batch(path, number)
            except CorruptLogError as error:
                self._report(path.name, error.message, "left there")
                self._spared.add(number)
                continue
            if self._state.is_deleted(found.facts["topic_number"]):
                continue  # `sweep` deletes it
            if found.batch.partition not in self._state.partitions:
                self._report(path.name, "its topic is not in the manifest, which may be an old copy", "left there")
                self._spared.add(number)
            elif found.batch.last_index >= sealed.get(found.batch.partition, 0) and not in_log(found.batch):
                self._manifest.apply(Edit(quarantined=[found.batch], producers=found.producers))
                self._report(path.name, "it was not in the manifest, which may be an old copy", "taken in")
        for batch in self._manifest.quarantined():
            partition = self._state.partitions[batch.partition][1]
            partition.next_index = max(partition.next_index, batch.last_index + 1)
            if not batch_path(self._layout, batch.number).exists():
                message = f"the file is missing: {describe(batch, self._state)}"
                self._report(batch_path(self._layout, batch.number).name, message, "given up")
                self._manifest.apply(Edit(unquarantined=[batch.number]))
        self.sweep()

    def _report(self, name: str, message: str, action: str) -> None:
        logger.warning("quarantine/%s: %s; %s", name, message, action)
        self._manifest.add_problem(Problem(f"quarantine/{name}", message, action, self._clock()))


def describe(batch: QuarantinedBatch, state: CatalogState) -> str:
    """A sentence that says what a batch is and why it is in quarantine."""
    topic, partition = state.partitions[batch.partition]
    return (
        f"{batch.rows} events of topic {topic.info.name!r}, partition {partition.name!r}, record indexes "
        f"{batch.first_index} to {batch.last_index}, cannot be sealed: {batch.reason}"
    )


def problems_of(batches: Iterable[QuarantinedBatch], state: CatalogState) -> list[Problem]:
    """The problems of batches in quarantine, which last as long as the batches are there."""
    action = "set aside in quarantine: show, export, retry or drop it with `aggregator quarantine`"
    return [
        Problem(f"quarantine/{file_name(batch.number)}", describe(batch, state), action, batch.created_us)
        for batch in batches
    ]


def _reaches(batch: QuarantinedBatch, cuts: Iterable[Cut]) -> bool:
    return any(batch.first_index < cut.end_index and batch.min_timestamp <= cut.time_us for cut in cuts)


def _reason(error: Exception) -> str:
    """The error in one line, shortened for storage."""
    text = " ".join(f"{type(error).__name__}: {getattr(error, 'message', None) or error}".split())
    return text if len(text) <= REASON_CHARACTERS else text[: REASON_CHARACTERS - 1] + "…"
