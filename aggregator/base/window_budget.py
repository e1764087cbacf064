"""Memory budget of the windows that scans buffer, shared by all scans of a catalog.

A scan sorts a window of a segment, and holds it until its reader has consumed it. Each window takes a share of the
remaining budget: a single scan reads in large windows, and many slow readers together hold little more than the budget.
Windows that are merged with one another take equal shares, because the smallest limits the speed of the merge.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore, Lock

WINDOWS_BYTES = 64 << 20
"""Limit for all windows together, apart from the minimum of each."""
SHARE = 2
"""A window takes at most 1/SHARE of the remaining budget.

Large windows are faster: a block is decoded once for each window that has rows of it.
"""
LEAST_BYTES = 2 << 20
"""Minimum size of a window. It is granted even if nothing remains, so that slow readers block nobody."""
LEAST_OF_SPACE_BYTES = 128 << 10
"""The same minimum for a window of a single space; smaller windows cost little more there."""
MADE_AT_ONCE = max(2, os.cpu_count() or 1)
"""Windows built concurrently. More would be no faster."""


class Window:
    """The share of one window. bytes: its maximum size."""

    def __init__(self, budget: WindowBudget, least_bytes: int, merged: int) -> None:
        self._budget = budget
        self.bytes = budget.reserve(least_bytes, merged)
        self._held = self.bytes

    def resize(self, size_bytes: int) -> None:
        """Set the held bytes to what the window actually needs."""
        self._budget.release(self._held - size_bytes)
        self._held = size_bytes

    def close(self) -> None:
        """Release all of it."""
        self.resize(0)


class WindowBudget:
    """Counts the bytes of windows that are held. Thread-safe."""

    def __init__(self, limit_bytes: int = WINDOWS_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.waiting = 0
        """Scans that wait to build a window."""
        self._places = BoundedSemaphore(MADE_AT_ONCE)
        self._lock = Lock()

    def reserve(self, least_bytes: int, merged: int) -> int:
        """Take a share, and return its bytes."""
        with self._lock:
            left = self.limit_bytes - self.held_bytes
            share = max(least_bytes, min(left // SHARE, self.limit_bytes // (merged + 1)))
            self.held_bytes += share
            return share

    def release(self, size_bytes: int) -> None:
        """Release bytes; negative: take more, without a check."""
        with self._lock:
            self.held_bytes -= size_bytes

    @contextmanager
    def making(self) -> Iterator[None]:
        """Wait for a slot to read and sort a window, which takes several times its bytes."""
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
        """A share for the duration of the block. merged: number of windows that are merged with one another."""
        window = Window(self, least_bytes, merged)
        try:
            yield window
        finally:
            window.close()
