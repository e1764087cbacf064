"""One check for changes per request, so that a remote source is not polled several times for the same request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LOOKED: ContextVar[set[int] | None] = ContextVar("looked", default=None)
"""Ids of the objects that were checked for the current request."""


@contextmanager
def one_look() -> Iterator[None]:
    """Within this context, check each object once; later changes are for the next request."""
    if _LOOKED.get() is not None:
        yield
        return
    token = _LOOKED.set(set())
    try:
        yield
    finally:
        _LOOKED.reset(token)


def is_first_look(one: object) -> bool:
    """Whether the object has not been checked yet for the current request; it counts as checked from then on."""
    looked = _LOOKED.get()
    if looked is None:
        return True
    if id(one) in looked:
        return False
    looked.add(id(one))
    return True
