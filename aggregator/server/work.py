"""A bounded pool of threads for calls that block: so many run, so many wait, and more are refused at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, NoReturn, ParamSpec, TypeVar

from aggregator import OverloadedError

P = ParamSpec("P")
T = TypeVar("T")
_END: Any = object()
_AT_ONCE = 2
_NEWEST = 0.1  # the share of the latest call in the mean
_LEAP, _LEAST_S = 4, 0.005  # so that a few slow calls among quick ones, such as the first of all, change it little
MIN_RETRY_S = 0.1
OVERBOOKED = 2
"""So many times as many calls as there should be are run all the same: those whose bodies were read meanwhile."""


def _begin(make: Callable[[], Iterator[T]]) -> tuple[Iterator[T], list[T]]:
    iterator = make()
    return iterator, list(islice(iterator, _AT_ONCE))


class WorkPool:
    """Runs blocking calls beside the event loop. All but `close` belong to the loop's thread."""

    def __init__(self, name: str, threads: int, waiting: int, patience_s: float = 0.25) -> None:
        """threads: calls at once. waiting: calls that may wait for a thread, and patience_s: for about how long."""
        self.name = name
        self.capacity = threads + waiting
        self.busy = 0
        self.shed = 0
        self._size, self._patience_s = threads, patience_s
        self._mean_s = 0.0  # what a call takes, the latest ones most
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"{name}-")

    @property
    def wait_s(self) -> float:
        """About how long a call would wait for a thread."""
        return max(0, self.busy - self._size) * self._mean_s / self._size

    @property
    def has_room(self) -> bool:
        """Whether a call would not have to wait too long."""
        return self.busy < self.capacity and self.wait_s <= self._patience_s

    def check_room(self) -> None:
        """Refuse now what would have to wait too long: before a body is read. Raises OverloadedError."""
        if not self.has_room:
            self._refuse()

    async def wait_for_room(self) -> None:
        """For who was let in before and goes on, such as a tail: one append wakes all of them, and none is refused."""
        while not self.has_room:
            await asyncio.sleep(max(MIN_RETRY_S, self.wait_s))

    def _refuse(self) -> NoReturn:
        self.shed += 1
        raise OverloadedError(
            f"{self.busy} {self.name}s are under way, as many as the server takes",
            hint="try again later; nothing of this request was done",
            retry_after_s=max(MIN_RETRY_S, self.wait_s),
        )

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The call's result. It runs to its end even if nobody waits for it any more. Raises OverloadedError.

        Who checked for room and then read a body is not refused for a few others that did the same.
        """
        if self.busy >= OVERBOOKED * self.capacity:
            self._refuse()
        return await self._run(call, *args, **kwargs)

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.busy += 1
        future = asyncio.wrap_future(self._threads.submit(self._timed, partial(call, *args, **kwargs)))
        future.add_done_callback(self._done)
        return await asyncio.shield(future)  # it counts as long as it runs, whoever gives up waiting

    def _timed(self, call: Callable[[], T]) -> T:
        began = time.perf_counter()
        try:
            return call()
        finally:
            took = min(time.perf_counter() - began, _LEAP * self._mean_s + _LEAST_S)
            self._mean_s += (took - self._mean_s) * _NEWEST

    def _done(self, future: asyncio.Future[T]) -> None:
        self.busy -= 1
        if not future.cancelled():
            future.exception()  # seen, even if nobody waits

    async def pull(self, make: Callable[[], Iterator[T]], *, patient: bool = False) -> AsyncIterator[T]:
        """What an iterator gives, each item fetched in a thread when it is asked for: the reader sets the pace.

        A thread is held while an item is made and not between items. The first two are made at once, so that a short
        answer is done with one change of threads. The iterator is closed when the reader stops. patient: where there is
        no room it waits, rather than raise OverloadedError.
        """
        if patient:
            await self.wait_for_room()
        else:
            self.check_room()
        iterator, begun = await self._run(_begin, make)
        ended = len(begun) < _AT_ONCE
        try:
            for item in begun:
                yield item
            while not ended:
                item = await self._run(next, iterator, _END)
                ended = item is _END
                if not ended:
                    yield item
        finally:
            close = getattr(iterator, "close", None)
            if close is not None and not ended:
                await asyncio.shield(self._run(close))

    def close(self) -> None:
        """Wait for the calls that run, and let no others begin."""
        self._threads.shutdown(wait=True)
