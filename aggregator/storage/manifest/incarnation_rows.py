"""The incarnations of a catalog in the manifest; `lineage` explains their purpose."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Mapping

from aggregator.storage.manifest.lineage import BEFORE, MAX_INCARNATIONS, NAME_BYTES, Lineage
from aggregator.storage.manifest.manifest import IDENTITY, Manifest
from aggregator.storage.manifest.transactions import count_change


class IncarnationRows:
    """Reads and writes incarnations. Thread-safe. Raises the errors of the manifest's own methods."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def lineage(self) -> Lineage:
        """The past incarnations of the catalog."""
        identity = self._manifest.get(IDENTITY) or ""
        with self._manifest.reading() as db:
            names = db.execute("SELECT number, name FROM incarnations ORDER BY number").fetchall()
            starts = db.execute("SELECT incarnation, partition, first_index FROM incarnation_starts ORDER BY 1, 2")
            return Lineage.of(bytes.fromhex(identity), names, starts)

    def newest(self) -> bytes:
        """The name of the newest incarnation; cheap, for readers that poll."""
        with self._manifest.reading() as db:
            row = db.execute("SELECT name FROM incarnations ORDER BY number DESC LIMIT 1").fetchone()
        return b"" if row is None else bytes(row[0])

    def begin(self, next_indexes: Mapping[int, int], *, known: bool) -> None:
        """Begin an incarnation that assigns record indexes from `next_indexes` on. known: whether the manifest knows
        all assigned indexes; if not, it is an old copy, and its past is forgotten.

        The newest incarnation is replaced if it assigned no index, because no position names it.
        """
        past = self.lineage()
        last = len(past.names) - 1
        changed = {
            partition: index
            for partition, index in next_indexes.items()
            if not known or last < 0 or index != past.start(last, partition)
        }
        with self._manifest.writing() as db:
            if not known:
                db.execute("DELETE FROM incarnation_starts")
                db.execute("DELETE FROM incarnations")
            if not known or last < 0:
                db.execute("INSERT INTO incarnations (name) VALUES (?)", (BEFORE,))
            name = secrets.token_bytes(NAME_BYTES - 1) + b"\1"
            if known and last > 0 and not changed:
                db.execute(
                    "UPDATE incarnations SET name = ? WHERE number = (SELECT max(number) FROM incarnations)", (name,)
                )
            else:
                number = db.execute("INSERT INTO incarnations (name) VALUES (?)", (name,)).lastrowid
                starts = [(number, partition, index) for partition, index in changed.items()]
                db.executemany(
                    "INSERT INTO incarnation_starts (incarnation, partition, first_index) VALUES (?, ?, ?)", starts
                )
            _fold(db)
            count_change(db)  # so that readers of a copied manifest prefer the newer one


def _fold(db: sqlite3.Connection) -> None:
    """Delete the oldest incarnations beyond the limit. Only where the last of them ended stays known."""
    numbers = [row[0] for row in db.execute("SELECT number FROM incarnations ORDER BY number")]
    while len(numbers) > MAX_INCARNATIONS + 1:
        oldest, following = numbers.pop(1), numbers[1]
        db.execute("UPDATE OR IGNORE incarnation_starts SET incarnation = ? WHERE incarnation = ?", (following, oldest))
        db.execute("DELETE FROM incarnation_starts WHERE incarnation = ?", (oldest,))
        db.execute("DELETE FROM incarnations WHERE number = ?", (oldest,))
