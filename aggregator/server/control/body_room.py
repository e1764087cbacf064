"""`BodyRoom`: a limit on the bytes of request bodies that are processed at the same time, over all threads.

From reading to storing, a body takes several times its size in memory. Large bodies in many threads would exceed every
other limit, so the threads wait for each other.
"""

from __future__ import annotations

from threading import Condition, local

PATIENCE_S = 30.0
"""Seconds after which a thread continues without room, so that one stuck body cannot block all others."""


class BodyRoom:
    """Thread-safe. Room belongs to the thread that took it until that thread gives all of it back."""

    def __init__(self, limit_bytes: int) -> None:
        self.held_bytes = 0
        self._limit_bytes = limit_bytes
        self._freed = Condition()
        self._thread = local()

    def reserve(self, size_bytes: int) -> None:
        """Wait until there is room for a body. A body larger than the limit waits until it is the only one."""
        own: int = getattr(self._thread, "held_bytes", 0)
        with self._freed:
            if not own:  # else it would wait for itself
                self._freed.wait_for(
                    lambda: not self.held_bytes or self.held_bytes + size_bytes <= self._limit_bytes, PATIENCE_S
                )
            self.held_bytes += size_bytes
        self._thread.held_bytes = own + size_bytes

    def release(self) -> None:
        """Release all room of this thread."""
        own: int = getattr(self._thread, "held_bytes", 0)
        if own:
            self._thread.held_bytes = 0
            with self._freed:
                self.held_bytes -= own
                self._freed.notify_all()
