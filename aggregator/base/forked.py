"""Guards for a forked child process, which must not use the catalog that its parent has open.

It has copies of the descriptors, without the threads that used them; locks of memory stay locked for good where one of
those held them; and a lock on a file counts as held until the last copy of its descriptor is closed. So the child
closes its copies at once, and everything that a catalog can be asked says in which process to ask. SQLite has locks of
its own in memory, which a child needs as soon as it opens a catalog: no process is forked while a thread is in SQLite.
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
    """Something that holds descriptors, or what is worse."""

    def leave_to_parent(self) -> None:
        """Called in a forked process: close its own copies of descriptors. Takes no lock, touches no file."""


_OPEN: WeakSet[Inherited] = WeakSet()


def leave_when_forked(one: Inherited) -> None:
    """Have `one.leave_to_parent` called in every process that is forked from now on, as long as it lives."""
    _OPEN.add(one)


def _leave_all() -> None:
    for one in list(_OPEN):
        one.leave_to_parent()
    _OPEN.clear()


_AWAITED: WeakSet[Lock] = WeakSet()
_TAKEN: list[Lock] = []
LONGEST_WAIT_S = 5
"""For a lock, before a process is forked all the same: longer than changes of a manifest take."""


def fork_between(lock: Lock) -> None:
    """Have processes forked only while nobody has `lock`, as long as it lives."""
    _AWAITED.add(lock)


def _take_all() -> None:
    _TAKEN.extend(lock for lock in list(_AWAITED) if lock.acquire(timeout=LONGEST_WAIT_S))


def _release_all() -> None:
    while _TAKEN:
        _TAKEN.pop().release()


os.register_at_fork(after_in_child=_leave_all)
os.register_at_fork(before=_take_all, after_in_parent=_release_all, after_in_child=_release_all)


def never_free(one: object) -> None:
    """Keep an object to the end of the process and beyond: closing an inherited SQLite connection, as its finalizer
    does, undoes in shared memory what the parent's transaction has written (SQLite, "How to corrupt", 2.6).
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


class Owner:
    """The process that opened a catalog, the only one that may use what it opened."""

    here = os.getpid()
    """This process; asked for once in each, as every append looks."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._pid = self.here

    @property
    def is_here(self) -> bool:
        """Whether this is that process."""
        return self.here == self._pid

    def check(self) -> None:
        """Raises ClosedError in a process that was forked from it."""
        if self.here != self._pid:
            raise ClosedError(
                f"the catalog was opened by process {self._pid}, and this is process {self.here}, forked from it",
                path=str(self._root),
                hint="open it again in this one: only to read, as long as the other writes to it",
            )


def _name_process() -> None:
    Owner.here = os.getpid()


os.register_at_fork(after_in_child=_name_process)
