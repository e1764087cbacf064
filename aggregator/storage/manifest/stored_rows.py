"""Which segments lie in the catalog's store, as the manifest keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from aggregator.model import SegmentInfo, StoredSegment
from aggregator.policy import StoreSettings
from aggregator.storage.manifest.manifest import STORE, Manifest

_ADD = (
    "INSERT OR REPLACE INTO stored SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM segments WHERE number = ?1 "
    "UNION ALL SELECT 1 FROM retired WHERE number = ?1) RETURNING number"
)


class StoredRows:
    """Reads and writes them. Safe to share between threads. Raises what the manifest's own methods raise."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def settings(self) -> StoreSettings | None:
        """Where the catalog's store is; None where it has none."""
        kept = self._manifest.get(STORE)
        return None if not kept else StoreSettings.from_json(json.loads(kept))

    def set_settings(self, settings: StoreSettings | None) -> None:
        """Keep where it is; None: nowhere."""
        self._manifest.put(STORE, "" if settings is None else json.dumps(settings.to_json()))

    def all(self) -> list[StoredSegment]:
        """Every one, in the order of their numbers."""
        with self._manifest.reading() as db:
            found = db.execute("SELECT number, checksum, size_bytes, local FROM stored ORDER BY number")
            return [
                StoredSegment(n, int.from_bytes(check, "little"), size, bool(here)) for n, check, size, here in found
            ]

    def leaving(self, most: int) -> list[tuple[StoredSegment, int]]:
        """Of retired segments those with an object, and the change that retired each, in the order of these: so many at
        most.
        """
        with self._manifest.reading() as db:
            found = db.execute(
                "SELECT s.number, s.checksum, s.size_bytes, s.local, r.change FROM stored s "
                "JOIN retired r ON r.number = s.number ORDER BY r.change, r.number LIMIT ?",
                (most,),
            )
            return [
                (StoredSegment(number, int.from_bytes(check, "little"), size, bool(here)), change)
                for number, check, size, here, change in found
            ]

    def add(self, segments: Iterable[SegmentInfo], *, local: bool = True) -> set[int]:
        """Segments have arrived in the store; those that the manifest forgot meanwhile are passed over. Gives the
        numbers of the others.
        """
        with self._manifest.writing() as db:
            rows = [(s.number, s.checksum.to_bytes(8, "little"), s.size_bytes, int(local)) for s in segments]
            return {number for row in rows for (number,) in db.execute(_ADD, row)}

    def set_local(self, numbers: Iterable[int], *, local: bool) -> None:
        """Files of segments are on the disk again, or about to be deleted there."""
        with self._manifest.writing() as db:
            db.executemany("UPDATE stored SET local = ? WHERE number = ?", [(int(local), number) for number in numbers])

    def remove(self, numbers: Iterable[int]) -> None:
        """Objects of segments are gone, or turned out not to be there."""
        with self._manifest.writing() as db:
            db.executemany("DELETE FROM stored WHERE number = ?", [(number,) for number in numbers])

    def let_go(self) -> tuple[int, int]:
        """How many live segments have no file on the disk, and their bytes."""
        with self._manifest.reading() as db:
            count, size = db.execute(
                "SELECT count(*), ifnull(sum(s.size_bytes), 0) FROM stored s "
                "JOIN segments USING (number) WHERE s.local = 0"
            ).fetchone()
        return int(count), int(size)
