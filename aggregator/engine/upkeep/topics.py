"""Creates, renames and deletes topics. A topic is deleted with all its events, in this order:

1. it refuses appends; those on their way into the log have been logged, or have failed;
2. the manifest retires its segments and deletes everything else but numbers, in one transaction: now it is deleted;
3. it becomes invisible;
4. its files are deleted: quarantined batches, segments that no scan reads, log files that contain nothing else;
5. the manifest backup is updated, and the catalog's store, if it has one.

A crash before step 2 changes nothing. One after step 2 leaves files, which are deleted when the catalog is opened. The
manifest keeps the numbers of the topic and its partitions, so that an old log, segment or position with these numbers
is never mistaken for another topic's.
"""

from __future__ import annotations

import contextlib
import logging
from contextlib import ExitStack
from dataclasses import replace
from threading import Lock

from aggregator.base.interrupts import uninterrupted
from aggregator.engine.ingest.quota import Quota
from aggregator.engine.seal.sealer import Sealer
from aggregator.engine.upkeep.removal import Removal
from aggregator.errors import StoreUnreachableError
from aggregator.model import TopicInfo
from aggregator.storage.parts import Storage
from aggregator.storage.state.state import Topic
from esformat import EsdbError
from esformat.parts import EventSchema

logger = logging.getLogger("aggregator")


class Topics:
    """Creates, renames and deletes topics. Thread-safe."""

    def __init__(self, storage: Storage, sealer: Sealer, removal: Removal, quota: Quota) -> None:
        self._state, self._manifest, self._log, self._sealer = storage.state, storage.manifest, storage.log, sealer
        self._removal, self._budget, self._quota = removal, storage.budget, quota
        self._making = Lock()

    def make(self, wanted: TopicInfo, schema: EventSchema | None) -> Topic:
        """Create a topic, with its first schema if there is one. Raises TopicExistsError, ManifestFailedError."""
        topic = uninterrupted(lambda: self._make(wanted, schema))
        self._manifest.write_backup()
        return topic

    def _make(self, wanted: TopicInfo, schema: EventSchema | None) -> Topic:
        with self._making:  # until it is visible: whoever hears that it exists can find it
            info, stored = self._manifest.make_topic(wanted, schema)
            with self._state.view_lock:
                topic = self._state.add_topic(info)
                if stored is not None:
                    self._state.add_schema(stored)
        return topic

    def rename(self, topic: Topic, name: str) -> None:
        """Rename a topic. Raises TopicNotFoundError, TopicExistsError, ManifestFailedError."""
        uninterrupted(lambda: self._rename(topic, name))
        self._manifest.write_backup()

    def _rename(self, topic: Topic, name: str) -> None:
        with self._state.edit_lock:
            topic.check_there()
            change = self._manifest.rename_topics({topic.info.number: name})
            with self._state.view_lock:
                self._state.change = max(self._state.change, change)
                self._state.add_topic(replace(topic.info, name=name))

    def delete(self, topic: Topic) -> None:
        """Delete a topic. Raises TopicNotFoundError, LogFailedError, ManifestFailedError; then nothing changed. Raises
        StoreUnreachableError if it is deleted, but the catalog's store does not know after a while.
        """
        with self._state.edit_lock:
            topic.check_there()
            topic.leaving = True
        try:
            self._log.wait()
            with ExitStack() as sealing:
                for _, partition in sorted(topic.partitions.items()):
                    sealing.enter_context(partition.seal_lock)
                uninterrupted(lambda: self._take_out(topic))
        finally:
            topic.leaving = topic.info.deleted
        self._remove_files()
        self.check_stored()

    def check_stored(self) -> None:
        """Wait until the catalog's store knows which topics were deleted. Raises StoreUnreachableError."""
        if self._manifest.write_backup() is False:
            raise StoreUnreachableError(
                "the topic is deleted here, but not yet in the catalog's store: a takeover would bring it back",
                hint="delete it again, to wait for the store",
            )

    def _take_out(self, topic: Topic) -> None:
        """Steps 2 and 3."""
        sealed = {partition.number: partition.next_index for partition in topic.partitions.values()}
        with self._sealer.quarantine.lock, self._state.edit_lock:
            try:
                change = self._manifest.delete_topic(topic.info.number, sealed)
            except BaseException:
                with contextlib.suppress(EsdbError, OSError):
                    self._manifest.commit_empty()
                raise
            for partition in topic.partitions.values():
                self._sealer.forget(partition)
            self._quota.retire(topic, topic.segments.view())
            self._budget.release(self._state.delete_topic(topic, change))

    def _remove_files(self) -> None:
        """Step 4. Upkeep, or the next opening, tries again what fails."""
        for step in (
            self._sealer.quarantine.sweep,
            self._removal.sweep,
            self._log.roll,
            self._sealer.release_log,
            self._manifest.scrub,
        ):
            try:
                step()
            except (OSError, EsdbError) as error:
                logger.warning("files of a deleted topic still exist: %s", error)
