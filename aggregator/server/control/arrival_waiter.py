"""`ArrivalWaiter`: wakes all requests that wait for new events, with one thread for any number of them."""

from __future__ import annotations

import asyncio

from aggregator.storage.state.arrivals import Arrivals

_LOOK_S = 1.0  # the longest that a stop of the server waits for the thread
_PAUSE_S = 0.01  # between two wake-ups: many small appends cause only one


class ArrivalWaiter:
    """Notifies tasks of an event loop about arrivals. All methods belong to the loop's thread."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._waiting: set[asyncio.Event] = set()
        self._watch: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """Number of arrivals so far. Read it before reading events, then wait for a higher number."""
        return self._arrivals.count

    @property
    def ended(self) -> bool:
        """Whether nothing will arrive any more."""
        return self._arrivals.ended

    async def wait(self, seen: int, timeout_s: float) -> bool:
        """Wait until something arrived after `seen`, or nothing can arrive any more; return False after `timeout_s`."""
        if self._arrivals.count != seen or self._arrivals.ended:
            return True
        woken = asyncio.Event()
        self._waiting.add(woken)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._wake_tasks())
        try:
            async with asyncio.timeout(timeout_s):
                await woken.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(woken)
        return True

    async def _wake_tasks(self) -> None:
        seen = self._arrivals.count
        for woken in self._waiting:  # for tasks that started to wait before `seen` was read, perhaps needlessly
            woken.set()
        while self._waiting:
            if await asyncio.to_thread(self._arrivals.wait, seen, _LOOK_S):
                seen = self._arrivals.count
                for woken in self._waiting:
                    woken.set()
                if self._arrivals.ended:
                    return
                await asyncio.sleep(_PAUSE_S)
