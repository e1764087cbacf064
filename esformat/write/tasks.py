"""Run tasks in threads, with results in order and bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

Result = TypeVar("Result")


class InFlight(Generic[Result]):
    """A queue of tasks. Iterate over `submit`: it yields results until there is room, then starts the task."""

    def __init__(self, pool: Executor, most_tasks: int, most_bytes: int) -> None:
        """`most_bytes`: what all tasks may hold together; a single task may hold more."""
        self._pool = pool
        self._most_tasks, self._most_bytes = most_tasks, most_bytes
        self._pending: deque[tuple[Future[Result], int]] = deque()
        self._bytes = 0

    def submit(self, work: Callable[[], Result], held_bytes: int) -> Iterator[Result]:
        """Yield results until there is room for a task that holds `held_bytes`, then start it."""
        while self._pending and (len(self._pending) >= self._most_tasks or self._bytes + held_bytes > self._most_bytes):
            yield self._take()
        self._pending.append((self._pool.submit(work), held_bytes))
        self._bytes += held_bytes

    def drain(self) -> Iterator[Result]:
        """Yield the results of all tasks."""
        while self._pending:
            yield self._take()

    def _take(self) -> Result:
        future, held_bytes = self._pending.popleft()
        self._bytes -= held_bytes
        return future.result()

    def cancel(self) -> None:
        """Drop all tasks. Running ones finish, but their results are lost."""
        for future, _ in self._pending:
            future.cancel()
        self._pending.clear()
