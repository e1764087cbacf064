"""`AsyncWriter`: `Writer` with tasks of an event loop instead of threads."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from aggregator.client.http import calls
from aggregator.client.http.async_connection import AsyncConnection
from aggregator.client.http.retry import Retry
from aggregator.client.writing.backlog import Batch, Row
from aggregator.client.writing.outbox import Outbox
from aggregator.client.writing.rows import row_bytes, row_of
from aggregator.client.writing.sender import ENDING_S, CallOf, Sender, TableOf
from aggregator.client.writing.sizing import Sizing


class AsyncWriter(Sender):
    """Collects events and sends them in the background; an async context manager. See `Writer`.

    It belongs to the event loop in which it was created, and must be closed before that ends.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        call_of: CallOf,
        table_of: TableOf,
        *,
        sizing: Sizing | None = None,
        linger_s: float = 0.05,
        queue_bytes: int = 64 << 20,
        when_full: str = "block",
        in_flight: int = 1,
        retry: Retry | None = None,
        producer: str | None = None,
    ) -> None:
        """Created by `AsyncTopic.writer`. Options as in `Writer`."""
        outbox = Outbox(sizing or Sizing(), queue_bytes=queue_bytes, linger_s=linger_s, when_full=when_full)
        super().__init__(outbox, call_of, table_of, in_flight, retry, producer)
        self._connection = connection
        self._changed = asyncio.Condition()
        self._stopped = asyncio.Event()
        self._tasks = [asyncio.create_task(self._work()) for _ in range(in_flight)]

    async def add(
        self,
        space: str | bytes,
        data: bytes | None = None,
        *,
        timestamp: Any,
        grouping: str | bytes | None = None,
        indexes: Mapping[str, Any] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> None:
        """Add one event. Raises as `Writer.add` does."""
        await self.add_row(row_of(space, data, timestamp, grouping, indexes, columns))

    async def add_row(self, row: Row) -> None:
        """Add one event as a mapping."""
        size = row_bytes(row)
        async with self._changed:
            if await self._admit(size, 1):
                self._outbox.add_row(row, size, time.monotonic())
                self._changed.notify_all()

    async def add_table(self, table: Any) -> None:
        """Add events from anything with the Arrow C stream; in parts if a full queue blocks."""
        for part in self._parts(table):
            async with self._changed:
                if await self._admit(part.nbytes, len(part)):
                    self._outbox.add_table(part, time.monotonic())
                    self._changed.notify_all()

    async def _admit(self, size: int, count: int) -> bool:
        self._check()
        if self._outbox.when_full != "block":
            return self._outbox.make_room(size, count)
        while not self._outbox.has_room(size):
            await self._changed.wait()
            self._check()
        return True

    async def flush(self) -> None:
        """Wait until everything added so far is stored. Raises WriteFailedError for events that cannot be stored."""
        async with self._changed:
            await self._settled()
            self._outbox.raise_failures()

    async def _settled(self) -> None:
        end = self._outbox.hurry()
        self._changed.notify_all()
        await self._changed.wait_for(lambda: self._outbox.is_settled(end))

    async def close(self, timeout_s: float | None = None) -> None:
        """Send the remaining events, and stop. Closing twice is allowed.

        Raises WriteFailedError with the events that cannot be delivered or were not acknowledged in time. Some of them
        may be stored: those that the server received without having responded yet.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._closing = True
        async with self._changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._settled(), timeout_s)
            self._stopped.set()
            self._changed.notify_all()
        left_s = None if end_s is None else max(0.0, end_s + ENDING_S - time.monotonic())
        _, unanswered = await asyncio.wait(self._tasks, timeout=left_s)
        if unanswered:
            self._abandon()
            for task in unanswered:
                task.cancel()
            await asyncio.wait(unanswered)
        self._give_up()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------ sending

    async def _work(self) -> None:
        while (batch := await self._next()) is not None:
            parts = [batch]
            while parts:
                part, halves = parts.pop(0), list[Batch]()
                try:
                    halves += await self._deliver(part)
                finally:
                    async with self._changed:
                        self._outbox.settle(part, halves)
                        self._changed.notify_all()
                parts[:0] = halves

    async def _next(self) -> Batch | None:
        async with self._changed:
            while not self._stopped.is_set():
                due_s = self._outbox.due_s(time.monotonic())
                if due_s is not None and due_s <= 0:
                    return self._outbox.take()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), due_s)
            return None

    async def _pause(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)
        return self._stopped.is_set()

    async def _deliver(self, batch: Batch) -> Sequence[Batch]:
        """Send a batch. Return its halves if it is too large or one of its events cannot be sent."""
        began = time.monotonic()
        try:
            table = batch.table(self._table_of)
            with self._producers.borrow() as key:
                batch.key = key
                reply = await self._connection.send(self._call_of(table, *key), self._retry, self._pause)
            calls.receipt(reply)
        except Exception as error:  # noqa: BLE001  # its events are reported, and later ones continue
            return self._outbox.refused(batch, error)
        self._outbox.acknowledge(batch, took_s=time.monotonic() - began, refusals=reply.refusals)
        return ()
