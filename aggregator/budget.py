"""Memory that unsealed events may take: reserved before a batch is stored, given back when it lies in a segment."""

from __future__ import annotations

import time
from threading import Lock

from aggregator.errors import OverloadedError

MIN_RETRY_S, MAX_RETRY_S = 0.05, 5.0


class Budget:
    """Counts bytes held, and how fast they come free. Safe to share between threads."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._lock = Lock()
        self._rate = 50e6  # bytes that come free in a second; a guess until some did
        self._freed_at = time.monotonic()

    def reserve(self, size_bytes: int) -> None:
        """Take so many bytes. Raises OverloadedError, at once, where they would pass the limit."""
        with self._lock:
            self.check(size_bytes)
            self.held_bytes += size_bytes

    def check(self, size_bytes: int) -> None:
        """Raises OverloadedError where so many bytes would pass the limit now."""
        if self.held_bytes + size_bytes > self.limit_bytes:
            raise OverloadedError(
                f"unsealed events hold {self.held_bytes:,} of {self.limit_bytes:,} bytes of memory",
                hint="append again later; nothing of this batch was kept",
                retry_after_s=self.retry_after_s(size_bytes),
            )

    def take(self, size_bytes: int) -> None:
        """Count bytes that are there already, as after a crash, limit or not."""
        with self._lock:
            self.held_bytes += size_bytes

    def give_back(self, size_bytes: int, *, sealed: bool = False) -> None:
        """Free bytes again."""
        now = time.monotonic()
        with self._lock:
            self.held_bytes -= size_bytes
            if sealed:
                self._rate = (self._rate + size_bytes / max(now - self._freed_at, 0.01)) / 2
                self._freed_at = now

    def retry_after_s(self, size_bytes: int, limit_bytes: int | None = None) -> float:
        """About when so many bytes will be free; of `limit_bytes` where another limit than the budget's is meant."""
        limit = self.limit_bytes if limit_bytes is None else limit_bytes
        over = size_bytes + limit / 8  # so that not everybody comes back for the first free byte
        return min(max(over / self._rate, MIN_RETRY_S), MAX_RETRY_S)
