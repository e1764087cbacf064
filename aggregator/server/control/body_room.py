"""`BodyRoom`: a limit on the bytes of request bodies processed at once, over all threads.

What a body takes in memory is several times its bytes from when it is read to when it is stored. Where many threads had
a large one each, that would be more than any other limit; so they wait for each other.
"""

from __future__ import annotations

from threading import Condition, local

PATIENCE_S = 30.0
"""A thread goes on after that long, room or not: whatever holds the room up must not hold everything up."""


class BodyRoom:
    """Safe to share between threads. Room belongs to the thread that took it, until that gives all of it back."""

    def __init__(self, limit_bytes: int) -> None:
        self.held_bytes = 0
        self._limit_bytes = limit_bytes
        self._freed = Condition()
        self._thread = local()

    def take(self, size_bytes: int) -> None:
        """Wait until there is room for a body; one that is larger than all of the room waits until it is alone."""
        own: int = getattr(self._thread, "held_bytes", 0)
        with self._freed:
            if not own:  # else it would wait for itself
                self._freed.wait_for(
                    lambda: not self.held_bytes or self.held_bytes + size_bytes <= self._limit_bytes, PATIENCE_S
                )
            self.held_bytes += size_bytes
        self._thread.held_bytes = own + size_bytes

    def give_back(self) -> None:
        """Free what this thread has taken."""
        own: int = getattr(self._thread, "held_bytes", 0)
        if own:
            self._thread.held_bytes = 0
            with self._freed:
                self.held_bytes -= own
                self._freed.notify_all()
