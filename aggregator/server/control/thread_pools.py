"""Bounded thread pools for blocking calls: some run, some wait, further ones are refused immediately.

In a pool for reads, a call that takes long moves to one of a few places for slow calls, so that the next one can start.
If none is free it waits; it is refused if that takes too long or too many wait. Each call has an `Allowance`, which
slow calls check between small steps. It is cancelled if the request's client disconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NoReturn, ParamSpec, TypeVar

from aggregator import Allowance, OverloadedError, QueryCancelledError
from aggregator.server.control.request_scope import RequestScope, current_request
from esformat import ClosedError

P = ParamSpec("P")
T = TypeVar("T")
_END: Any = object()
_AT_ONCE = 2
_NEWEST = 0.1  # weight of the latest call in the mean
_STAYING = 12  # factor on the wait for a slow place if part of the response was sent
_LEAP, _LEAST_S = 4, 0.005  # caps on a sample, so that a few slow calls, such as the very first, hardly move the mean
MIN_RETRY_S = 0.1
OVERLOAD_FACTOR = 2
"""Factor on the capacity up to which calls still run: those whose bodies were read after `check_room` allowed it."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Limits for calls that take longer than `after_s`.

    `places` of them run, and `waiting` of them wait for up to `patience_s`.
    """

    places: int
    after_s: float = 0.25
    waiting: int = 16
    patience_s: float = 5.0


@dataclass(slots=True, eq=False)
class _Job:
    """A submitted call: queued, then running. If it takes long it becomes slow, with a place or waiting for one."""

    call: Callable[[], Any]
    request: RequestScope | None
    allowance: Allowance
    begun: bool  # part of its response was sent
    done: asyncio.Future[Any]
    slow: bool = False
    placed: bool = False
    timer: asyncio.TimerHandle | None = None
    watch: asyncio.Task[None] | None = None


def _begin(make: Callable[[], Iterator[T]]) -> tuple[Iterator[T], list[T]]:
    iterator = make()
    return iterator, list(islice(iterator, _AT_ONCE))


def _look(done: asyncio.Future[Any]) -> None:
    """Retrieve an exception that possibly nobody awaits."""
    if not done.cancelled():
        done.exception()


def _close(iterator: Iterator[Any]) -> None:
    close = getattr(iterator, "close", None)
    if close is not None:
        close()


@dataclass(slots=True)
class _Counts:
    """Numbers of a pool's calls: queued or quick; quick; slow with a place; slow and waiting."""

    busy: int = 0
    quick: int = 0
    placed: int = 0
    waiting: deque[_Job] = field(default_factory=deque)  # slow calls without a place


