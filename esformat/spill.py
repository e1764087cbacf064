"""Temporary files of frames: what does not fit in memory, and is gone with the process whatever ends it.

A spill file never has a name (or loses it at once, where the system needs one), so that nothing is left to clean up
after a crash. Its frames are checked when they come back: a disk that errs must not put wrong events into a segment.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from esformat.checksum import checksum64

_BUFFER_BYTES = 1 << 20


class SpillFile:
    """Frames: first all of them are appended, then they are read in any order, each of their parts on its own."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError, which says that it is about temporary data."""
        self._directory = directory
        self._parts: list[list[tuple[int, int, int]]] = []  # of each frame: offset, length, checksum
        self._size = 0
        with _explained(directory):
            self._file: Any = tempfile.TemporaryFile(dir=directory, buffering=_BUFFER_BYTES)  # noqa: SIM115 - close()

    def __len__(self) -> int:
        return len(self._parts)

    def append(self, *parts: bytes | memoryview | pa.Buffer) -> None:
        """Add a frame. Raises OSError."""
        table = []
        with _explained(self._directory):
            for part in parts:
                data = memoryview(part).cast("B") if len(part) else memoryview(b"")
                self._file.write(data)
                table.append((self._size, len(data), checksum64(data)))
                self._size += len(data)
        self._parts.append(table)

    def flush(self) -> None:
        """Hand what was appended to the system; errors of the disk show here at the latest. Raises OSError."""
        with _explained(self._directory):
            self._file.flush()

    def part_bytes(self, frame: int, part: int) -> int:
        """Length of a part."""
        return self._parts[frame][part][1]

    def read(self, frame: int, part: int) -> pa.Buffer:
        """One part of a frame. Raises OSError, also if the bytes are not those that were written."""
        offset, length, checksum = self._parts[frame][part]
        buffer = pa.allocate_buffer(length)
        with _explained(self._directory):
            self._file.seek(offset)
            found = self._file.readinto(memoryview(buffer)) if length else 0
            if found != length or checksum64(memoryview(buffer).cast("B") if length else b"") != checksum:
                raise OSError(errno.EIO, "temporary data did not come back as it was written")
        return buffer

    def close(self) -> None:
        """Give the space back."""
        with suppress(OSError):  # closing writes what is left: on a full disk it fails once more
            self._file.close()


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """Say of an error what it is about and what can be done."""
    try:
        yield
    except OSError as error:
        what = f"{error.strerror or error} (temporary data of the writer; temp_dir= puts it elsewhere)"
        raise OSError(error.errno or errno.EIO, what, str(directory)) from error
