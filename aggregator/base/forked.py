"""Guards for a forked child process, which must not use the catalog that its parent has open.

The child has copies of the descriptors, but not the threads that used them. Locks in memory that such a thread held
stay locked forever, and a file lock counts as held until the last copy of its descriptor is closed. So the child closes
its copies immediately, and every operation on a catalog checks which process it runs in. SQLite has locks in memory,
too, which a child needs as soon as it opens a catalog: so no process is forked while a thread is inside SQLite.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from threading import Lock
from typing import Protocol
from weakref import WeakSet

from esformat import ClosedError


class Inherited(Protocol):
    """An object whose descriptors, or more, a forked process must not use."""

    def leave_to_parent(self) -> None:
        """Called in a forked process: close its own copies of descriptors. Must not take locks or touch files."""


_OPEN: WeakSet[Inherited] = WeakSet()


def leave_when_forked(one: Inherited) -> None:
    """Call `one.leave_to_parent` in every process forked from now on, as long as `one` lives."""
    _OPEN.add(one)


def _leave_all() -> None:
    for one in list(_OPEN):
        one.leave_to_parent()
    _OPEN.clear()


_AWAITED: WeakSet[Lock] = WeakSet()
_TAKEN: list[Lock] = []
LONGEST_WAIT_S = 5
"""Longest wait for a lock before the process is forked anyway; longer than any change of a manifest takes."""


def fork_between(lock: Lock) -> None:
    """Fork processes only while no thread holds `lock`, as long as the lock lives."""
    _AWAITED.add(lock)


def _take_all() -> None:
    _TAKEN.extend(lock for lock in list(_AWAITED) if lock.acquire(timeout=LONGEST_WAIT_S))


def _release_all() -> None:
    while _TAKEN:
        _TAKEN.pop().release()


os.register_at_fork(after_in_child=_leave_all)
os.register_at_fork(before=_take_all, after_in_parent=_release_all, after_in_child=_release_all)


def never_free(one: object) -> None:
    """Keep an object to the end of the process and beyond. Closing an inherited SQLite connection, as its finalizer
    does, undoes in shared memory what the parent's transaction has written (SQLite, "How to corrupt", 2.6).
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


class Owner:
    """The process that opened a catalog, the only one that may use the opened objects."""

    here = os.getpid()
    """This process; looked up once per process, because every append checks it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pid = self.here

    @property
    def is_here(self) -> bool:
        """Whether this is the process that opened the catalog."""
        return self.here == self._pid

    def check(self) -> None:
        """Raises ClosedError in a process forked from the owner."""
        if self.here != self._pid:
            raise ClosedError(
                f"the catalog was opened by process {self._pid}, and this is process {self.here}, forked from it",
                path=str(self._root),
                hint="open it again in this one: only to read, as long as the other writes to it",
            )


def _name_process() -> None:
    Owner.here = os.getpid()


os.register_at_fork(after_in_child=_name_process)
