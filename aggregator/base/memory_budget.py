"""Memory budget of unsealed events: reserved before a batch is stored, released once it is sealed."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from aggregator.errors import OverloadedError

MIN_RETRY_S, MAX_RETRY_S = 0.05, 5.0
RETRY_DIVISOR = 4
"""`Retry-After` is at least 1/RETRY_DIVISOR of the time since the first refusal after sealing last freed memory."""


class Budget:
    """Counts reserved bytes, and how fast they are freed. Thread-safe."""

    def __init__(self, limit_bytes: int, problem: Callable[[], str | None] = lambda: None) -> None:
        """problem: returns why nothing is being freed, if known."""
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.wanted_bytes = 0
        """Bytes of the largest batch refused since memory was last freed by sealing."""
        self._problem, self._lock = problem, Lock()
        self._rate = 50e6  # bytes freed per second; a guess until some are freed
        self._freed_at = time.monotonic()
        self._refused_at: float | None = None  # the first refusal since memory was freed

    @property
    def is_at_ease(self) -> bool:
        """Whether at least half is free, so that deferrable work can run."""
        return self.held_bytes <= self.limit_bytes // 2

    def reserve(self, size_bytes: int) -> None:
        """Reserve bytes. Raises OverloadedError immediately if they would exceed the limit."""
        with self._lock:
            self.check(size_bytes)
            self.held_bytes += size_bytes

    def check(self, size_bytes: int) -> None:
        """Raises OverloadedError if reserving this many bytes now would exceed the limit."""
        if self.held_bytes + size_bytes > self.limit_bytes:
            self.wanted_bytes = max(self.wanted_bytes, size_bytes)
            held = f"unsealed events hold {self.held_bytes:,} of {self.limit_bytes:,} bytes of memory"
            raise self.refusal(held, size_bytes, self.limit_bytes)

    def add_existing(self, size_bytes: int) -> None:
        """Count bytes that already exist, such as after a crash, even beyond the limit."""
        with self._lock:
            self.held_bytes += size_bytes

    def release(self, size_bytes: int, *, sealed: bool = False) -> None:
        """Release bytes. sealed: they were freed by sealing, which updates the rate for retry times."""
        now = time.monotonic()
        with self._lock:
            self.held_bytes -= size_bytes
            if sealed:
                self._rate = (self._rate + size_bytes / max(now - self._freed_at, 0.01)) / 2
                self._freed_at = now
                self._refused_at = None
                self.wanted_bytes = 0

    def refusal(self, full: str, size_bytes: int, limit_bytes: int) -> OverloadedError:
        """The error for bytes that do not fit: what is full, why nothing is being freed, and when to retry."""
        why = self._problem()
        return OverloadedError(
            full if why is None else f"{full}, and {why}",
            hint="append again later; nothing of this batch was kept",
            retry_after_s=self._retry_after_s(size_bytes, limit_bytes),
        )

    def _retry_after_s(self, size_bytes: int, limit_bytes: int) -> float:
        """Estimate when this many bytes will be free; longer while nothing is being freed, whatever the reason."""
        over = size_bytes + limit_bytes / 8  # so that callers do not all return for the first free byte
        now = time.monotonic()
        refused_at = self._refused_at or now
        self._refused_at = refused_at
        return min(max(over / self._rate, (now - refused_at) / RETRY_DIVISOR, MIN_RETRY_S), MAX_RETRY_S)
