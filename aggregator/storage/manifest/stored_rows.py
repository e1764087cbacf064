"""The manifest's record of the segments in the catalog's store."""

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
    """Reads and writes the rows of stored segments. Thread-safe. Raises the errors of the manifest's own methods."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    def settings(self) -> StoreSettings | None:
        """The settings of the catalog's store; None if it has none."""
        kept = self._manifest.get(STORE)
        return None if not kept else StoreSettings.from_json(json.loads(kept))

    def set_settings(self, settings: StoreSettings | None) -> None:
        """Set the catalog's store; None: no store."""
        self._manifest.put(STORE, "" if settings is None else json.dumps(settings.to_json()))

    def all(self) -> list[StoredSegment]:
        """Every stored segment, by number."""
        with self._manifest.reading() as db:
            found = db.execute("SELECT number, checksum, size_bytes, local FROM stored ORDER BY number")
            return [
                StoredSegment(n, int.from_bytes(check, "little"), size, bool(here)) for n, check, size, here in found
            ]

    def leaving(self, most: int) -> list[tuple[StoredSegment, int]]:
        """Up to `most` retired segments that still have an object, each with the change that retired it, by change."""
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
        """Record segments that are in the store; return the numbers of those that the manifest still has."""
        with self._manifest.writing() as db:
            rows = [(s.number, s.checksum.to_bytes(8, "little"), s.size_bytes, int(local)) for s in segments]
            return {number for row in rows for (number,) in db.execute(_ADD, row)}

    def set_local(self, numbers: Iterable[int], *, local: bool) -> None:
        """Record that files of segments are on disk again, or are about to be deleted."""
        with self._manifest.writing() as db:
            db.executemany("UPDATE stored SET local = ? WHERE number = ?", [(int(local), number) for number in numbers])

    def remove(self, numbers: Iterable[int]) -> None:
        """Record that objects of segments are deleted or missing."""
        with self._manifest.writing() as db:
            db.executemany("DELETE FROM stored WHERE number = ?", [(number,) for number in numbers])

    def evicted(self) -> tuple[int, int]:
        """The number of live segments without a file on disk, and their bytes."""
        with self._manifest.reading() as db:
            count, size = db.execute(
                "SELECT count(*), ifnull(sum(s.size_bytes), 0) FROM stored s "
                "JOIN segments USING (number) WHERE s.local = 0"
            ).fetchone()
        return int(count), int(size)
