"""`Allowance`: time and memory that a query may use, and its cancellation. Work checks it between small steps.

An allowance holds in the context in which it is entered (`contextvars`); a read that hands work to other threads enters
it there, too. Without one there is no limit, and asking costs next to nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from copy import copy
from typing import Self

from aggregator.errors import AggregatorError, QueryCancelledError, QueryLimitError

_current: ContextVar[Allowance | None] = ContextVar("aggregator_allowance", default=None)


class Allowance:
    """What one query may use. Reads inside `with allowance:` stop with an error beyond it, or when it is cancelled.

    All methods can be called from any thread.
    """

    def __init__(self, time_s: float | None = None, memory_bytes: int | None = None) -> None:
        """time_s: from each `with` on. memory_bytes: what a query holds to sort and to group. None: no limit."""
        self.time_s, self.memory_bytes = time_s, memory_bytes
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._deadline: float | None = None
        self._error: AggregatorError | None = None
        self._go = threading.Event()
        self._go.set()
        self._outer: list[Allowance | None] = []
        self._unpaused = 0  # so often `unpaused` was entered

    def __enter__(self) -> Self:
        if self.time_s is not None:
            self._deadline = time.monotonic() + self.time_s
        self._outer.append(_current.get())
        _current.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.set(self._outer.pop())

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold in another thread that works for the query, without starting its time again."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def check(self) -> None:
        """Go on, or wait while paused. Raises QueryCancelledError, QueryLimitError, or what `stop` was given."""
        if not self._go.is_set() and not self._unpaused:
            self._wait()
        if self._error is not None:
            raise copy(self._error)  # several threads may work for one query
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise QueryLimitError(
                f"the query took more than {self.time_s:g} seconds",
                hint="choose fewer records, by RANGE or FROM, or a simpler condition",
            )

    def _wait(self) -> None:
        began = time.monotonic()
        self._go.wait()
        with self._lock:
            if self._deadline is not None:
                self._deadline += time.monotonic() - began

    def cancel(self, reason: str = "the query was cancelled") -> None:
        """Let the query end soon, with QueryCancelledError."""
        self.stop(QueryCancelledError(reason))

    def stop(self, error: AggregatorError) -> None:
        """Let the query end soon with an error; the first one counts."""
        with self._lock:
            if self._error is None:
                self._error = error
        self._go.set()

    def pause(self) -> None:
        """Let the query wait at its next step."""
        self._go.clear()

    def resume(self) -> None:
        """Let it go on."""
        self._go.set()

    @contextmanager
    def unpaused(self) -> Iterator[None]:
        """Let the query be stopped, but not paused: it holds what others wait for."""
        with self._lock:
            self._unpaused += 1
        try:
            yield
        finally:
            with self._lock:
                self._unpaused -= 1

    def hold(self, size_bytes: int) -> None:
        """Take note of memory that the query holds (negative: that it gave back). Raises QueryLimitError."""
        with self._lock:
            self._held_bytes += size_bytes
            held = self._held_bytes
        if size_bytes > 0 and self.memory_bytes is not None and held > self.memory_bytes:
            raise QueryLimitError(
                f"the query needs more than {self.memory_bytes:,} bytes of memory",
                hint="choose fewer records or columns, or group by less",
            )


class Holding:
    """Memory that one step of a query holds, counted against the allowance that is current when it is made."""

    def __init__(self) -> None:
        self._allowance = _current.get()
        self._bytes = 0

    def set(self, size_bytes: int) -> None:
        """Hold so many bytes from now on. Raises QueryLimitError."""
        before, self._bytes = self._bytes, size_bytes
        if self._allowance is not None:
            self._allowance.hold(size_bytes - before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.set(0)


def unpaused() -> AbstractContextManager[None]:
    """The same of the allowance that holds here, where there is one."""
    allowance = _current.get()
    return nullcontext() if allowance is None else allowance.unpaused()


def current() -> Allowance | None:
    """The allowance that holds here."""
    return _current.get()


def check() -> None:
    """Ask the allowance that holds here, if there is one. Raises what `Allowance.check` does."""
    allowance = _current.get()
    if allowance is not None:
        allowance.check()
