"""Pipes that can be read more than once: what was read is kept, in a temporary file where it is long."""

from __future__ import annotations

import io
import os
import select
import tempfile
from typing import Any, Protocol

_WAKE_SECONDS = 0.5
_IN_MEMORY_BYTES = 16 << 20  # a file is made for what is longer


class Pipe(Protocol):
    """What is read forward only."""

    def read1(self, size: int, /) -> bytes:
        """Give up to `size` bytes, as many as are there."""

    def fileno(self) -> int:
        """Give the descriptor to wait for."""

    def close(self) -> None:
        """Let go of it."""


def _has_descriptor(pipe: Pipe) -> bool:
    try:
        return pipe.fileno() >= 0
    except io.UnsupportedOperation:  # bytes in memory
        return False


class Spool:
    """Keeps what was read from a pipe, so that it can be read again from the start."""

    def __init__(self, pipe: Pipe, *, owned: bool) -> None:
        """Take over `pipe`, to be closed in the end if it is `owned`."""
        self._pipe = pipe
        self._owned = owned
        self._can_wait = _has_descriptor(pipe)
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - lives as long as the input
        self.kept_bytes = 0

    def read_at(self, offset: int, size: int) -> bytes:
        """Give up to `size` bytes from `offset`, which is not beyond what was read so far; none at the end."""
        if offset == self.kept_bytes:
            chunk = self._next(size)
            self._file.seek(offset)
            self._file.write(chunk)
            self.kept_bytes += len(chunk)
            return chunk
        self._file.seek(offset)
        return self._file.read(min(size, self.kept_bytes - offset))

    def _next(self, size: int) -> bytes:
        """Wait for bytes of the pipe, and give those that are there, up to `size`; none at the end."""
        # A signal that another thread gets does not interrupt a read: wake up now and then to notice it.
        while self._can_wait and not select.select([self._pipe], [], [], _WAKE_SECONDS)[0]:
            pass
        return self._pipe.read1(size)

    def reader(self) -> io.RawIOBase:
        return _SpoolReader(self)

    def free(self) -> None:
        self._file.close()
        if self._owned:
            self._pipe.close()


class _SpoolReader(io.RawIOBase):
    """A pass over a spool, from its start."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_CUR:
            offset += self._offset
        if whence == os.SEEK_END or not 0 <= offset <= self._spool.kept_bytes:
            raise io.UnsupportedOperation("a spool is read forward, or again from what it has kept")
        self._offset = offset
        return offset

    def tell(self) -> int:
        return self._offset

    def readinto(self, buffer: Any) -> int:
        chunk = self._spool.read_at(self._offset, len(buffer))
        buffer[: len(chunk)] = chunk
        self._offset += len(chunk)
        return len(chunk)
