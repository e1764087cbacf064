"""Disk space reserved for emergencies: files to delete when a full disk prevents the work that would free space.

Opening a catalog, removing segments and erasing need some bytes and inodes: for SQLite's files, a log file, and the
manifest backup. If the disk has none left, the reserve is released, and the catalog accepts no data until the reserve
is restored.
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
"""Number of files in the reserve, and so of inodes that it frees: SQLite's two files, a log file, the next manifest
backup, a segment and its partial file.
"""
LEAST_BYTES, MOST_BYTES = 512 << 10, 16 << 20
FREE_FACTOR = 4
"""The reserve is created when the disk has this many times its size free."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def wanted_bytes(manifest_bytes: int, total_bytes: int, limits: tuple[int | None, ...]) -> int:
    """Size of the reserve: room to rewrite the manifest, and 1/64 of the total; at most 1/16 of each limit."""
    wanted = min(max(LEAST_BYTES + 2 * manifest_bytes, total_bytes // 64), MOST_BYTES)
    return min([wanted, *(limit // 16 for limit in limits if limit is not None)])


class DiskReserve:
    """The reserve of a catalog. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = Lock()
        self.spent = False
        """Whether the reserve was released, and could not be restored yet."""
        self.size_bytes = sum(sizes_in(directory))

    @property
    def trouble(self) -> str | None:
        """Why no data is accepted; None while the reserve exists, or if it was never needed."""
        return "the disk was full, and the reserve is in use to free space on it" if self.spent else None

    def keep(self, size_bytes: int) -> None:
        """Create or enlarge the reserve, if the disk has plenty of space. Raises OSError."""
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
        """Do work that frees space; if the disk is full, release the reserve and try once more."""
        try:
            return work()
        except (OSError, EsdbError) as error:
            if not self._is_full(error) or not self.spend():
                raise
        return work()

    def spend(self) -> bool:
        """Release the reserve. False if there is none."""
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
        names = not found.f_files or found.f_favail >= FREE_FACTOR * FILES
        return names and found.f_bavail * found.f_frsize >= FREE_FACTOR * size_bytes

    def _is_full(self, error: Exception) -> bool:
        """Whether an operation failed because the disk is full. SQLite reports that in several ways."""
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno in _NO_ROOM
        found = os.statvfs(self._directory.parent)
        no_names = bool(found.f_files) and found.f_favail < FILES
        return no_names or found.f_bavail * found.f_frsize < LEAST_BYTES or "disk is full" in str(error)


def _fill(path: Path, size_bytes: int) -> None:
    """Write a file that allocates this many bytes on disk."""
    descriptor = create_file(path, os.O_WRONLY)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size_bytes)
        else:
            os.write(descriptor, bytes(size_bytes))
    finally:
        os.close(descriptor)
