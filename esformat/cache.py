"""A bounded cache of decoded things, shared by the threads that read a segment."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Protocol, TypeVar


class Sized(Protocol):
    """Something that knows about how much memory it takes."""

    size_bytes: int


T = TypeVar("T", bound=Sized)
OVERHEAD_BYTES = 200  # of an entry: key, places in the dictionaries


class Cache:
    """Keeps what was made last, up to about `limit_bytes`; forgets in the order of making.

    A hit takes no lock. Two threads that miss at once may both make a value; either is good.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = 0
        self._values: dict[Hashable, Any] = {}
        self._sizes: dict[Hashable, int] = {}
        self._lock = Lock()
        self.find = self._values.get
        """The value of a key, or None."""

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made now if need be."""
        value = self._values.get(key)
        if value is not None:
            return value  # type: ignore[no-any-return]
        made = make()
        self.keep(key, made, made.size_bytes)
        return made

    def keep(self, key: Hashable, value: object, size_bytes: int) -> None:
        """Keep a value of about so many bytes; one that would fill a quarter of the cache is not kept."""
        size = size_bytes + OVERHEAD_BYTES
        if 4 * size > self._limit:
            return
        with self._lock:
            if key in self._values:
                return
            self._values[key] = value
            self._sizes[key] = size
            self._held += size
            while self._held > self._limit:
                oldest = next(iter(self._sizes))
                self._held -= self._sizes.pop(oldest)
                del self._values[oldest]

    def close(self) -> None:
        """Forget everything, and keep nothing from now on."""
        with self._lock:
            self._limit = self._held = 0
            self._values.clear()
            self._sizes.clear()
