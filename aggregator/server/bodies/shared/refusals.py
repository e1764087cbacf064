"""`Refusals`: records that were refused or changed, counted for `/metrics` and logged now and then.

Senders of logs hear of nothing, or cannot change what they send. So what cannot be stored as it is, is stored with the
least change, and that is told here; and so is what is not stored at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from threading import Lock
from typing import Literal, Protocol, get_args

Source = Literal["bulk", "cloudevents", "events", "lines", "loki", "otlp", "plateau", "streams", "syslog"]
"""What took the records: one of few, as each is a label of the figures."""
Reason = Literal[
    "request", "invalid", "unsupported", "overloaded", "kernel_buffer", "connections", "stopped",
    "key_cut", "message_cut", "tags_cut", "text_escaped", "time_replaced", "unparsed",
]  # fmt: skip
LOSSES: Mapping[Reason, str] = {
    "request": "requests refused, whatever records they had",
    "invalid": "records refused: they cannot be stored",
    "unsupported": "records refused: they ask for what is not done here",
    "overloaded": "messages dropped: storing does not keep up",
    "kernel_buffer": "messages dropped by the kernel: the buffer of the socket was full",
    "connections": "connections refused: too many are open",
    "stopped": "messages lost: the server stopped before they were stored",
}
CHANGES: Mapping[Reason, str] = {
    "key_cut": "records kept with a space or grouping that was too long: cut, and whole in a column of its own",
    "message_cut": "messages kept, too long or ended early: marked as truncated",
    "tags_cut": "records kept with tags that were too long: cut, and whole in the fields",
    "text_escaped": "texts kept, of records or requests, in another form than UTF-8: escaped",
    "time_replaced": "records kept whose time could not be read: the time of arrival stands for it",
    "unparsed": "messages kept without the form of their protocol: whole, as the message",
}
SOURCES: tuple[Source, ...] = get_args(Source)
EVERY_S = 10.0
"""Between two lines of the log about the same."""
_LOOK_S = 1.0
_WHY_CHARACTERS = 300
_MEANINGS: Mapping[Reason, str] = {**LOSSES, **CHANGES}
_log = logging.getLogger("aggregator.server.bodies.shared.refusals")


class Tell(Protocol):
    """Takes note of what was done to records of one source, and why to the last of them."""

    def __call__(self, reason: Reason, records: int = 1, why: str = "") -> None: ...


def untold(reason: Reason, records: int = 1, why: str = "") -> None:
    """Tell nobody."""


class Refusals:
    """Counts by source and reason, and lines of the log about them. Safe to share between threads.

    Of each source and reason the first is told at once, and then all of EVERY_S seconds together.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._counts = {(source, reason): 0 for source in SOURCES for reason in (*LOSSES, *CHANGES)}
        self._untold: dict[tuple[Source, Reason], tuple[int, str]] = {}
        self._quiet_until: dict[tuple[Source, Reason], float] = {}

    def tell(self, source: Source, reason: Reason, records: int = 1, why: str = "") -> None:
        """Count, and write a line if none was written about the same for some seconds."""
        if records <= 0:
            return
        key = source, reason
        with self._lock:
            self._counts[key] += records
            before, _ = self._untold.get(key, (0, ""))
            self._untold[key] = before + records, why[:_WHY_CHARACTERS]
            due = self._due(key)
        self._write(due)

    @contextlib.contextmanager
    def telling(self, source: Source) -> Iterator[Tell]:
        """What is noted of records that are being stored, told when they are: who sends them again would else have
        them told again.
        """
        noted: dict[Reason, tuple[int, str]] = {}

        def note(reason: Reason, records: int = 1, why: str = "") -> None:
            noted[reason] = noted.get(reason, (0, ""))[0] + records, why

        yield note
        for reason, (records, why) in noted.items():
            self.tell(source, reason, records, why)

    def tell_rest(self, *, now: bool = False) -> None:
        """Write what waits to be told, if it is time for it, or `now`."""
        with self._lock:
            due = [line for key in list(self._untold) for line in self._due(key, now=now)]
        self._write(due)

    @contextlib.asynccontextmanager
    async def told_in_time(self) -> AsyncIterator[None]:
        """Write what waits to be told when it is time, as long as this is open, and the rest at its end."""

        async def again() -> None:
            while True:
                await asyncio.sleep(_LOOK_S)
                self.tell_rest()

        task = asyncio.create_task(again())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.tell_rest(now=True)

    def counts(self) -> Iterator[tuple[Source, Reason, int]]:
        """Records so far by source and reason, zeros included, as rates begin at 0."""
        with self._lock:
            found = list(self._counts.items())
        for (source, reason), count in found:
            yield source, reason, count

    def _due(self, key: tuple[Source, Reason], *, now: bool = False) -> list[tuple[Source, Reason, int, str]]:
        time_s = self._clock()
        if not now and time_s < self._quiet_until.get(key, time_s):
            return []
        self._quiet_until[key] = time_s + EVERY_S
        return [(*key, *self._untold.pop(key))]

    @staticmethod
    def _write(due: list[tuple[Source, Reason, int, str]]) -> None:
        for source, reason, records, why in due:
            noun, plural, meaning = _MEANINGS[reason].partition("s ")
            text = f"{noun}{' ' if records == 1 else plural}{meaning}{f' ({why})' if why else ''}"
            _log.warning("%s: %d %s", source, records, text, extra={"source": source, "reason": reason})
