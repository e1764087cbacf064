"""Which scans are under way, so that no file goes while one may still read it.

A scan pins the change of the manifest that its snapshot shows. A segment that was retired by a later change is in that
snapshot. In this process scans are counted; other processes see a lock on the byte of `readers.lock` whose offset is
the change, and the kernel drops it when a reader dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
from collections import Counter, deque
from pathlib import Path
from threading import Lock

_FLOCK = "hhqqi"  # type, whence, start, length, process: Linux's struct flock


def _lock(descriptor: int, kind: int, start: int, length: int) -> None:
    """Lock or unlock bytes; waits where another's lock is in the way, which no reader meets on Linux.

    There by the lock of an open file: a lock of a process would be the same for every catalog that the process has
    open, and go when the first of them is closed.
    """
    if sys.platform == "linux":
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0))
    else:
        fcntl.lockf(descriptor, fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_SH, length, start)


def _is_locked(descriptor: int, start: int, length: int) -> bool:
    """Whether another open file holds a lock on one of these bytes.

    Linux is asked without taking a lock: one that is held for a moment only would still be in the way of a reader that
    begins in that moment. Elsewhere the reader waits for that moment to pass.
    """
    if sys.platform == "linux":
        question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        found: int = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, question))[0]
        locked = found != fcntl.F_UNLCK
    else:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
            fcntl.lockf(descriptor, fcntl.LOCK_UN, length, start)
            locked = False
        except OSError:
            locked = True
    return locked


class Pins:
    """The scans of this process. Safe to share between threads."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        """path: `readers.lock`; the writer makes it. As long as it is not there a reader pins nothing for others."""
        self._path, self._flags = path, os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT
        self._lock = Lock()
        self._counts: Counter[int] = Counter()
        self._let_go: deque[int] = deque()  # of these counts
        self._descriptor = -1
        self._closed = False
        self._open()

    def _open(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._descriptor = os.open(self._path, self._flags | os.O_CLOEXEC, 0o666)
            for change in self._counts:
                _lock(self._descriptor, fcntl.F_RDLCK, change, 1)

    def take(self, change: int) -> Pin:
        """Pin a change until the pin is released or forgotten."""
        with self._lock:
            if self._descriptor < 0 and not self._closed:
                self._open()
            if not self._counts[change] and self._descriptor >= 0:
                _lock(self._descriptor, fcntl.F_RDLCK, change, 1)
            self._counts[change] += 1
        self._settle()
        return Pin(self, change)

    def _release(self, change: int) -> None:
        """Never waits: the garbage collector may call this in a thread that holds the lock, which then settles it."""
        self._let_go.append(change)
        self._settle()

    def _settle(self) -> None:
        """Count out what was let go of, unless somebody is at it."""
        while self._let_go and self._lock.acquire(blocking=False):
            try:
                self._count_out()
            finally:
                self._lock.release()

    def _count_out(self) -> None:
        while self._let_go:
            change = self._let_go.popleft()
            self._counts[change] -= 1
            if not self._counts[change]:
                del self._counts[change]
                if self._descriptor >= 0:
                    _lock(self._descriptor, fcntl.F_UNLCK, change, 1)

    def holds_before(self, change: int) -> bool:
        """Whether a scan of any process reads a snapshot older than `change`. The writer asks."""
        with self._lock:
            self._count_out()
            held = min(self._counts, default=change) < change
            if not held and change and self._descriptor >= 0:
                held = _is_locked(self._descriptor, 0, change)  # our own are not counted; none is below `change`
        self._settle()
        return held

    def close(self) -> None:
        """Let go of all pins."""
        with self._lock:
            self._closed = True
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


class Pin:
    """One scan's hold on the files of its snapshot."""

    __slots__ = ("_change", "_pins")

    def __init__(self, pins: Pins, change: int) -> None:
        self._pins: Pins | None = pins
        self._change = change

    def release(self) -> None:
        """Let go. A second call does nothing."""
        pins, self._pins = self._pins, None
        if pins is not None:
            pins._release(self._change)

    def __del__(self) -> None:
        self.release()
