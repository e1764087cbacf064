"""Reserves record indexes in the manifest before unsynced appends use them.

After a crash of the machine it is unknown which of them were assigned to lost events: the next opening skips those that
no event has. If only the process died, the kernel still has what was written, and nothing is lost. If every append is
synced nothing is lost either, so nothing is reserved. See docs/decisions/0025.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Lock

from aggregator.storage.manifest import Manifest
from aggregator.storage.state.state import Partition

FIRST = 1 << 12
"""Number of record indexes reserved ahead of a partition's first append in a run. It doubles each time,"""
MOST = 1 << 20
"""up to this number: half a second of appends at full speed."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def where_written(directory: Path) -> str:
    """An identifier of the running kernel and of a directory; "" if the system provides none. If it is the same at two
    times, everything written to the directory by the first is still there at the second.
    """
    with suppress(OSError):
        found = directory.stat()
        return f"{_BOOT.read_text('ascii').strip()} {found.st_dev} {found.st_ino}"
    return ""


class Reserve:
    """Reserves record indexes of partitions. Thread-safe."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._lock = Lock()
        self._ahead: dict[int, int] = {}

    def keep_ahead(self, partition: Partition, end: int) -> None:
        """Reserve more if less than half of the last reservation is left above `end`, before any append must wait.

        Raises ManifestFailedError.
        """
        if end + self._ahead.get(partition.number, 0) // 2 >= partition.reserved_index:
            self._extend(partition, end)

    def cover(self, partition: Partition, end: int) -> None:
        """Ensure that all record indexes below `end` are reserved. Raises ManifestFailedError."""
        if end > partition.reserved_index:
            self._extend(partition, end)

    def _extend(self, partition: Partition, end: int) -> None:
        with self._lock:
            ahead = self._ahead.get(partition.number, 0)
            if end + ahead // 2 < partition.reserved_index:  # another thread was faster
                return
            ahead = min(MOST, max(FIRST, 2 * ahead))
            self._manifest.reserve({partition.number: end + ahead})
            self._ahead[partition.number] = ahead
            partition.reserved_index = end + ahead
