"""Pipes, either spooled to memory or a temporary file so that they can be reread, or read once as bytes arrive."""

from __future__ import annotations

import io
import os
import select
import tempfile
from time import monotonic
from typing import Any, Protocol

_WAKE_SECONDS = 0.5
_IN_MEMORY_BYTES = 16 << 20  # longer data goes to a file
_GATHERED_SECONDS = 0.2  # how long to wait for more bytes after the first
_CHUNK_BYTES = 1 << 20


class Pipe(Protocol):
    """A stream that is read forward only."""

    def read1(self, size: int, /) -> bytes:
        """Return the available bytes, up to `size`."""

    def fileno(self) -> int:
        """Return the descriptor to wait for."""

    def close(self) -> None:
        """Close the stream."""


def _has_descriptor(pipe: Pipe) -> bool:
    try:
        return pipe.fileno() >= 0
    except io.UnsupportedOperation:  # bytes in memory
        return False


class Live:
    """A pipe that is read once, with low latency: a read returns the bytes that arrive within 200 ms of the first."""

    def __init__(self, pipe: Pipe, *, owned: bool) -> None:
        """Read from `pipe`, and close it at the end if it is `owned`."""
        self._pipe, self._owned = pipe, owned
        self._can_wait = _has_descriptor(pipe)
        self._ahead = b""
        self.taken_bytes = 0

    def peek(self, size: int) -> bytes:
        """Return the next `size` bytes without consuming them; fewer if the pipe ends before."""
        while len(self._ahead) < size:
            chunk = self._next(None, size - len(self._ahead))
            if not chunk:
                break
            self._ahead += chunk
        return self._ahead[:size]

    def read(self, size: int) -> bytes:
        """Wait for bytes and return up to `size`, including those that arrive within 200 ms; none at the end."""
        chunks = [self.read1(min(size, _CHUNK_BYTES))]
        missing, deadline = size - len(chunks[0]), monotonic() + _GATHERED_SECONDS
        while chunks[-1] and missing:
            chunks.append(self._next(deadline, min(missing, _CHUNK_BYTES)))
            missing -= len(chunks[-1])
        return b"".join(chunks)

    def read1(self, size: int) -> bytes:
        """Return the available bytes, up to `size`; wait only if there are none."""
        if not self._ahead:
            return self._next(None, size)
        given, self._ahead = self._ahead[:size], self._ahead[size:]
        return given

    def _next(self, deadline: float | None, size: int) -> bytes:
        """Read from the pipe itself; returns no bytes at its end or if none arrive before the deadline."""
        # A signal delivered to another thread does not interrupt a read: wake up regularly to notice it.
        while self._can_wait:
            left = _WAKE_SECONDS if deadline is None else deadline - monotonic()
            if select.select([self._pipe], [], [], max(0.0, left))[0]:
                break
            if deadline is not None:
                return b""
        chunk = self._pipe.read1(size)
        self.taken_bytes += len(chunk)
        return chunk

    def fileno(self) -> int:
        """Not supported: callers cannot wait for the descriptor, since bytes may already be buffered here."""
        raise io.UnsupportedOperation

    def close(self) -> None:
        """Close the pipe if it is owned."""
        if self._owned:
            self._pipe.close()


class Spool:
    """Keeps the bytes read from a pipe, so that they can be read again from the start."""

    def __init__(self, pipe: Pipe, *, owned: bool) -> None:
        """Read from `pipe`, and close it at the end if it is `owned`."""
        self._pipe = pipe
        self._owned = owned
        self._can_wait = _has_descriptor(pipe)
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - lives as long as the input
        self.kept_bytes = 0

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset`, which must not be beyond the bytes read so far; none at the end."""
        if offset == self.kept_bytes:
            chunk = self._next(size)
            self._file.seek(offset)
            self._file.write(chunk)
            self.kept_bytes += len(chunk)
            return chunk
        self._file.seek(offset)
        return self._file.read(min(size, self.kept_bytes - offset))

    def _next(self, size: int) -> bytes:
        """Wait for bytes of the pipe and return those available, up to `size`; none at the end."""
        # A signal delivered to another thread does not interrupt a read: wake up regularly to notice it.
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
    """One pass over a spool, from its start."""

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
