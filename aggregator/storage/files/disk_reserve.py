"""Disk space reserved for emergencies: files that are deleted when a full disk stops what would make room.

To open a catalog, remove segments or erase needs some bytes and names on the disk: for SQLite's files, a log file, the
facts. Where there are none left, the reserve gives its own, and the catalog takes nothing in until it is made again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TypeVar

from aggregator.storage.files.layout import make_directory
from aggregator.storage.files.modes import create_file
from aggregator.storage.files.usage import sizes_in
from esformat import EsdbError

_T = TypeVar("_T")

FILES = 8
"""Names that it gives: SQLite's two files, a log file, the facts' next version, a segment and its partial file."""
LEAST_BYTES, MOST_BYTES = 512 << 10, 16 << 20
PLENTY = 4
"""The reserve is made again when the disk has so many times as much free."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def wanted_bytes(manifest_bytes: int, total_bytes: int, limits: tuple[int | None, ...]) -> int:
    """How much to keep: room to write the manifest anew, and a 64th of all; no more than a 16th of a limit."""
    wanted = min(max(LEAST_BYTES + 2 * manifest_bytes, total_bytes // 64), MOST_BYTES)
    return min([wanted, *(limit // 16 for limit in limits if limit is not None)])


class DiskReserve:
    """The reserve of a catalog. Safe to share between threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = Lock()
        self.spent = False
        """Whether it was given away, and could not be made again yet."""
        self.size_bytes = sum(sizes_in(directory))

    @property
    def trouble(self) -> str | None:
        """Why nothing is taken in; None while it is there, or was never needed."""
        return "the disk was full, and the reserve is used to make room on it" if self.spent else None

    def keep(self, size_bytes: int) -> None:
        """Make it, or make it larger, if the disk has plenty of room. Raises OSError."""
        with self._lock:
            if (self.size_bytes > size_bytes // 2 and not self.spent) or not self._is_plenty(size_bytes):
                return
            try:
                make_directory(self._directory)
                for path in self._paths():
                    _fill(path, size_bytes // FILES)
            except OSError as error:
                self._delete()
                if error.errno not in _NO_ROOM:
                    raise
            else:
                self.spent, self.size_bytes = False, size_bytes

    def help(self, work: Callable[[], _T]) -> _T:
        """Do something that makes room; where the disk is full, give the reserve for it and do it once more."""
        try:
            return work()
        except (OSError, EsdbError) as error:
            if not self._is_full(error) or not self.spend():
                raise
        return work()

    def spend(self) -> bool:
        """Give it away. False where there is none."""
        with self._lock:
            there = self.size_bytes > 0
            self._delete()
            self.spent |= there
            return there

    def _delete(self) -> None:
        for path in self._paths():
            path.unlink(missing_ok=True)
        self.size_bytes = 0

    def _paths(self) -> list[Path]:
        return [self._directory / str(number) for number in range(FILES)]

    def _is_plenty(self, size_bytes: int) -> bool:
        found = os.statvfs(self._directory.parent)
        names = not found.f_files or found.f_favail >= PLENTY * FILES
        return names and found.f_bavail * found.f_frsize >= PLENTY * size_bytes

    def _is_full(self, error: Exception) -> bool:
        """Whether something failed because the disk is full. SQLite has many names for that."""
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno in _NO_ROOM
        found = os.statvfs(self._directory.parent)
        no_names = bool(found.f_files) and found.f_favail < FILES
        return no_names or found.f_bavail * found.f_frsize < LEAST_BYTES or "disk is full" in str(error)


def _fill(path: Path, size_bytes: int) -> None:
    """A file that takes so many bytes of the disk."""
    descriptor = create_file(path, os.O_WRONLY)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size_bytes)
        else:
            os.write(descriptor, bytes(size_bytes))
    finally:
        os.close(descriptor)
