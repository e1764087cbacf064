"""A file's bytes written by a thread, so that what comes next is read and verified meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO

LEAST_BYTES = 64 << 10
"""Of fewer, the thread costs more than it saves."""


class WriteBehind:
    """Takes bytes in order; the last that were many may still be on their way to the file."""

    def __init__(self, file: BinaryIO, pool: ThreadPoolExecutor) -> None:
        self._file, self._pool = file, pool
        self._last: Future[int] | None = None

    def write(self, data: bytes) -> None:
        """Write the next bytes. Raises OSError, also for those before."""
        self.wait()
        if len(data) < LEAST_BYTES:
            self._file.write(data)
        else:
            self._last = self._pool.submit(self._file.write, data)

    def wait(self) -> None:
        """See that everything reached the file. Raises OSError."""
        last, self._last = self._last, None
        if last is not None:
            last.result()


@contextmanager
def write_behind(file: BinaryIO) -> Iterator[WriteBehind]:
    """Everything was written when the block ends well. Raises OSError."""
    with ThreadPoolExecutor(1, thread_name_prefix="esformat-write") as pool:
        sink = WriteBehind(file, pool)
        yield sink
        sink.wait()
