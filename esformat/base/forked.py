"""Replace locks in forked processes, where a lock that another thread held would never be released."""

from __future__ import annotations

import os
from threading import Lock
from typing import Any
from weakref import WeakSet

_LOCKING: WeakSet[Any] = WeakSet()


def unlock_in_forks(one: Any) -> None:
    """Replace the attribute `_lock` of `one` in every process that is forked from now on, while `one` is alive.

    The child may see the guarded state halfway through a change, so the state must be valid after every step.
    """
    _LOCKING.add(one)


def _unlock_all() -> None:
    for one in list(_LOCKING):
        one._lock = Lock()


os.register_at_fork(after_in_child=_unlock_all)
