"""Read many local files with a bounded number of open ones: a handle may be closed between any two reads.

A file is reopened when it is read again; if it was replaced under its name meanwhile, the read raises an error.
"""

from __future__ import annotations

import errno
import resource
from array import array
from collections import OrderedDict
from threading import Lock
from weakref import WeakSet

from esformat.errors import SegmentChangedError
from esformat.io.source import FileSource

MOST_OPEN = 1024
SHARE = 4
"""Divisor of the process's limit of open files: a quarter is used here, the rest is for sockets, logs and the like."""
LEAST_OPEN = 4


def open_files() -> int:
    """The number of files that one owner of handles keeps open, according to the process's limit of open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN if soft == resource.RLIM_INFINITY else max(LEAST_OPEN, min(MOST_OPEN, soft // SHARE))


class Handles:
    """Local files, of which only the `limit` most recently used stay open."""

    def __init__(self, limit: int | None = None) -> None:
        """limit: None for `open_files`."""
        self._limit = open_files() if limit is None else limit
        self._open: OrderedDict[str, FileSource] = OrderedDict()
        self._lock = Lock()
        _all.add(self)

    def get(self, path: str) -> FileSource:
        """The open file; opens it if necessary. Raises OSError."""
        with self._lock:
            source = self._open.get(path)
            if source is not None:
                self._open.move_to_end(path)
                return source
        source = _opened(path)
        with self._lock:
            self._open[path] = source
        self._keep(self._limit)
        return source

    def _keep(self, count: int) -> None:
        with self._lock:
            while len(self._open) > count:
                self._open.popitem(last=False)  # closes when the last read of it ends

    def close_half(self) -> None:
        """Close half of the files, because the process cannot open any more."""
        self._keep(len(self._open) // 2)

    def forget(self, path: str) -> None:
        """Close a file that is about to be removed."""
        with self._lock:
            self._open.pop(path, None)

    def close(self) -> None:
        """Close all files."""
        self._keep(0)


_all: WeakSet[Handles] = WeakSet()


def _opened(path: str) -> FileSource:
    try:
        return FileSource(path)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    for handles in list(_all):
        handles.close_half()
    return FileSource(path)


class SharedFile:
    """A local file whose handle comes from a pool. Reads raise an error if it was replaced while it was closed."""

    def __init__(self, handles: Handles, path: str) -> None:
        """Raises OSError."""
        self._handles, self.name = handles, path
        source = handles.get(path)
        self._stamp = source.stamp
        self.size = source.size

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes [offset, offset + length). Raises SegmentChangedError, CorruptSegmentError."""
        return self._opened().read_at(offset, length)

    def view_at(self, offset: int, length: int) -> memoryview:
        """Like `read_at`, but returns a view, for callers that release it soon."""
        return self._opened().view_at(offset, length)

    def view_ranges(self, ranges: array[int]) -> memoryview:
        """Like `view_at`, for several ranges: see `FileSource.view_ranges`."""
        return self._opened().view_ranges(ranges)

    def _opened(self) -> FileSource:
        try:
            source = self._handles.get(self.name)
        except FileNotFoundError:
            raise changed_file(self.name) from None
        if source.stamp != self._stamp:
            raise changed_file(self.name)
        return source


def changed_file(name: str) -> SegmentChangedError:
    """The error for a file that is not the one that was opened."""
    return SegmentChangedError("the file was replaced or removed while it was open", path=name, hint="open it again")
