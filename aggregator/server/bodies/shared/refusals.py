"""`Refusals`: records that were refused or changed, counted for `/metrics` and logged from time to time.

Senders of logs get no reply, or cannot change what they send. Records that cannot be stored as they are sent are
therefore stored with the least change. Such changes are reported here, and so are records that are not stored at all.
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
"""The interface that accepted the records. The set is small, because each is a label value of the metrics."""
Reason = Literal[
    "request", "invalid", "unsupported", "overloaded", "kernel_buffer", "connections", "stopped",
    "key_cut", "message_cut", "tags_cut", "text_escaped", "time_replaced", "unparsed",
]  # fmt: skip
LOSSES: Mapping[Reason, str] = {
    "request": "requests refused as a whole",
    "invalid": "records refused: they cannot be stored",
    "unsupported": "records refused: operation not supported",
    "overloaded": "messages dropped: storing does not keep up",
    "kernel_buffer": "messages dropped by the kernel: the socket buffer was full",
    "connections": "connections refused: too many are open",
    "stopped": "messages lost: the server stopped before they were stored",
}
CHANGES: Mapping[Reason, str] = {
    "key_cut": "records with a space or grouping that is too long: shortened, with the full text in another column",
    "message_cut": "messages too long or incomplete: stored and marked as truncated",
    "tags_cut": "records with tags that are too long: shortened, with the full tags in the fields",
    "text_escaped": "texts of records or requests not in UTF-8: stored with escapes",
    "time_replaced": "records with an invalid time: stored with the time of arrival instead",
    "unparsed": "messages in an unknown format: stored unparsed, whole",
}
SOURCES: tuple[Source, ...] = get_args(Source)
EVERY_S = 10.0
"""Seconds between two log lines about the same source and reason."""
_LOOK_S = 1.0
_WHY_CHARACTERS = 300
_MEANINGS: Mapping[Reason, str] = {**LOSSES, **CHANGES}
_log = logging.getLogger("aggregator.server.bodies.shared.refusals")


class Count(Protocol):
    """Records what was done to records of one source, and the reason for the last of them."""

    def __call__(self, reason: Reason, records: int = 1, why: str = "") -> None: ...


def ignore(reason: Reason, records: int = 1, why: str = "") -> None:
    """Do nothing."""


class Refusals:
    """Counts by source and reason, and log lines about them. Thread-safe.

    For each source and reason the first record is logged immediately, then all of EVERY_S seconds in one line.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._counts = {(source, reason): 0 for source in SOURCES for reason in (*LOSSES, *CHANGES)}
        self._pending: dict[tuple[Source, Reason], tuple[int, str]] = {}
        self._quiet_until: dict[tuple[Source, Reason], float] = {}

    def add(self, source: Source, reason: Reason, records: int = 1, why: str = "") -> None:
        """Count records, and log a line unless one about the same was logged in the last EVERY_S seconds."""
        if records <= 0:
            return
        key = source, reason
        with self._lock:
            self._counts[key] += records
            before, _ = self._pending.get(key, (0, ""))
            self._pending[key] = before + records, why[:_WHY_CHARACTERS]
            due = self._due(key)
        self._write(due)

    @contextlib.contextmanager
    def counting(self, source: Source) -> Iterator[Count]:
        """Yield a function that notes changes of records, and count them only once the records are stored.

        Otherwise they would be counted again when the sender retries.
        """
        noted: dict[Reason, tuple[int, str]] = {}

        def note(reason: Reason, records: int = 1, why: str = "") -> None:
            noted[reason] = noted.get(reason, (0, ""))[0] + records, why

        yield note
        for reason, (records, why) in noted.items():
            self.add(source, reason, records, why)

    def flush(self, *, now: bool = False) -> None:
        """Log pending counts that are due, or all with `now`."""
        with self._lock:
            due = [line for key in list(self._pending) for line in self._due(key, now=now)]
        self._write(due)

    @contextlib.asynccontextmanager
    async def flush_periodically(self) -> AsyncIterator[None]:
        """Log pending counts when due while the context is open, and the remainder at its end."""

        async def again() -> None:
            while True:
                await asyncio.sleep(_LOOK_S)
                self.flush()

        task = asyncio.create_task(again())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.flush(now=True)

    def counts(self) -> Iterator[tuple[Source, Reason, int]]:
        """Yield the records so far by source and reason, including zeros, because rates start from 0."""
        with self._lock:
            found = list(self._counts.items())
        for (source, reason), count in found:
            yield source, reason, count

    def _due(self, key: tuple[Source, Reason], *, now: bool = False) -> list[tuple[Source, Reason, int, str]]:
        time_s = self._clock()
        if not now and time_s < self._quiet_until.get(key, time_s):
            return []
        self._quiet_until[key] = time_s + EVERY_S
        return [(*key, *self._pending.pop(key))]

    @staticmethod
    def _write(due: list[tuple[Source, Reason, int, str]]) -> None:
        for source, reason, records, why in due:
            noun, plural, meaning = _MEANINGS[reason].partition("s ")
            text = f"{noun}{' ' if records == 1 else plural}{meaning}{f' ({why})' if why else ''}"
            _log.warning("%s: %d %s", source, records, text, extra={"source": source, "reason": reason})
