"""Temporary files of frames, for data that does not fit in memory. They vanish with the process, however it ends.

A spill file never has a name (or loses it immediately if the system needs one), so that a crash leaves nothing to clean
up. Frames are verified when they are read back: a faulty disk must not put wrong events into a segment.
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
    """Frames on disk: first all are appended, then they are read in any order, each part separately."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError, whose message mentions temporary data."""
        self._directory = directory
        self._parts: list[list[tuple[int, int, int]]] = []  # of each frame, for each part: offset, length, checksum
        self._size = 0
        with _explained(directory):
            # Unbuffered: there can be hundreds of these files, and frames are large.
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
                raise OSError(errno.EIO, "temporary data changed after it was written")
        return buffer

    def close(self) -> None:
        """Close the file, which frees its disk space."""
        self._file.close()


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """Add to an error what it is about and what can be done."""
    try:
        yield
    except OSError as error:
        what = f"{error.strerror or error} (temporary data of the writer; temp_dir= chooses another directory)"
        raise OSError(error.errno or errno.EIO, what, str(directory)) from error
