"""One check for changes per request, so that a remote source is not polled several times for the same request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_REFRESHED: ContextVar[set[int] | None] = ContextVar("refreshed", default=None)
"""Ids of the objects that were checked for the current request."""


@contextmanager
def one_refresh() -> Iterator[None]:
    """Within this context, check each object once; later changes are for the next request."""
    if _REFRESHED.get() is not None:
        yield
        return
    token = _REFRESHED.set(set())
    try:
        yield
    finally:
        _REFRESHED.reset(token)


def needs_refresh(one: object) -> bool:
    """Whether the object has not been checked yet for the current request; it counts as checked from then on."""
    refreshed = _REFRESHED.get()
    if refreshed is None:
        return True
    if id(one) in refreshed:
        return False
    refreshed.add(id(one))
    return True
