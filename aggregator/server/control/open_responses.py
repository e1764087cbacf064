"""`OpenResponses`: rechecks the tokens of responses that are being sent, and releases memory to the system.

One task serves all of them; it ends when no response is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.control.tokens import TokenCheck
from esformat.parts import release_unused

CHECK_EVERY_S = 0.5
"""Seconds between checks of tokens: the longest that a response continues after the server learned that its token
ended."""
RELEASE_S = 2.0
"""Shortest time between two releases of memory to the system, in seconds, while responses begin, are sent, or end."""
RELEASES = 2
"""Number of releases each time: memory that other threads freed is returned only by the second."""
SENT_BYTES = 8 << 20
"""Bytes of responses sent after which releasing memory is worth its cost."""

EndSignal = asyncio.Future[ProblemError]
"""Resolved with the reason when a response must end."""


class OpenResponses:
    """All methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self._open: dict[EndSignal, TokenCheck] = {}
        self._task: asyncio.Task[None] | None = None
        self._used_bytes = 0  # memory that may be free by now; what a response takes besides its bytes is guessed
        self._due = 0
        self._released = 0.0

    @contextmanager
    def open(self, token_check: TokenCheck | None) -> Iterator[EndSignal]:
        """Register a response while it is sent. token_check: None if no token is required."""
        end: EndSignal = asyncio.get_running_loop().create_future()
        if token_check is not None:
            self._open[end] = token_check
        self.sent(SENT_BYTES)
        try:
            yield end
        finally:
            self._open.pop(end, None)
            end.cancel()
            self.sent(SENT_BYTES)

    def sent(self, size_bytes: int) -> None:
        """Count bytes of responses that were sent."""
        self._used_bytes += size_bytes
        if self._used_bytes >= SENT_BYTES:
            self._due = RELEASES
        if not (self._open or self._due):
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._recheck())

    async def _recheck(self) -> None:
        while self._open or self._due:
            await asyncio.sleep(CHECK_EVERY_S)
            for end, token_check in list(self._open.items()):
                try:
                    token_check.check()
                except ProblemError as problem:
                    if not end.done():
                        end.set_result(problem)
            if self._due and time.monotonic() - self._released >= RELEASE_S:
                self._due, self._used_bytes = self._due - 1, 0
                release_unused()  # only from the main thread does it return what threads freed; takes some ms
                self._released = time.monotonic()

    async def close(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
