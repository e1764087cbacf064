"""Bounded caches of decoded things, shared by the threads that read a segment, and by segments where they choose to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, NamedTuple, Protocol, TypeVar

from esformat.base.forked import unlock_in_forks
from esformat.core.opened import Shelf


class Sized(Protocol):
    """Something that knows about how much memory it takes."""

    size_bytes: int


T = TypeVar("T", bound=Sized)
OVERHEAD_BYTES = 200  # of an entry: key, places in the dictionaries
MANY_DEAD = 1000  # entries of closed caches that a budget remembers at least before it tidies up


class Guard:
    """The lock of budgets, a context manager."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        unlock_in_forks(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Budget:
    """Bytes that any number of caches share. Whatever cache it is in, what was not used for longest is forgotten first:
    in a queue by age, what was used since it was at its head last goes to its end once more (the "clock" algorithm).
    """

    def __init__(self, limit_bytes: int, guard: Guard | None = None) -> None:
        """guard: shared with other budgets of the same owner."""
        self._guard = Guard() if guard is None else guard
        self._limit = limit_bytes
        self._held = 0
        self._queue: deque[tuple[Shelf, Hashable, int]] = deque()
        self._dead = 0  # entries of the queue whose cache was closed
        self._abandoned: deque[Shelf] = deque()

    @property
    def held_bytes(self) -> int:
        """About how much is held now."""
        with self._guard:
            self._settle()
        return self._held

    def resize(self, limit_bytes: int) -> None:
        """Hold no more than so many bytes from now on."""
        with self._guard:
            self._limit = limit_bytes
            self._settle()
            self._shrink()

    @property
    def has_any(self) -> bool:
        """Whether anything can be kept."""
        return self._limit > OVERHEAD_BYTES

    def has_room(self, size_bytes: int) -> bool:
        """Whether a value of so many bytes can be kept, and none is forgotten for it."""
        held = self.held_bytes if self._abandoned else self._held
        return held + size_bytes + OVERHEAD_BYTES <= self._limit

    def keep(self, shelf: Shelf, key: Hashable, value: object, size_bytes: int) -> None:
        """Put a value on a shelf; one that would fill a quarter of the budget is not kept."""
        size = size_bytes + OVERHEAD_BYTES
        if 4 * size > self._limit:
            return
        with self._guard:
            if self._abandoned:
                self._settle()
            if key in shelf.values:
                return
            self._shrink(size)  # first: what was not found yet would go before all that was
            shelf.values[key] = value
            shelf.held += size
            shelf.count += 1
            self._held += size
            self._queue.append((shelf, key, size))

    def abandon(self, shelf: Shelf) -> None:
        """Forget all that is on a shelf. It is counted later: destructors may run while this thread holds the lock."""
        shelf.values.clear()
        shelf.used.clear()
        if shelf.count:
            self._abandoned.append(shelf)

    def _settle(self) -> None:
        while self._abandoned:
            shelf = self._abandoned.popleft()
            self._held -= shelf.held
            self._dead += shelf.count
            shelf.held = shelf.count = 0
        if self._dead > MANY_DEAD and 2 * self._dead > len(self._queue):
            self._queue = deque(entry for entry in self._queue if entry[1] in entry[0].values)
            self._dead = 0

    def _shrink(self, coming_bytes: int = 0) -> None:
        while self._held + coming_bytes > self._limit and self._queue:
            shelf, key, size = self._queue.popleft()
            if key in shelf.used:
                shelf.used.discard(key)
                if key in shelf.values:
                    self._queue.append((shelf, key, size))
                    continue
            if shelf.values.pop(key, None) is None:
                self._dead -= 1
                continue
            shelf.held -= size
            shelf.count -= 1
            self._held -= size


class Cache:
    """Keeps what was used last, as far as its budget goes.

    A hit takes no lock. Two threads that miss at once may both make a value; either is good.
    """

    def __init__(self, budget: Budget | int, *, holds_last: bool = False) -> None:
        """`budget`: shared with other caches, or bytes for this one alone.

        holds_last: what `get` made last is at hand until it makes another, even where there is no room for it.
        """
        self._last: tuple[Hashable, Any] | None = None
        self._holds_last = holds_last
        self._budget = Budget(budget) if isinstance(budget, int) else budget
        self.shelf = Shelf()
        self._open = True
        self.find = self.shelf.find
        """The value of a key, or None."""

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made now if need be."""
        value = self.find(key)
        if value is not None:
            return value  # type: ignore[no-any-return]
        last = self._last
        if last is not None and last[0] == key:
            return last[1]  # type: ignore[no-any-return]
        made = make()
        self.keep(key, made, made.size_bytes)
        if self._holds_last and self._open:
            self._last = key, made
        return made

    def keep(self, key: Hashable, value: object, size_bytes: int) -> None:
        """Keep a value of about so many bytes; one that would fill a quarter of the budget is not kept."""
        if self._open:
            self._budget.keep(self.shelf, key, value, size_bytes)

    def has_room(self, size_bytes: int) -> bool:
        """Whether a value of so many bytes can be kept without any other being forgotten for it."""
        return self._open and self._budget.has_room(size_bytes)

    @property
    def keeps(self) -> bool:
        """Whether there is any budget at all."""
        return self._budget.has_any

    def close(self) -> None:
        """Forget everything, and keep nothing from now on."""
        self._open = False
        self._last = None
        self._budget.abandon(self.shelf)

    def __del__(self) -> None:
        if hasattr(self, "shelf") and self._open:
            self._budget.abandon(self.shelf)


class Budgets(NamedTuple):
    """How much open segments keep of what questions decoded, by kind."""

    tables: Budget
    """Directory leaves and index pages: small, and dear to make."""
    blocks: Budget
    """Data blocks."""
    frames: Budget
    """Decompressed frames of strings and binary."""
    pages: Budget
    """Rows that were read as a page, decoded."""

    @classmethod
    def of(cls, total_bytes: int) -> Budgets:
        """Budgets that come to `total_bytes` together."""
        guard = Guard()
        return cls(*[Budget(part, guard) for part in _parts(total_bytes)])

    def resize(self, total_bytes: int) -> None:
        """Hold no more than `total_bytes` together from now on."""
        for budget, part in zip(self, _parts(total_bytes), strict=True):
            budget.resize(part)

    @property
    def held_bytes(self) -> int:
        """About how much they hold now."""
        return sum(budget.held_bytes for budget in self)


def _parts(total_bytes: int) -> tuple[int, int, int, int]:
    return total_bytes // 4, 3 * total_bytes // 8, 5 * total_bytes // 16, total_bytes // 16
