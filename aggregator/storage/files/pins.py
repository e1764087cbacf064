"""Pins of running scans: no file is deleted while a scan may read it.

A scan pins the manifest change that its snapshot shows. A segment retired by a later change is still in that snapshot.
Scans in this process are counted. Other processes see a lock on the byte of `readers.lock` at the offset of the change;
the kernel releases it when a reader dies.
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

from aggregator.base.forked import leave_when_forked
from aggregator.storage.files.layout import same_file
from aggregator.storage.files.modes import create_file

_FLOCK = "hhqqi"  # type, whence, start, length, process: Linux's struct flock


_ALL = 1 << 62
"""A byte count larger than the number of changes will ever be."""


def _lock(descriptor: int, kind: int, start: int, length: int) -> None:
    """Lock or unlock bytes; waits for a conflicting lock, which no reader meets on Linux.

    On Linux the lock belongs to the open file description. A lock of the process would be shared by all catalogs that
    the process has open, and released when the first of them is closed.
    """
    if sys.platform == "linux":
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLKW, struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0))
    else:
        fcntl.lockf(descriptor, fcntl.LOCK_UN if kind == fcntl.F_UNLCK else fcntl.LOCK_SH, length, start)


def _is_locked(descriptor: int, length: int) -> bool:
    """Whether another open file holds a lock on one of the first `length` bytes.

    On Linux this queries the lock without taking it: even a momentary lock would block a reader that starts at that
    moment. On other systems such a reader waits.
    """
    if sys.platform == "linux":
        question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, length, 0)
        found: int = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, question))[0]
        locked = found != fcntl.F_UNLCK
    else:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, length)
            fcntl.lockf(descriptor, fcntl.LOCK_UN, length)
            locked = False
        except OSError:
            locked = True
    return locked


class Pins:
    """The scans of this process. Thread-safe."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        """path: `readers.lock`, created by the writer. Until it exists, a reader's pins are invisible to others."""
        self._path, self._read_only = path, read_only
        self._lock = Lock()
        self._counts: Counter[int] = Counter()
        self._released: deque[int] = deque()  # changes whose released pins are not yet subtracted from the counts
        self._descriptor = -1
        self._file: os.stat_result | None = None
        self._replaced: list[int] = []  # in the writer: previous files of that name, while readers hold locks on them
        self._closed = False
        leave_when_forked(self)
        self._open()

    def _open(self) -> None:
        """Open the file that has the name now, if it is a new one, and lock the pinned changes in it."""
        if self._closed or (self._file is not None and same_file(self._path, self._file)):
            return
        with contextlib.suppress(FileNotFoundError):
            if self._read_only:
                descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            else:
                descriptor = create_file(self._path, os.O_RDWR)
            for change in self._counts:
                _lock(descriptor, fcntl.F_RDLCK, change, 1)
            if self._descriptor >= 0:
                self._replaced.append(self._descriptor)
            self._descriptor, self._file = descriptor, os.fstat(descriptor)
            if self._read_only:
                self._drop_replaced()

    def leave_to_parent(self) -> None:
        """In a forked process: the pins belong to the parent, and end when it releases them or dies."""
        self._closed = True
        mine, self._replaced, self._descriptor = [self._descriptor, *self._replaced], [], -1
        for descriptor in mine:
            if descriptor >= 0:
                os.close(descriptor)

    def take(self, change: int) -> Pin:
        """Pin a change until the pin is released or forgotten."""
        with self._lock:
            self._open()
            if not self._counts[change] and self._descriptor >= 0:
                _lock(self._descriptor, fcntl.F_RDLCK, change, 1)
            self._counts[change] += 1
        self._settle()
        return Pin(self, change)

    def _release(self, change: int) -> None:
        """Release a pin without waiting.

        The garbage collector may call this in a thread that holds the lock. That thread then applies the release.
        """
        self._released.append(change)
        self._settle()

    def _settle(self) -> None:
        """Subtract released pins from the counts, unless another thread holds the lock."""
        while self._released and self._lock.acquire(blocking=False):
            try:
                self._count_out()
            finally:
                self._lock.release()

    def _count_out(self) -> None:
        while self._released:
            change = self._released.popleft()
            self._counts[change] -= 1
            if not self._counts[change]:
                del self._counts[change]
                if self._descriptor >= 0:
                    _lock(self._descriptor, fcntl.F_UNLCK, change, 1)

    def keep_file(self) -> None:
        """Recreate a deleted file; otherwise the pins of new readers would be invisible to other processes."""
        with self._lock:
            self._open()
        self._settle()

    def holds_before(self, change: int) -> bool:
        """Whether a scan of any process reads a snapshot older than `change`. Called by the writer."""
        with self._lock:
            self._count_out()
            self._open()
            self._drop_replaced()
            held = min(self._counts, default=change) < change
            for descriptor in [self._descriptor, *self._replaced] if change and not held else ():
                held |= descriptor >= 0 and _is_locked(descriptor, change)  # ours: none below `change`
        self._settle()
        return held

    def _drop_replaced(self) -> None:
        """Close files that lost their name; the writer closes them only when no reader holds a lock on them."""
        for descriptor in list(self._replaced):
            if self._read_only or not _is_locked(descriptor, _ALL):
                self._replaced.remove(descriptor)
                os.close(descriptor)

    def close(self) -> None:
        """Release all pins."""
        with self._lock:
            self.leave_to_parent()


class Pin:
    """One scan's hold on the files of its snapshot."""

    __slots__ = ("_change", "_pins")

    def __init__(self, pins: Pins, change: int) -> None:
        self._pins: Pins | None = pins
        self._change = change

    def release(self) -> None:
        """Release the pin. A second call does nothing."""
        pins, self._pins = self._pins, None
        if pins is not None:
            pins._release(self._change)

    def __del__(self) -> None:
        self.release()
