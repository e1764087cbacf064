"""Write a file's bytes in a thread, so that the next ones are read and verified meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO

MOST_BYTES = 4 << 20
"""Maximum bytes that wait to be written; a larger piece waits alone."""


class WriteBehind:
    """Takes bytes in order; the last ones may not have been written to the file yet."""

    def __init__(self, file: BinaryIO, pool: ThreadPoolExecutor) -> None:
        """pool: of one thread, so that bytes are written in order."""
        self._file, self._pool = file, pool
        self._waiting: deque[tuple[int, Future[int]]] = deque()
        self._bytes = 0

    def write(self, data: bytes | memoryview) -> None:
        """Take the next bytes. Raises OSError, also for earlier ones."""
        self.wait(MOST_BYTES - len(data))
        self._waiting.append((len(data), self._pool.submit(self._file.write, data)))
        self._bytes += len(data)

    def wait(self, most: int = 0) -> None:
        """Wait until at most `most` bytes are still to be written. Raises OSError."""
        while self._waiting and self._bytes > most:
            size, written = self._waiting.popleft()
            self._bytes -= size
            written.result()


@contextmanager
def write_behind(file: BinaryIO) -> Iterator[WriteBehind]:
    """Yield a `WriteBehind` for a file. When the block ends normally, everything is written. Raises OSError."""
    with ThreadPoolExecutor(1, thread_name_prefix="esformat-write") as pool:
        sink = WriteBehind(file, pool)
        yield sink
        sink.wait()