class WorkPool:
    """Runs blocking calls outside the event loop. All methods but `cancel` and `close` belong to the loop's thread."""

    def __init__(
        self,
        name: str,
        threads: int,
        waiting: int,
        patience_s: float = 0.25,
        slow: Slow | None = None,
        ended: Callable[[], None] | None = None,
    ) -> None:
        """Create the pool.

        threads: calls at the same time. waiting: calls that may wait for a thread. patience_s: about how long they may
        wait. slow: limits for calls that take long; None: they are like all others, and nothing cancels them. ended:
        called after each call, in its thread.
        """
        self._call_ended = ended
        self.name = name
        self.capacity = threads + waiting
        self._counts = _Counts()
        self._size, self._patience_s, self._slow = threads, patience_s, slow
        self._mean_s = 0.0  # moving average of a call's duration
        self._closed = False
        self._queue: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._finishing: set[asyncio.Task[None]] = set()
        most = threads + (0 if slow is None else slow.places + slow.waiting)
        self._threads = ThreadPoolExecutor(most, thread_name_prefix=f"{name}-")

    @property
    def busy(self) -> int:
        """Number of calls that run or wait for a thread, without slow ones."""
        return self._counts.busy

    @property
    def slow(self) -> int:
        """Number of slow calls that run or wait for a place."""
        return self._counts.placed + len(self._counts.waiting)

    @property
    def wait_s(self) -> float:
        """Estimated wait of a new call for a thread, in seconds."""
        return max(0, self.busy - self._size) * self._mean_s / self._size

    @property
    def has_room(self) -> bool:
        """Whether a new call would get a thread soon enough."""
        return self.busy < self.capacity and self.wait_s <= self._patience_s

    def check_room(self) -> None:
        """Raise OverloadedError if a call would wait too long. Call it before reading the body."""
        if not self.has_room:
            self._refuse()

    async def wait_for_room(self) -> None:
        """Wait for room, for a caller that was admitted before, such as a tail.

        One append wakes all tails, and none of them may be refused.
        """
        while not self.has_room:
            await asyncio.sleep(max(MIN_RETRY_S, self.wait_s))

    def _refuse(self) -> NoReturn:
        raise OverloadedError(
            f"{self.busy} {self.name}s are running or waiting, the most that the server allows",
            hint="try again later; nothing in this request was done",
            retry_after_s=max(MIN_RETRY_S, self.wait_s),
        )

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call and return its result. Raises OverloadedError.

        A caller that checked for room and then read a body is not refused because a few others did the same. In a pool
        without slow places a call runs to its end even if nobody waits for it any more; in others it is cancelled.
        """
        if self.busy >= OVERLOAD_FACTOR * self.capacity:
            self._refuse()
        return await self._run(partial(call, *args, **kwargs))

    async def _run(self, call: Callable[[], T]) -> T:
        result: T = await self._result(self._submit(call))
        return result

    async def _result(self, job: _Job) -> Any:
        try:
            return await asyncio.shield(job.done)  # the call counts while it runs, even if its caller gives up
        except asyncio.CancelledError:
            if self._slow is not None:
                job.allowance.cancel("the client no longer waits for the response")
            raise

    # ------------------------------------------------------------ queued, quick, slow

    def _submit(self, call: Callable[[], Any], *, begun: bool = False) -> _Job:
        request = None if self._slow is None else current_request()
        allowance = Allowance() if request is None else request.allowance
        job = _Job(call, request, allowance, begun, asyncio.get_running_loop().create_future())
        job.done.add_done_callback(_look)
        self._counts.busy += 1
        self._queue.append(job)
        self._start()
        return job

    def _start(self) -> None:
        """Start queued calls while places are free."""
        while self._closed and self._queue:
            self._counts.busy -= 1
            self._queue.popleft().done.set_exception(ClosedError("the server is stopping"))
        while self._queue and self._counts.quick < self._size:
            job = self._queue.popleft()
            self._counts.quick += 1
            self._running.add(job)
            future = asyncio.wrap_future(self._threads.submit(self._timed, job))
            future.add_done_callback(partial(self._ended, job))
            if self._slow is not None:
                job.timer = asyncio.get_running_loop().call_later(self._slow.after_s, self._slow_down, job, self._slow)

    def _timed(self, job: _Job) -> Any:
        began = time.perf_counter()
        try:
            with job.allowance:
                return job.call()
        finally:
            self._learn(time.perf_counter() - began)
            if self._call_ended is not None:
                self._call_ended()

    def _learn(self, took: float) -> None:
        most = _LEAP * self._mean_s + _LEAST_S
        if self._slow is not None:
            most = min(most, self._slow.after_s)
        self._mean_s += (min(took, most) - self._mean_s) * _NEWEST

    def _slow_down(self, job: _Job, slow: Slow) -> None:
        """Mark a call as slow, which frees its quick place for the next."""
        job.slow, job.timer = True, None
        self._counts.busy -= 1
        self._counts.quick -= 1
        if job.request is not None:
            job.watch = asyncio.create_task(job.request.watch())
        if self._counts.placed < slow.places:
            self._counts.placed += 1
            job.placed = True
        elif len(self._counts.waiting) < slow.waiting:
            job.allowance.pause()
            self._counts.waiting.append(job)
            patience_s = slow.patience_s * (_STAYING if job.begun else 1)
            job.timer = asyncio.get_running_loop().call_later(patience_s, self._refuse_slow, job, slow)
        else:
            self._refuse_slow(job, slow)
        self._start()

    def _refuse_slow(self, job: _Job, slow: Slow) -> None:
        with contextlib.suppress(ValueError):
            self._counts.waiting.remove(job)
        job.allowance.stop(
            OverloadedError(
                f"{self._counts.placed} slow {self.name}s are running, the most that the server allows",
                hint="try again later, or request less",
                retry_after_s=slow.patience_s,
            )
        )

    def _ended(self, job: _Job, future: asyncio.Future[Any]) -> None:
        self._running.discard(job)
        if job.timer is not None:
            job.timer.cancel()
        if job.watch is not None:
            job.watch.cancel()
        if not job.slow:
            self._counts.busy -= 1
            self._counts.quick -= 1
        elif job.placed:
            self._counts.placed -= 1
            self._place_next()
        elif job in self._counts.waiting:
            self._counts.waiting.remove(job)
            job.allowance.resume()  # it ended before it checked; the next call of this response shares the allowance
        if future.cancelled():
            job.done.cancel()
        elif (error := future.exception()) is not None:
            job.done.set_exception(error)
        else:
            job.done.set_result(future.result())
        self._start()

    def _place_next(self) -> None:
        if self._counts.waiting:
            job = self._counts.waiting.popleft()
            if job.timer is not None:
                job.timer.cancel()
                job.timer = None
            self._counts.placed += 1
            job.placed = True
            job.allowance.resume()

    # ------------------------------------------------------------ iterators

    async def pull(self, make: Callable[[], Iterator[T]], *, patient: bool = False) -> AsyncIterator[T]:
        """Yield the items of an iterator, each fetched in a thread on demand: the reader sets the pace.

        A thread is held while an item is produced, not between items. The first two are fetched together, so that a
        short response needs one change of threads. The iterator is closed when the reader stops. patient: wait if there
        is no room, instead of raising OverloadedError.
        """
        if patient:
            await self.wait_for_room()
        else:
            self.check_room()
        iterator, begun = await self._run(partial(_begin, make))
        job: _Job | None = None
        ended = len(begun) < _AT_ONCE
        try:
            for item in begun:
                yield item
            while not ended:
                job = self._submit(partial(next, iterator, _END), begun=True)
                item = await self._result(job)
                ended = item is _END
                if not ended:
                    yield item
        except QueryCancelledError:
            if job is None or job.request is None or not job.request.gone:
                raise
            ended = True  # nobody reads the rest
        finally:
            if not ended:
                finishing = asyncio.create_task(self._finish(job, iterator))
                self._finishing.add(finishing)
                finishing.add_done_callback(self._finishing.discard)
                await asyncio.shield(finishing)

    async def _finish(self, job: _Job | None, iterator: Iterator[Any]) -> None:
        """Close an iterator once no thread runs in it."""
        if job is not None:
            await asyncio.wait([job.done])
        await asyncio.wait([self._submit(partial(_close, iterator)).done])

    def cancel(self) -> None:
        """Make running reads end soon, with an error. Other calls run to their end. From any thread."""
        if self._slow is not None:
            for job in list(self._running):
                job.allowance.cancel("the server is stopping")

    def close(self) -> None:
        """Cancel reads, wait for running calls, and start no others. From any thread."""
        self._closed = True
        self.cancel()
        self._threads.shutdown(wait=True)
