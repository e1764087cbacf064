"""Memory budget of the windows that scans buffer, shared by all scans of a catalog.

A scan puts a window of a segment into order, and holds it until its reader has taken it. Each window takes a share of
what is left of the budget: a scan alone reads in large windows, and many slow readers together hold little more than
the budget. Windows that are merged with one another take equal shares: the answer comes no faster than the smallest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, Lock

WINDOWS_BYTES = 64 << 20
"""Of all windows together, beyond the least for each."""
SHARE = 2
"""A window takes one part in so many of what is left. Large windows are quicker: a block is decoded once for each
window that has rows of it.
"""
LEAST_BYTES = 2 << 20
"""A window that finds nothing left is made all the same, of so many bytes: slow readers keep nobody waiting."""
LEAST_OF_SPACE_BYTES = 128 << 10
"""The same for one of a single space, of which smaller windows cost little more."""
MADE_AT_ONCE = max(2, os.cpu_count() or 1)
"""More at a time would be no faster."""


class Window:
    """The share of one window. bytes: how large it may be."""

    def __init__(self, budget: WindowBudget, least_bytes: int, merged: int) -> None:
        self._budget = budget
        self.bytes = budget.take(least_bytes, merged)
        self._held = self.bytes

    def keep(self, size_bytes: int) -> None:
        """Hold so many bytes from now on: what the window turned out to need."""
        self._budget.give_back(self._held - size_bytes)
        self._held = size_bytes

    def close(self) -> None:
        """Give all of it back."""
        self.keep(0)


class WindowBudget:
    """Counts the bytes of windows that are held. Safe to share between threads."""

    def __init__(self, limit_bytes: int = WINDOWS_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.waiting = 0
        """Scans that wait to make a window."""
        self._places = BoundedSemaphore(MADE_AT_ONCE)
        self._lock = Lock()

    def take(self, least_bytes: int, merged: int) -> int:
        """Take a share, and give its bytes."""
        with self._lock:
            left = self.limit_bytes - self.held_bytes
            share = max(least_bytes, min(left // SHARE, self.limit_bytes // (merged + 1)))
            self.held_bytes += share
            return share

    def give_back(self, size_bytes: int) -> None:
        """Free bytes again; negative: take more, unasked."""
        with self._lock:
            self.held_bytes -= size_bytes

    @contextmanager
    def making(self) -> Iterator[None]:
        """A place to read a window and put it into order, which takes several times its bytes; waits for one."""
        if not self._places.acquire(blocking=False):
            self._wait()
        try:
            yield
        finally:
            self._places.release()

    def _wait(self) -> None:
        with self._lock:
            self.waiting += 1
        try:
            self._places.acquire()
        finally:
            with self._lock:
                self.waiting -= 1

    @contextmanager
    def window(self, least_bytes: int = LEAST_BYTES, merged: int = 1) -> Iterator[Window]:
        """A share for as long as the block lasts. merged: so many windows are merged with one another."""
        window = Window(self, least_bytes, merged)
        try:
            yield window
        finally:
            window.close()
