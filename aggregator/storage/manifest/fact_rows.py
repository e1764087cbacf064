"""Rows of the manifest that go into its backup."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from aggregator.model import PartitionInfo, PipeInfo
from aggregator.storage.manifest import rows
from aggregator.storage.manifest.facts import Settings, line_of
from aggregator.storage.manifest.manifest import IDENTITY, UNSYNCED, Manifest
from aggregator.storage.manifest.pipe_rows import PipeRows
from aggregator.storage.manifest.stored_rows import StoredRows

Lines = dict[Hashable, bytes]
"""The line of each fact of one kind, in the file's order. A key identifies the fact and its current value."""
_Keyed = tuple[Iterable[Hashable], Callable[[Any], Any]]
"""The keys of facts, and a function that creates a fact's value from its key."""


class FactRows:
    """Reads facts. Thread-safe. Raises the errors of the manifest's own methods."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._tables: dict[str, Callable[[sqlite3.Connection], _Keyed]] = {
            "topic": lambda db: (rows.topic_rows(db), rows.topic_of),
            "schema": lambda db: (rows.newest_schema_rows(db), partial(rows.schema_of, db)),
            "partition": lambda db: (rows.partition_rows(db), lambda row: PartitionInfo(*row)),
            "tombstone": lambda db: (rows.tombstones(db), lambda stone: stone),
        }

    def lines(self, kind: str, known: Mapping[Hashable, bytes]) -> Lines:
        """The lines of every fact of a kind. known: earlier lines, which are reused.

        For schemas, only the newest of each family: it has all columns of the others, which segments and log describe.
        """
        if kind == "catalog":
            return {0: line_of(kind, self._settings())}
        if kind == "pipe":
            return {pipe.name: line_of(kind, pipe) for pipe in self._pipes()}
        with self._manifest.reading() as db:
            keys, value_of = self._tables[kind](db)
            return {key: known.get(key) or line_of(kind, value_of(key)) for key in keys}

    def _settings(self) -> Settings:
        unsynced = self._manifest.get(UNSYNCED) == "1"
        return Settings(self._manifest.get(IDENTITY) or "", unsynced, StoredRows(self._manifest).settings())

    def _pipes(self) -> list[PipeInfo]:
        """The pipes, with the progress of each from its newest sealed batch, because that segment may be deleted."""
        pipes = PipeRows(self._manifest).all()
        if not pipes:
            return []
        with self._manifest.reading() as db:
            notes = db.execute("SELECT producer, sequence, note FROM producers WHERE note != '' ORDER BY sequence")
            newest = {producer: (sequence, note) for producer, sequence, note in notes}
        return [_with_note(pipe, *newest.get(pipe.identity, (0, ""))) for pipe in pipes]


def _with_note(pipe: PipeInfo, sequence: int, note: str) -> PipeInfo:
    return replace(pipe, sequence=sequence, progress=note) if note and sequence > pipe.sequence else pipe
