"""Locks in forked processes: none of them stays locked for good because a thread held it that the child lacks."""

from __future__ import annotations

import os
from threading import Lock
from typing import Any
from weakref import WeakSet

_LOCKING: WeakSet[Any] = WeakSet()


def unlock_in_forks(one: Any) -> None:
    """Give `one` another `_lock` in every process that is forked from now on, as long as it lives.

    What the lock guards may be read half changed there: it must be good for any caller at any step.
    """
    _LOCKING.add(one)


def _unlock_all() -> None:
    for one in list(_LOCKING):
        one._lock = Lock()


os.register_at_fork(after_in_child=_unlock_all)
