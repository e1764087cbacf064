"""`ProducerPool`: producers and sequences for concurrent calls.

A server remembers only a producer's last batches. Each call therefore borrows its own producer until it ends.
However much other calls append meanwhile, the call's sequence is among its producer's newest when it is retried.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class ProducerPool:
    """Thread-safe, and safe to share between tasks."""

    def __init__(self, name: str | None = None) -> None:
        """name: prefix of the producers' names; nobody else may ever use it. Random by default."""
        self._name = name or uuid.uuid4().hex
        self._lock = Lock()
        self._made = 0
        self._free: list[tuple[str, int]] = []

    @contextmanager
    def borrow(self) -> Iterator[tuple[str, int]]:
        """Yield a producer and a sequence that are never used again.

        A producer whose call failed is not reused: that batch stays its last, so the server recognises it
        however late it is sent again.
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
