"""Sources of a segment's bytes: positional reads of data that does not change.

Files are read with `pread`, not mapped: if a mapped file is truncated the process dies, whereas a read raises an error.
"""

from __future__ import annotations

import errno
import os
import stat
from array import array
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from esformat.core.file_ranges import read_ranges
from esformat.errors import ClosedError, CorruptSegmentError, EsdbError, UsageError


@runtime_checkable
class Source(Protocol):
    """Bytes that can be read at any offset, from several threads."""

    name: str
    """Name in messages."""
    size: int
    """Length in bytes."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes [offset, offset + length), all of them. Raises CorruptSegmentError if the source has fewer."""
        ...


def explained(error: EsdbError, source: Source) -> EsdbError:
    """The error with the source's name; or, if the source has changed since it was opened, an error that says so.

    A source that can change has a method `changed_error`, which checks, and returns None if nothing has changed. A
    source that knows what to do about damage has a `hint`.
    """
    error.path = error.path or source.name
    error.hint = getattr(source, "hint", None) or error.hint
    look = getattr(source, "changed_error", None)
    if look is None or not isinstance(error, CorruptSegmentError):
        return error
    changed: EsdbError | None = look()
    return changed or error


def view_of(source: Source, offset: int, length: int) -> memoryview:
    """Bytes [offset, offset + length) for a caller that releases them soon. Raises what `read_at` raises.

    Uses the source's `view_at` if it has one.
    """
    view_at = getattr(source, "view_at", None)
    return memoryview(source.read_at(offset, length)) if view_at is None else view_at(offset, length)


class FileSource:
    """A local file. It stays readable after it was deleted, or replaced under its name."""

    __slots__ = ("_descriptor", "name", "size", "stamp")

    def __init__(
        self, path: str | bytes | os.PathLike[str] | os.PathLike[bytes], descriptor: int | None = None
    ) -> None:
        """descriptor: of the file if it is already open; it is duplicated, so the caller still closes it.

        Raises OSError if the file cannot be opened, UsageError if it is a pipe, a device or the like.
        """
        self._descriptor = -1
        self.name = path if type(path) is str else os.fsdecode(path)
        if descriptor is not None:
            self._descriptor = os.dup(descriptor)
        else:
            # Not blocking: a pipe without a writer must not delay this.
            self._descriptor = os.open(self.name, os.O_RDONLY | os.O_NONBLOCK)
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.name)
            raise UsageError(
                "not a regular file: it has no random access",
                path=self.name,
                hint="copy its output to a file",
            )
        self.size = status.st_size
        self.stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        """Distinguishes this file from another one of the same name."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes [offset, offset + length)."""
        data = os.pread(self._descriptor, length, offset)
        return data if len(data) == length else bytes(self.view_at(offset, length))

    def view_at(self, offset: int, length: int) -> memoryview:
        """Like `read_at`, but returns a view of memory from Arrow's pool, which reuses its pages.

        The C library returns large freed blocks to the system, and clearing their pages for the next read takes about
        as long as the read itself.
        """
        self._check_bounds(offset, length)
        return self.view_ranges(array("q", (offset, length)))

    def view_ranges(self, ranges: array[int]) -> memoryview:
        """Like `view_at`, for several ranges: their bytes, one after another.

        ranges: the offset and the length of each, as int64.
        """
        from pyarrow import allocate_buffer  # here: slow to import

        lengths = ranges[1::2]
        for offset, length in zip(ranges[::2], lengths, strict=True):
            self._check_bounds(offset, length)
        total = sum(lengths)
        view = memoryview(allocate_buffer(total)).cast("B") if total else memoryview(bytearray())
        done = read_ranges(self._descriptor, ranges, view)
        start = sum(lengths[:done])
        for offset, length in zip(ranges[2 * done :: 2], lengths[done:], strict=True):
            self._fill(view[start : start + length], offset)
            start += length
        return view.toreadonly()

    def _check_bounds(self, offset: int, length: int) -> None:
        """Refuse a range that the file lacks, before memory is allocated for it."""
        if offset + length > self.size:
            there = min(length, max(0, self.size - offset))
            raise self._cut_short(offset + there, length - there)

    def _fill(self, view: memoryview, offset: int) -> None:
        """Fill a view from a byte of the file on. Raises CorruptSegmentError if the file ends before, OSError."""
        done = 0
        while done < len(view):  # a read may stop early, e.g. at 2 GiB; only one that returns nothing is the end
            read = os.preadv(self._descriptor, [view[done:]], offset + done)
            if not read:
                raise self._cut_short(offset + done, len(view) - done)
            done += read

    def _cut_short(self, offset: int, missing: int) -> CorruptSegmentError:
        return CorruptSegmentError(
            f"the file ends {missing} bytes early", path=self.name, offset=offset, hint="restore it"
        )

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # bound now: modules may be gone by then
        # Close only here: a reading thread holds a reference, so its descriptor is not closed and reused meanwhile.
        if self._descriptor >= 0:
            close(self._descriptor)


class BytesSource:
    """A segment in memory."""

    __slots__ = ("_data", "name", "size")

    def __init__(self, data: bytes, name: str = "<bytes>") -> None:
        self._data = data
        self.name = name
        self.size = len(data)

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes [offset, offset + length)."""
        data = self._data[offset : offset + length]
        if len(data) != length:
            raise CorruptSegmentError(f"the data ends {length - len(data)} bytes early", path=self.name, offset=offset)
        return data


class CountingSource:
    """A wrapper of another source that counts its reads: `reads` and `bytes_read`."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name, self.size = source.name, source.size
        self.reads = 0
        self.bytes_read = 0

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes [offset, offset + length)."""
        self.reads += 1
        self.bytes_read += length
        return self._source.read_at(offset, length)


class ClosedSource:
    """Replaces the source of a closed segment."""

    def __init__(self, source: Source) -> None:
        self.name, self.size = source.name, source.size

    def read_at(self, offset: int, length: int) -> bytes:
        """Raises ClosedError."""
        raise ClosedError(
            "the segment is closed", path=self.name, hint="read within the `with` block, or open it again"
        )
