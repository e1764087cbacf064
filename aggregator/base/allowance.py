"""`Allowance`: the time and memory that a query may use, and its cancellation. Work checks it between small steps.

An allowance applies in the context in which it is entered (`contextvars`); a read that passes work to other threads
enters it there, too. Without an allowance there is no limit, and checking costs next to nothing.
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
    """The time and memory that one query may use. Reads inside `with allowance:` fail when it is exceeded or cancelled.

    All methods can be called from any thread.
    """

    def __init__(self, time_s: float | None = None, memory_bytes: int | None = None) -> None:
        """time_s: counted from each `with`. memory_bytes: for sorting and grouping. None: no limit."""
        self.time_s, self.memory_bytes = time_s, memory_bytes
        self._lock = threading.Lock()
        self._held_bytes = 0
        self._deadline: float | None = None
        self._error: AggregatorError | None = None
        self._go = threading.Event()
        self._go.set()
        self._outer: list[Allowance | None] = []
        self._unpaused = 0  # how many times `unpaused` is entered

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
        """Apply in another thread that works for the query, without restarting its time."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def check(self) -> None:
        """Wait while paused. Raises QueryCancelledError, QueryLimitError, or the error passed to `stop`."""
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
        """End the query soon, with QueryCancelledError."""
        self.stop(QueryCancelledError(reason))

    def stop(self, error: AggregatorError) -> None:
        """End the query soon with an error; the first error counts."""
        with self._lock:
            if self._error is None:
                self._error = error
        self._go.set()

    def pause(self) -> None:
        """Make the query wait at its next step."""
        self._go.clear()

    def resume(self) -> None:
        """Continue a paused query."""
        self._go.set()

    @contextmanager
    def unpaused(self) -> Iterator[None]:
        """Let the query be stopped but not paused, because it holds something that others wait for."""
        with self._lock:
            self._unpaused += 1
        try:
            yield
        finally:
            with self._lock:
                self._unpaused -= 1

    def hold(self, size_bytes: int) -> None:
        """Record memory that the query allocated (negative: that it freed). Raises QueryLimitError."""
        with self._lock:
            self._held_bytes += size_bytes
            held = self._held_bytes
        if size_bytes > 0 and self.memory_bytes is not None and held > self.memory_bytes:
            raise QueryLimitError(
                f"the query needs more than {self.memory_bytes:,} bytes of memory",
                hint="choose fewer records or columns, or group by less",
            )


class Holding:
    """Memory held by one step of a query, counted against the allowance that is current when this object is created."""

    def __init__(self) -> None:
        self._allowance = _current.get()
        self._bytes = 0

    def set(self, size_bytes: int) -> None:
        """Set the number of bytes held. Raises QueryLimitError."""
        before, self._bytes = self._bytes, size_bytes
        if self._allowance is not None:
            self._allowance.hold(size_bytes - before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.set(0)


def unpaused() -> AbstractContextManager[None]:
    """`Allowance.unpaused` of the current allowance, if there is one."""
    allowance = _current.get()
    return nullcontext() if allowance is None else allowance.unpaused()


def current() -> Allowance | None:
    """The allowance of the current context; None if there is none."""
    return _current.get()


def check() -> None:
    """Check the current allowance, if there is one. Raises the errors of `Allowance.check`."""
    allowance = _current.get()
    if allowance is not None:
        allowance.check()
