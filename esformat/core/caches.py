# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True
"""Bounded caches of decoded data, shared by the threads that read a segment, and optionally by segments.

Every open segment has several of them, and every block that is read is cached in one.
"""

from collections import deque
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, NamedTuple, Protocol, TypeVar

import cython
from cython.cimports.cpython.dict import PyDict_GetItem
from cython.cimports.cpython.ref import PyObject

from esformat.base.forked import unlock_in_forks

OVERHEAD_BYTES = 200
"""Memory of an entry beyond its value: the key, places in the dictionaries."""
MANY_DEAD = 1000
"""Entries of closed caches that a budget's queue may contain before it is cleaned up."""
_MOST = 1 << 62
_OVERHEAD = cython.declare(cython.longlong, OVERHEAD_BYTES)


class Sized(Protocol):
    """An object that knows its approximate size in memory."""

    size_bytes: int


T = TypeVar("T", bound=Sized)


@cython.final
@cython.cclass
class Shelf:
    """The content of one cache. It outlives the cache, empty, in the queue of its budget."""

    values: dict[Any, Any]
    used: set[Any]
    """Keys that were found since eviction last examined them."""
    held: int
    """Size of the values in bytes."""
    count: int

    def __init__(self) -> None:
        self.values, self.used = {}, set()

    def find(self, key: Any) -> Any:
        """The value of a key, which is marked as used, or None. Takes no lock."""
        return self._find(key)

    @cython.cfunc
    def _find(self, key: object) -> object:
        found: cython.pointer(PyObject) = PyDict_GetItem(self.values, key)
        if found == cython.NULL:
            return None
        value: object = cython.cast(object, found)  # own a reference: hashing a key may run Python or other threads
        self.used.add(key)
        return value


