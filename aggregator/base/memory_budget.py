"""Memory budget of unsealed events: reserved before a batch is stored, released once it is sealed."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from aggregator.errors import OverloadedError

MIN_RETRY_S, MAX_RETRY_S = 0.05, 5.0
PATIENCE = 4
"""`Retry-After` as a fraction of the time since memory was last freed."""


class Budget:
    """Counts bytes held, and how fast they come free. Safe to share between threads."""

    def __init__(self, limit_bytes: int, problem: Callable[[], str | None] = lambda: None) -> None:
        """problem: tells why nothing comes free, where that is known."""
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.wanted_bytes = 0
        """What the largest batch takes that was refused since something came free."""
        self._problem, self._lock = problem, Lock()
        self._rate = 50e6  # bytes that come free in a second; a guess until some did
        self._freed_at = time.monotonic()
        self._refused_at: float | None = None  # first since something came free

    @property
    def is_at_ease(self) -> bool:
        """Whether half is free: then there is time for what can wait."""
        return self.held_bytes <= self.limit_bytes // 2

    def reserve(self, size_bytes: int) -> None:
        """Take so many bytes. Raises OverloadedError, at once, where they would pass the limit."""
        with self._lock:
            self.check(size_bytes)
            self.held_bytes += size_bytes

    def check(self, size_bytes: int) -> None:
        """Raises OverloadedError where so many bytes would pass the limit now."""
        if self.held_bytes + size_bytes > self.limit_bytes:
            self.wanted_bytes = max(self.wanted_bytes, size_bytes)
            held = f"unsealed events hold {self.held_bytes:,} of {self.limit_bytes:,} bytes of memory"
            raise self.refusal(held, size_bytes, self.limit_bytes)

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
                self._refused_at = None
                self.wanted_bytes = 0

    def refusal(self, full: str, size_bytes: int, limit_bytes: int) -> OverloadedError:
        """The error for so many bytes that do not fit: what is full, why nothing comes free, when to try again."""
        why = self._problem()
        return OverloadedError(
            full if why is None else f"{full}, and {why}",
            hint="append again later; nothing of this batch was kept",
            retry_after_s=self._retry_after_s(size_bytes, limit_bytes),
        )

    def _retry_after_s(self, size_bytes: int, limit_bytes: int) -> float:
        """About when so many bytes of a limit will be free; longer while nothing comes free, whatever the reason."""
        over = size_bytes + limit_bytes / 8  # so that not everybody comes back for the first free byte
        now = time.monotonic()
        refused_at = self._refused_at or now
        self._refused_at = refused_at
        return min(max(over / self._rate, (now - refused_at) / PATIENCE, MIN_RETRY_S), MAX_RETRY_S)
