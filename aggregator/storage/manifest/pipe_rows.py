"""The pipes of a catalog in the manifest, each added and removed in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

from aggregator.errors import InvalidRequestError
from aggregator.model import PipeInfo
from aggregator.storage.manifest.manifest import Manifest

_SELECT = """
    SELECT name, identity, source, condition, backfill, created_us, sequence, progress FROM pipes ORDER BY name
"""
_INSERT = """
    INSERT INTO pipes (name, identity, source, condition, backfill, created_us, sequence, progress)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""


class PipeRows:
    """Reads and writes pipes. Thread-safe. Raises the errors of the manifest's own methods."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def all(self) -> list[PipeInfo]:
        """Every pipe, by name."""
        with self._manifest.reading() as db:
            return [
                PipeInfo(name, identity, source, condition, bool(backfill), *rest)
                for name, identity, source, condition, backfill, *rest in db.execute(_SELECT)
            ]

    def add(self, pipe: PipeInfo) -> None:
        """Add a pipe. Raises InvalidRequestError if its name is taken."""
        with self._manifest.writing("pipe") as db:
            if db.execute("SELECT 1 FROM pipes WHERE name = ?", (pipe.name,)).fetchone():
                raise InvalidRequestError(f"a pipe {pipe.name!r} already exists", hint="DELETE PIPE ends it")
            db.execute(_INSERT, astuple(pipe))

    def remove(self, identity: str) -> None:
        """Delete a pipe, and the producer entries of its batches."""
        with self._manifest.writing("pipe") as db:
            db.execute("DELETE FROM pipes WHERE identity = ?", (identity,))
            db.execute("DELETE FROM producers WHERE producer = ?", (identity,))

    def keep_progress(self, reached: Sequence[tuple[str, int, str]]) -> None:
        """Store the progress of pipes: identity, sequence of the last batch, and the progress after it."""
        rows = [(sequence, progress, identity) for identity, sequence, progress in reached]
        with self._manifest.writing("pipe") as db:
            db.executemany("UPDATE pipes SET sequence = ?, progress = ? WHERE identity = ?", rows)
