"""Notify waiting readers of new events, without polling."""

from __future__ import annotations

import time
from threading import Condition


class Arrivals:
    """Counts arrivals. Notifying costs next to nothing while nobody waits."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._waiting = 0
        self._count = 0
        self._ended = False

    @property
    def count(self) -> int:
        """Number of arrivals. Read it before checking for data, and then wait for more."""
        return self._count

    @property
    def ended(self) -> bool:
        """Whether nothing more will arrive."""
        return self._ended

    def notify(self) -> None:
        """Count an arrival that is already visible, and wake waiting readers."""
        self._count += 1  # under the caller's lock
        if self._waiting:
            with self._condition:
                self._condition.notify_all()

    def end(self) -> None:
        """Wake everybody, because nothing more will arrive."""
        with self._condition:
            self._ended = True
            self._condition.notify_all()

    def wait(self, count: int, timeout_s: float | None) -> bool:
        """Wait until something arrives after `count`, or `end` is called; False after `timeout_s` seconds."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        with self._condition:
            self._waiting += 1
            try:
                while self._count == count and not self._ended:
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        return False
                    self._condition.wait(left)
                return True
            finally:
                self._waiting -= 1
