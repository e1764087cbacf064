"""A bounded pool of threads for calls that block: so many run, so many wait, and more are refused at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from aggregator import OverloadedError

P = ParamSpec("P")
T = TypeVar("T")
_END: Any = object()


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
        loop = asyncio.get_running_loop()
        self.busy += 1

        def done(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody counts any more
                loop.call_soon_threadsafe(self._done)

        future = self._threads.submit(call, *args, **kwargs)
        future.add_done_callback(done)
        return await asyncio.wrap_future(future)

    def _done(self) -> None:
        self.busy -= 1

    async def pull(self, make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        """What an iterator gives, each item fetched in a thread when it is asked for: the reader sets the pace.

        A thread is held while an item is made and not between items. The iterator is closed when the reader stops.
        """
        self.check_room()
        iterator = await self._run(make)
        try:
            while (item := await self._run(next, iterator, _END)) is not _END:
                yield item
        finally:
            close = getattr(iterator, "close", None)
            if close is not None:
                await asyncio.shield(self._run(close))

    def close(self) -> None:
        """Wait for the calls that run, and let no others begin."""
        self._threads.shutdown(wait=True)
