"""Pipes: read more than once, as what was read is kept, in a file where it is long; or once, as their bytes come."""

from __future__ import annotations

import io
import os
import select
import tempfile
from time import monotonic
from typing import Any, Protocol

_WAKE_SECONDS = 0.5
_IN_MEMORY_BYTES = 16 << 20  # a file is made for what is longer
_GATHERED_SECONDS = 0.2  # so long bytes wait for more
_CHUNK_BYTES = 1 << 20


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


class Live:
    """A pipe whose bytes are given once, and soon: those that came within 200 ms of the first."""

    def __init__(self, pipe: Pipe, *, owned: bool) -> None:
        """Take over `pipe`, to be closed in the end if it is `owned`."""
        self._pipe, self._owned = pipe, owned
        self._can_wait = _has_descriptor(pipe)
        self._ahead = b""
        self.taken_bytes = 0

    def peek(self, size: int) -> bytes:
        """Give the next `size` bytes, and again when they are read; fewer where the pipe ends before."""
        while len(self._ahead) < size:
            chunk = self._next(None, size - len(self._ahead))
            if not chunk:
                break
            self._ahead += chunk
        return self._ahead[:size]

    def read(self, size: int) -> bytes:
        """Wait for bytes and give them, up to `size`, with those that come soon after; none at the end."""
        chunks = [self.read1(min(size, _CHUNK_BYTES))]
        missing, deadline = size - len(chunks[0]), monotonic() + _GATHERED_SECONDS
        while chunks[-1] and missing:
            chunks.append(self._next(deadline, min(missing, _CHUNK_BYTES)))
            missing -= len(chunks[-1])
        return b"".join(chunks)

    def read1(self, size: int) -> bytes:
        """Give what is there, up to `size`; wait only where nothing is."""
        if not self._ahead:
            return self._next(None, size)
        given, self._ahead = self._ahead[:size], self._ahead[size:]
        return given

    def _next(self, deadline: float | None, size: int) -> bytes:
        """Bytes of the pipe itself; none at its end, or where none came before the deadline."""
        # A signal that another thread gets does not interrupt a read: wake up now and then to notice it.
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
        """Nothing can be waited for from outside: some bytes may be here already."""
        raise io.UnsupportedOperation

    def close(self) -> None:
        """Close the pipe, if it is ours."""
        if self._owned:
            self._pipe.close()


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
