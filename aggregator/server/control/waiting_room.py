"""`WaitingRoom`: appends wait for room, first come first served, instead of being refused immediately.

A refusal is cheap, but many clients retry immediately, thousands of times a second: with many writers, most of the
processor time was spent on refusals. A waiting request costs nothing, because its body is not read meanwhile. Senders
that cannot handle a 429 lose nothing if the wait ends in time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from aggregator import DiskFullError, OverloadedError
from esformat import ClosedError

PLACES = 1_000
"""Number of appends that may wait; each has at most the first piece of its body in memory."""
POLL_S = 0.01
"""Seconds between checks for room."""
AT_ONCE = 32
"""Number of appends admitted per check: how much room they use is known only once their bodies arrive."""


class WaitingRoom:
    """Belongs to the event loop's thread."""

    def __init__(self, check: Callable[[int | None], None], patience_s: float) -> None:
        """check: called with the bytes of bodies, or None for an append that needs no memory. Raises OverloadedError if
        there is no room.

        patience_s: the longest that an append waits.
        """
        self._check = check
        self._patience_s = patience_s
        self._queue: deque[tuple[int | None, asyncio.Future[None]]] = deque()
        self._watch: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def waiting(self) -> int:
        """Number of appends that wait, including some that gave up."""
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether no further append may wait."""
        return self.waiting >= PLACES

    async def enter(self, length: int | None) -> None:
        """Wait until there is room. length: passed to `check`.

        Raises OverloadedError if too many wait or the wait takes too long, DiskFullError immediately, and ClosedError
        when the server stops.
        """
        if not self._queue:
            try:
                return self._check(length)
            except DiskFullError:
                raise
            except OverloadedError:
                if self._closed:
                    raise
        elif self.is_full:
            return self._check(length)
        word = asyncio.get_running_loop().create_future()
        self._queue.append((length, word))
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(self._patience_s):
                await word
        except TimeoutError:
            self._check(length)
        return None

    async def _poll(self) -> None:
        while self._queue:
            await asyncio.sleep(POLL_S)
            self._let_in()

    def _let_in(self) -> None:
        """Admit the appends that came first while there is room for all of them together."""
        let_in = together = 0
        while self._queue and let_in < AT_ONCE:
            length, word = self._queue[0]
            if not word.done():  # else it gave up
                try:
                    self._check(None if length is None else together + length)
                except DiskFullError as error:
                    word.set_exception(error)
                except OverloadedError:
                    return
                else:
                    word.set_result(None)
                let_in, together = let_in + 1, together + (length or 0)
            self._queue.popleft()

    def close(self) -> None:
        """End all waits with ClosedError."""
        self._closed = True
        for _, word in self._queue:
            if not word.done():
                word.set_exception(ClosedError("the server is stopping"))
        self._queue.clear()
