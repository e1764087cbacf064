"""A bounded cache of decoded blocks, shared by the threads that read a segment."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Protocol, TypeVar


class Sized(Protocol):
    """Something that knows about how much memory it takes."""

    size_bytes: int


T = TypeVar("T", bound=Sized)


class Cache:
    """Keeps what was made last, up to about `limit_bytes`; forgets in the order of making.

    A hit takes no lock. Two threads that miss at once may both make a value; either is good.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = 0
        self._values: dict[Hashable, Any] = {}
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made now if need be."""
        value = self._values.get(key)
        if value is not None:
            return value  # type: ignore[no-any-return]
        made = make()
        with self._lock:
            if key not in self._values:
                self._values[key] = made
                self._held += made.size_bytes
                while self._held > self._limit and len(self._values) > 1:
                    oldest = next(iter(self._values))
                    self._held -= self._values.pop(oldest).size_bytes
        return made
