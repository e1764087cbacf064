"""Rows of the manifest that go into its backup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aggregator.model import PartitionInfo, PipeInfo, SchemaInfo, Tombstone, TopicInfo
from aggregator.storage.manifest import rows
from aggregator.storage.manifest.facts import Settings
from aggregator.storage.manifest.manifest import IDENTITY, UNSYNCED, Manifest
from aggregator.storage.manifest.pipe_rows import PipeRows
from aggregator.storage.manifest.stored_rows import StoredRows


class FactRows:
    """Reads facts. Safe to share between threads. Raises what the manifest's own methods raise."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._kinds: dict[str, Callable[[], list[Any]]] = {
            "catalog": self._settings,
            "topic": self._topics,
            "schema": self._schemas,
            "partition": self._partitions,
            "tombstone": self._tombstones,
            "pipe": self._pipes,
        }

    def all(self, kind: str) -> list[Any]:
        """Every one of a kind."""
        return self._kinds[kind]()

    def _settings(self) -> list[Settings]:
        unsynced = self._manifest.get(UNSYNCED) == "1"
        return [Settings(self._manifest.get(IDENTITY) or "", unsynced, StoredRows(self._manifest).settings())]

    def _topics(self) -> list[TopicInfo]:
        with self._manifest.reading() as db:
            return rows.topics(db)

    def _schemas(self) -> list[SchemaInfo]:
        """The newest of each family: it has all columns of the others, and what events have those tells of them."""
        with self._manifest.reading() as db:
            newest = {info.family: info for info in rows.schemas(db)}  # which come in the order of their numbers
        return sorted(newest.values(), key=lambda info: info.number)

    def _partitions(self) -> list[PartitionInfo]:
        with self._manifest.reading() as db:
            return rows.partitions(db)

    def _tombstones(self) -> list[Tombstone]:
        with self._manifest.reading() as db:
            return rows.tombstones(db)

    def _pipes(self) -> list[PipeInfo]:
        """With the progress that the newest sealed batch of each tells of: the segment with that note may go."""
        pipes = PipeRows(self._manifest).all()
        if not pipes:
            return []
        with self._manifest.reading() as db:
            notes = db.execute("SELECT producer, sequence, note FROM producers WHERE note != '' ORDER BY sequence")
            newest = {producer: (sequence, note) for producer, sequence, note in notes}
        return [_with_note(pipe, *newest.get(pipe.identity, (0, ""))) for pipe in pipes]


def _with_note(pipe: PipeInfo, sequence: int, note: str) -> PipeInfo:
    return replace(pipe, sequence=sequence, progress=note) if note and sequence > pipe.sequence else pipe
