"""`Lanes`: producers and sequences for calls that run at the same time.

A server remembers a producer's last batches only. Each call therefore borrows a lane, a producer of its own, for as
long as it lasts: whatever others append meanwhile, its sequence is among the newest of its producer when it is tried
again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Lanes:
    """Safe to share between threads and tasks."""

    def __init__(self, name: str | None = None) -> None:
        """name: what the producers are named after; it must never be used by anybody else, and is drawn if absent."""
        self._name = name or uuid.uuid4().hex
        self._lock = Lock()
        self._made = 0
        self._free: list[tuple[str, int]] = []

    @contextmanager
    def borrow(self) -> Iterator[tuple[str, int]]:
        """A producer and a sequence that nobody else uses, ever. A lane whose call failed has no other after it: the
        server knows the last batch of a producer however much later it is sent again.
        """
        with self._lock:
            if self._free:
                producer, sequence = self._free.pop()
            else:
                producer, sequence = f"{self._name}-{self._made}", 0
                self._made += 1
        yield producer, sequence
        with self._lock:
            self._free.append((producer, sequence + 1))
