"""Local segments that this process read last: what opening one reads is kept, its file is not held open.

A query opens each of its files to plan, and again to read; the next query does so once more. Of a file that is still
the same, by device, number, size and time, all that opening it takes is a look at it.
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
"""Known at most; those that were read longest ago are forgotten first."""
TABLES_BYTES = 32 << 20
"""Directory leaves and pages of indexes kept of all known files together; of events nothing is kept."""


class LentFile:
    """A file that is open only while somebody uses it. Reading it at any other time is an error of the caller."""

    def __init__(self, file: FileSource) -> None:
        self.name, self.size, self.stamp = file.name, file.size, file.stamp
        self._file: FileSource | None = None
        self._users = 0
        self._lock = Lock()
        unlock_in_forks(self)

    @contextmanager
    def used(self, file: FileSource) -> Iterator[None]:
        """Read by means of `file`, which is the same file, until the block ends and nobody else reads it."""
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
        """Bytes [offset, offset + length). Raises CorruptSegmentError where the file has fewer."""
        file = self._file
        assert file is not None, "a file that nobody uses is not read"
        return file.read_at(offset, length)


class KnownFiles:
    """Segments by the names of their files. Safe to share between threads."""

    def __init__(self, most: int = MOST_FILES, tables_bytes: int = TABLES_BYTES) -> None:
        self._most = most
        self._budgets = Budgets(Budget(tables_bytes), *(Budget(0) for _ in Budgets._fields[1:]))
        self._known: OrderedDict[str, tuple[LentFile, Segment]] = OrderedDict()
        self._lock = Lock()
        unlock_in_forks(self)

    @contextmanager
    def opened(self, path: str) -> Iterator[Segment]:
        """The segment of a file, open until the block ends. Raises OSError, EsdbError."""
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
        """Get to know a file, in place of another one of its name."""
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
        """Know none."""
        with self._lock:
            self._known.clear()
