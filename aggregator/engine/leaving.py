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
        """Let go of everything."""


_OPEN: dict[Closable, Callable[[], None]] = {}


def close_at_exit(one: Closable, rest: Callable[[], None]) -> None:
    """Have `one` closed when the program ends, unless `closed` is called before.

    rest: ends what is done in the background, and begins nothing more.
    """
    _OPEN[one] = rest


def closed(one: Closable) -> None:
    """It is closed."""
    _OPEN.pop(one, None)


def _rest_all() -> None:
    for rest in list(_OPEN.values()):
        rest()


def _close_all() -> None:
    for one in list(_OPEN):
        one.close()


# The pools of `concurrent.futures` refuse work as soon as the main thread has ended, before `atexit` is called: work in
# the background must have ended by then. What they are ended by themselves, registered when they are imported, is the
# only place before that; what is registered later is called earlier. Threads of the program may append still.
assert ThreadPoolExecutor is not None
threading._register_atexit(_rest_all)  # type: ignore[attr-defined]
atexit.register(_close_all)