@cython.final
@cython.cclass
class Guard:
    """The lock of budgets, as a context manager."""

    __weakref__: object
    _lock = cython.declare(object, visibility="public")  # type: Any

    def __init__(self) -> None:
        self._lock = Lock()
        unlock_in_forks(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@cython.final
@cython.cclass
class Budget:
    """A number of bytes that any number of caches share. Across all caches, the value that was unused for longest is
    evicted first: a value at the head of the queue moves to the end instead if it was used since it entered the queue
    ("clock" algorithm).
    """

    _guard = cython.declare(Guard, visibility="readonly")  # type: Guard
    _limit: cython.longlong
    _held: cython.longlong
    _queue = cython.declare(object, visibility="readonly")  # type: Any
    _dead: cython.Py_ssize_t  # entries of the queue whose cache was closed
    _abandoned: object

    def __init__(self, limit_bytes: int, guard: Guard | None = None) -> None:
        """guard: shared with other budgets of the same owner."""
        self._guard = Guard() if guard is None else guard
        self._limit = min(limit_bytes, _MOST)
        self._queue, self._abandoned = deque(), deque()

    @property
    def held_bytes(self) -> int:
        """Approximate number of bytes that are cached now."""
        with self._guard:
            self._settle()
        return self._held

    def resize(self, limit_bytes: int) -> None:
        """Set the limit, and evict values beyond it."""
        with self._guard:
            self._limit = min(limit_bytes, _MOST)
            self._settle()
            self._shrink(0)

    @property
    def has_any(self) -> bool:
        """Whether any value can be cached."""
        return self._limit > _OVERHEAD

    def has_room(self, size_bytes: int) -> bool:
        """Whether a value of `size_bytes` can be cached without evicting another."""
        held = self.held_bytes if self._abandoned else self._held
        return held + size_bytes + _OVERHEAD <= self._limit

    @cython.ccall
    def keep(self, shelf: Shelf, key: Hashable, value: object, size_bytes: cython.longlong) -> object:
        """Store a value on a shelf, unless it would fill a quarter of the budget."""
        size: cython.longlong = size_bytes + _OVERHEAD
        if size > self._limit // 4:
            return None
        with self._guard:
            if self._abandoned:
                self._settle()
            if key in shelf.values:
                return None
            self._shrink(size)  # before storing: the new value is not marked as used, and would be evicted first
            shelf.values[key] = value
            shelf.held += size
            shelf.count += 1
            self._held += size
            self._queue.append((shelf, key, size))
        return None

    @cython.ccall
    def abandon(self, shelf: Shelf) -> object:
        """Clear a shelf. Its bytes are subtracted later: a destructor may run this while its thread holds the lock."""
        shelf.values.clear()
        shelf.used.clear()
        if shelf.count:
            self._abandoned.append(shelf)
        return None

    @cython.cfunc
    def _settle(self) -> object:
        shelf: Shelf
        while self._abandoned:
            shelf = self._abandoned.popleft()
            self._held -= shelf.held
            self._dead += shelf.count
            shelf.held = shelf.count = 0
        if self._dead > MANY_DEAD and 2 * self._dead > len(self._queue):
            self._queue = deque([entry for entry in self._queue if entry[1] in entry[0].values])
            self._dead = 0
        return None

    @cython.cfunc
    def _shrink(self, coming_bytes: cython.longlong) -> object:
        shelf: Shelf
        while self._held + coming_bytes > self._limit and self._queue:
            entry: tuple[Shelf, Hashable, int] = self._queue.popleft()
            shelf, key, size = entry
            if key in shelf.used:
                shelf.used.discard(key)
                if key in shelf.values:
                    self._queue.append(entry)
                    continue
            if shelf.values.pop(key, None) is None:
                self._dead -= 1
                continue
            shelf.held -= size
            shelf.count -= 1
            self._held -= size
        return None


@cython.cclass
class Cache:
    """Caches values within its budget, and evicts those that were unused for longest.

    A hit takes no lock. Two threads that miss at the same time may both compute the value; either is good.
    """

    shelf = cython.declare(Shelf, visibility="readonly")  # type: Shelf
    _budget = cython.declare(Budget, visibility="readonly")  # type: Budget
    _last: tuple[Any, Any] | None
    _holds_last: cython.bint
    _open: cython.bint

    def __init__(self, budget: Any, *, holds_last: bool = False) -> None:
        """`budget`: shared with other caches, or a number of bytes for this one alone.

        holds_last: keep the last value that `get` computed until it computes another, even if there is no room for it.
        """
        self._holds_last = holds_last
        self._budget = budget if isinstance(budget, Budget) else Budget(budget)
        self.shelf = Shelf()
        self._open = True

    def find(self, key: Hashable) -> Any:
        """The value of a key, or None."""
        return self.shelf._find(key)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, computed by `make` if it is not cached."""
        value: T | None = self.shelf._find(key)
        if value is not None:
            return value
        last = self._last
        if last is not None and last[0] == key:
            return last[1]
        made = make()
        if self._open:
            self._budget.keep(self.shelf, key, made, made.size_bytes)
            if self._holds_last and self._open:
                self._last = (key, made)
        return made

    def keep(self, key: Hashable, value: object, size_bytes: int) -> None:
        """Cache a value of about `size_bytes`, unless it would fill a quarter of the budget."""
        if self._open:
            self._budget.keep(self.shelf, key, value, size_bytes)

    def has_room(self, size_bytes: int) -> bool:
        """Whether a value of `size_bytes` can be cached without evicting another."""
        return self._open and self._budget.has_room(size_bytes)

    @property
    def keeps(self) -> bool:
        """Whether the budget allows any value."""
        return self._budget.has_any

    def close(self) -> None:
        """Remove everything, and cache nothing from now on."""
        self._open = False
        self._last = None
        self._budget.abandon(self.shelf)

    def __del__(self) -> None:
        if self._open:
            self._budget.abandon(self.shelf)


class Budgets(NamedTuple):
    """The budgets for data that open segments decode, by kind."""

    tables: Budget
    """Directory leaves and index pages: small, and expensive to decode."""
    blocks: Budget
    """Data blocks."""
    frames: Budget
    """Decompressed frames of strings and binary."""
    pages: Budget
    """Decoded rows that were read as a page."""

    @classmethod
    def of(cls, total_bytes: int) -> "Budgets":
        """Create budgets that sum up to `total_bytes`."""
        guard = Guard()
        return cls(*[Budget(part, guard) for part in _parts(total_bytes)])

    def resize(self, total_bytes: int) -> None:
        """Change the sum of the budgets to `total_bytes`."""
        for budget, part in zip(self, _parts(total_bytes), strict=True):
            budget.resize(part)

    @property
    def held_bytes(self) -> int:
        """Approximate number of bytes that are cached now."""
        return sum(budget.held_bytes for budget in self)


def _parts(total_bytes: int) -> tuple[int, int, int, int]:
    return total_bytes // 4, 3 * total_bytes // 8, 5 * total_bytes // 16, total_bytes // 16
