"""`OpenAnswers`: answers that are being sent: their tokens are checked again while they last, and memory is given back.

One task looks after all of them; it ends when no answer is left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.control.tokens import Standing
from esformat.parts import release_unused

LOOK_S = 0.5
"""Tokens are checked so often: an answer ends about so long after the server knows that its token is over."""
RELEASE_S = 2.0
"""Memory is given back to the system so often at most, while answers begin, are sent, or end."""
RELEASES = 2
"""So many times: what other threads freed goes back with the second only."""
SENT_BYTES = 8 << 20
"""Answers that go on are worth giving memory back after so many bytes."""

Over = asyncio.Future[ProblemError]
"""Done when an answer must end, with the reason."""


class OpenAnswers:
    """All methods belong to the event loop's thread."""

    def __init__(self) -> None:
        self._open: dict[Over, Standing] = {}
        self._task: asyncio.Task[None] | None = None
        self._used_bytes = 0  # of memory that may be free by now; what an answer takes besides its bytes is guessed
        self._due = 0
        self._released = 0.0

    @contextmanager
    def open(self, standing: Standing | None) -> Iterator[Over]:
        """While an answer is sent. standing: None where no token is asked for."""
        over: Over = asyncio.get_running_loop().create_future()
        if standing is not None:
            self._open[over] = standing
        self.sent(SENT_BYTES)
        try:
            yield over
        finally:
            self._open.pop(over, None)
            over.cancel()
            self.sent(SENT_BYTES)

    def sent(self, size_bytes: int) -> None:
        """Count bytes of answers."""
        self._used_bytes += size_bytes
        if self._used_bytes >= SENT_BYTES:
            self._due = RELEASES
        if not (self._open or self._due):
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while self._open or self._due:
            await asyncio.sleep(LOOK_S)
            for over, standing in list(self._open.items()):
                try:
                    standing.check()
                except ProblemError as problem:
                    if not over.done():
                        over.set_result(problem)
            if self._due and time.monotonic() - self._released >= RELEASE_S:
                self._due, self._used_bytes = self._due - 1, 0
                release_unused()  # of the main thread alone gives back what threads freed; takes some milliseconds
                self._released = time.monotonic()

    async def close(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
