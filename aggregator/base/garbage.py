"""Python's search for garbage, which looks through all that lives again and again while very much is made."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def none_looked_for() -> Iterator[None]:
    """Make much that stays, and look for garbage afterwards: a quarter of opening a catalog of 100,000 segments."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
