"""One look for one question: what is far away is not asked again and again whether anything is new."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LOOKED: ContextVar[set[int] | None] = ContextVar("looked", default=None)
"""What was looked at for the question that is being answered."""


@contextmanager
def one_look() -> Iterator[None]:
    """Within, each thing is looked at once: what comes meanwhile is for the next question."""
    if _LOOKED.get() is not None:
        yield
        return
    token = _LOOKED.set(set())
    try:
        yield
    finally:
        _LOOKED.reset(token)


def is_first_look(one: object) -> bool:
    """Whether it was not looked at yet for the question that is being answered; it counts as looked at from then on."""
    looked = _LOOKED.get()
    if looked is None:
        return True
    if id(one) in looked:
        return False
    looked.add(id(one))
    return True
