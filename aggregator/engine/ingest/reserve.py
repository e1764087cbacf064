"""Record indexes reserved in the manifest before unsynced appends use them.

After a crash of the machine nobody can tell which of them were given to events that are lost: the next opening passes
over those that no event has. Where only the program died, the kernel still has what was written, and nothing is lost.
With every append synced nothing is lost either, so nothing is reserved: docs/decisions/0025 says more.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import Lock

from aggregator.storage.manifest import Manifest
from aggregator.storage.state.state import Partition

FIRST = 1 << 12
"""So many record indexes are reserved ahead of a partition's first append in a run, then each time twice as many,"""
MOST = 1 << 20
"""up to so many: half a second of appends at full speed."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def where_written(directory: Path) -> str:
    """The boot of the kernel that has what is written to a directory now, and which directory that is; "" where the
    system does not tell. The same text at two times: what was written at the first one is there at the second.
    """
    with suppress(OSError):
        found = directory.stat()
        return f"{_BOOT.read_text('ascii').strip()} {found.st_dev} {found.st_ino}"
    return ""


class Reserve:
    """Reserves record indexes of partitions. Safe to share between threads."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._lock = Lock()
        self._ahead: dict[int, int] = {}

    def keep_ahead(self, partition: Partition, end: int) -> None:
        """Reserve more where less than half of what was reserved is left above `end`: before others wait for it.

        Raises ManifestFailedError.
        """
        if end + self._ahead.get(partition.number, 0) // 2 >= partition.reserved_index:
            self._extend(partition, end)

    def cover(self, partition: Partition, end: int) -> None:
        """See to it that all record indexes below `end` are reserved. Raises ManifestFailedError."""
        if end > partition.reserved_index:
            self._extend(partition, end)

    def _extend(self, partition: Partition, end: int) -> None:
        with self._lock:
            ahead = self._ahead.get(partition.number, 0)
            if end + ahead // 2 < partition.reserved_index:  # somebody was quicker
                return
            ahead = min(MOST, max(FIRST, 2 * ahead))
            self._manifest.reserve({partition.number: end + ahead})
            self._ahead[partition.number] = ahead
            partition.reserved_index = end + ahead
