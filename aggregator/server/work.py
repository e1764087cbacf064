"""A bounded pool of threads for calls that block: so many run, so many wait, and more are refused at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, ParamSpec, TypeVar

from aggregator import OverloadedError

P = ParamSpec("P")
T = TypeVar("T")
_END: Any = object()
_AT_ONCE = 2


def _begin(make: Callable[[], Iterator[T]]) -> tuple[Iterator[T], list[T]]:
    iterator = make()
    return iterator, list(islice(iterator, _AT_ONCE))


class WorkPool:
    """Runs blocking calls beside the event loop. All but `close` belong to the loop's thread."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        """threads: calls at once. waiting: calls that may wait for a thread."""
        self.name = name
        self.capacity = threads + waiting
        self.busy = 0
        self.shed = 0
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"{name}-")

    def check_room(self) -> None:
        """Refuse now what could not be run: before a body is read. Raises OverloadedError."""
        if self.busy >= self.capacity:
            self.shed += 1
            raise OverloadedError(
                f"{self.busy} {self.name}s are under way, as many as the server takes",
                hint="try again later; nothing of this request was done",
                retry_after_s=1.0,
            )

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The call's result. It runs to its end even if nobody waits for it any more. Raises OverloadedError."""
        self.check_room()
        return await self._run(call, *args, **kwargs)

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.busy += 1
        future = asyncio.wrap_future(self._threads.submit(call, *args, **kwargs))
        future.add_done_callback(self._done)
        return await asyncio.shield(future)  # it counts as long as it runs, whoever gives up waiting

    def _done(self, future: asyncio.Future[T]) -> None:
        self.busy -= 1
        if not future.cancelled():
            future.exception()  # seen, even if nobody waits

    async def pull(self, make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        """What an iterator gives, each item fetched in a thread when it is asked for: the reader sets the pace.

        A thread is held while an item is made and not between items. The first two are made at once, so that a short
        answer is done with one change of threads. The iterator is closed when the reader stops.
        """
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
