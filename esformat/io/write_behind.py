"""A file's bytes written by a thread, so that what comes next is read and verified meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO

MOST_BYTES = 4 << 20
"""What waits to be written, before more is taken; a piece that is larger waits alone."""


class WriteBehind:
    """Takes bytes in order; the last ones may still be on their way to the file."""

    def __init__(self, file: BinaryIO, pool: ThreadPoolExecutor) -> None:
        """pool: of one thread, so that bytes are written in order."""
        self._file, self._pool = file, pool
        self._waiting: deque[tuple[int, Future[int]]] = deque()
        self._bytes = 0

    def write(self, data: bytes | memoryview) -> None:
        """Take the next bytes. Raises OSError, also for those before."""
        self.wait(MOST_BYTES - len(data))
        self._waiting.append((len(data), self._pool.submit(self._file.write, data)))
        self._bytes += len(data)

    def wait(self, most: int = 0) -> None:
        """See that no more bytes than `most` have yet to reach the file. Raises OSError."""
        while self._waiting and self._bytes > most:
            size, written = self._waiting.popleft()
            self._bytes -= size
            written.result()


@contextmanager
def write_behind(file: BinaryIO) -> Iterator[WriteBehind]:
    """Everything was written when the block ends well. Raises OSError."""
    with ThreadPoolExecutor(1, thread_name_prefix="esformat-write") as pool:
        sink = WriteBehind(file, pool)
        yield sink
        sink.wait()
