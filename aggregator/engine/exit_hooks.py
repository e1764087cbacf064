"""Close catalogs that are still open when the program exits."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol


class Closable(Protocol):
    """Something that works in the background until it is closed."""

    def close(self) -> None:
        """Release everything."""


_OPEN: dict[Closable, Callable[[], None]] = {}


def close_at_exit(one: Closable, stop_background: Callable[[], None]) -> None:
    """Have `one` closed when the program exits, unless `closed` is called before.

    stop_background: ends its background work and starts no more.
    """
    _OPEN[one] = stop_background


def closed(one: Closable) -> None:
    """Forget `one`, which is closed."""
    _OPEN.pop(one, None)


def _stop_all_background() -> None:
    for stop_background in list(_OPEN.values()):
        stop_background()


def _close_all() -> None:
    for one in list(_OPEN):
        one.close()


# The pools of `concurrent.futures` refuse work as soon as the main thread has ended, which is before `atexit` callbacks
# run: background work must have ended by then. `threading._register_atexit`, which those pools use themselves, is the
# only hook before that. Its callbacks run in reverse order, so this one, registered after the import of the pools, runs
# first. Threads of the program may still append.
assert ThreadPoolExecutor is not None
threading._register_atexit(_stop_all_background)  # type: ignore[attr-defined]
atexit.register(_close_all)
