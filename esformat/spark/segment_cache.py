"""A cache of recently read local segments: the metadata read on opening is kept, but no file stays open.

A query opens each of its files to plan and again to read, and the next query does the same. Reopening an unchanged file
(by device, inode, size and time) only checks that it is unchanged.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from esformat.base.forked import unlock_in_forks
from esformat.core.caches import Budget, Budgets
from esformat.errors import EsdbError
from esformat.io.source import FileSource, explained
from esformat.read.blocks.reader import Reader
from esformat.read.segment import Segment

MOST_FILES = 64
"""The most cached files; the least recently used are evicted first."""
TABLES_BYTES = 32 << 20
"""The most bytes of directory leaves and index pages cached for all files together; events are not cached."""


class LentFile:
    """A file that is open only while in use. The caller must not read it at any other time."""

    def __init__(self, file: FileSource) -> None:
        self.name, self.size, self.stamp = file.name, file.size, file.stamp
        self._file: FileSource | None = None
        self._users = 0
        self._lock = Lock()
        unlock_in_forks(self)

    @contextmanager
    def used(self, file: FileSource) -> Iterator[None]:
        """Read through `file`, an open handle of the same file, until the block ends and no other user is left."""
        with self._lock:
            self._users += 1
            self._file = self._file or file
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._file = None  # closes when the last read of it ends

    def read_at(self, offset: int, length: int) -> bytes:
        """Read bytes [offset, offset + length). Raises CorruptSegmentError if the file is shorter."""
        file = self._file
        assert file is not None, "a file that nobody uses is not read"
        return file.read_at(offset, length)


class SegmentCache:
    """Segments by file name. Thread-safe."""

    def __init__(self, most: int = MOST_FILES, tables_bytes: int = TABLES_BYTES) -> None:
        self._most = most
        self._budgets = Budgets(Budget(tables_bytes), *(Budget(0) for _ in Budgets._fields[1:]))
        self._known: OrderedDict[str, tuple[LentFile, Segment]] = OrderedDict()
        self._lock = Lock()
        unlock_in_forks(self)

    @contextmanager
    def opened(self, path: str) -> Iterator[Segment]:
        """Open the segment of a file until the block ends. Raises OSError, EsdbError."""
        file = FileSource(path)
        with self._lock:
            found = self._known.get(path)
            if found is not None:
                self._known.move_to_end(path)
        if found is None or found[0].stamp != file.stamp:
            found = self._open(path, file)
        lent, segment = found
        with lent.used(file):
            yield segment

    def _open(self, path: str, file: FileSource) -> tuple[LentFile, Segment]:
        """Open a file and cache it, replacing an older one of that name."""
        lent = LentFile(file)
        with lent.used(file):
            try:
                segment = Segment(Reader(lent, self._budgets))
            except EsdbError as error:
                raise explained(error, lent) from None
        with self._lock:
            self._known[path] = lent, segment
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return lent, segment

    def forget(self) -> None:
        """Clear the cache."""
        with self._lock:
            self._known.clear()
