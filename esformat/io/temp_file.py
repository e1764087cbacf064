"""Temporary files of frames: what does not fit in memory, and is gone with the process whatever ends it.

A spill file never has a name (or loses it at once, where the system needs one), so that nothing is left to clean up
after a crash. Its frames are checked when they come back: a disk that errs must not put wrong events into a segment.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from esformat.format.checksum import checksum64


class SpillFile:
    """Frames: first all of them are appended, then they are read in any order, each of their parts on its own."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError, which says that it is about temporary data."""
        self._directory = directory
        self._parts: list[list[tuple[int, int, int]]] = []  # of each frame: offset, length, checksum
        self._size = 0
        with _explained(directory):
            # Without buffers: there can be hundreds of these files, and frames are large.
            self._file: Any = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 - close()

    def __len__(self) -> int:
        return len(self._parts)

    def append(self, *parts: bytes | memoryview | pa.Buffer) -> None:
        """Add a frame. Raises OSError."""
        views = [memoryview(part).cast("B") if len(part) else memoryview(b"") for part in parts]
        self._write(memoryview(b"".join(views)))
        table = []
        for view in views:
            table.append((self._size, len(view), checksum64(view)))
            self._size += len(view)
        self._parts.append(table)

    def _write(self, data: memoryview) -> None:
        with _explained(self._directory):
            while len(data):
                data = data[self._file.write(data) :]

    def part_bytes(self, frame: int, part: int) -> int:
        """Length of a part."""
        return self._parts[frame][part][1]

    def read(self, frame: int, part: int) -> pa.Buffer:
        """One part of a frame. Raises OSError, also if the bytes are not those that were written."""
        offset, length, checksum = self._parts[frame][part]
        buffer = pa.allocate_buffer(length)
        view = memoryview(buffer).cast("B") if length else memoryview(b"")
        with _explained(self._directory):
            self._file.seek(offset)
            left = view
            while len(left) and (found := self._file.readinto(left)):
                left = left[found:]
            if len(left) or checksum64(view) != checksum:
                raise OSError(errno.EIO, "temporary data did not come back as it was written")
        return buffer

    def close(self) -> None:
        """Give the space back."""
        self._file.close()


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """Say of an error what it is about and what can be done."""
    try:
        yield
    except OSError as error:
        what = f"{error.strerror or error} (temporary data of the writer; temp_dir= puts it elsewhere)"
        raise OSError(error.errno or errno.EIO, what, str(directory)) from error
