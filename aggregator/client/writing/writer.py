"""`Writer`: sends events in the background, in batches, each stored once."""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  # pyarrow's first array imports pandas, which fails at exit
import time
from collections.abc import Mapping, Sequence
from threading import Condition, Event, Thread
from typing import Any

from aggregator.base.result import Closing
from aggregator.client.http import calls
from aggregator.client.http.connection import Connection
from aggregator.client.http.errors import UnavailableError
from aggregator.client.http.retry import Retry
from aggregator.client.writing.backlog import Batch, Row
from aggregator.client.writing.outbox import Outbox
from aggregator.client.writing.rows import row_bytes, row_of
from aggregator.client.writing.sender import ENDING_S, CallOf, Sender, TableOf
from aggregator.client.writing.sizing import Sizing

_AT_EXIT_S = 10.0


class Writer(Sender, Closing):
    """Collects events and sends them in the background. Thread-safe; a context manager.

    After `flush` or `close` returns, all events added before are stored. Events that cannot be delivered are raised as
    WriteFailedError by the next call, which has them in `unsent`. At the end of the program writers are closed
    automatically.
    """

    def __init__(
        self,
        connection: Connection,
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
        name: str = "aggregator-writer",
        close_at_exit: bool = True,
    ) -> None:
        """Created by `RemoteTopic.writer` and `Client.stream_writer`.

        sizing: bounds of the batch size, which adapts within them.
        linger_s: how long an event waits for others.
        queue_bytes: limit of events that wait or are in flight.
        when_full: "block" until there is room, "refuse" with OverloadedError, "drop_oldest" or "drop_newest", counted
            in `dropped`.
        in_flight: batches in flight at the same time; with more than one, events may be stored in another order.
        retry: for each batch; by default it is tried until it is stored, permanently refused, or the writer is closed.
        producer: prefix of the names of the writer's producers. Use it in this process only, and never again. Random by
            default.
        name: prefix of its threads' names.
        close_at_exit: whether the end of the program closes it.
        """
        outbox = Outbox(sizing or Sizing(), queue_bytes=queue_bytes, linger_s=linger_s, when_full=when_full)
        super().__init__(outbox, call_of, table_of, in_flight, retry, producer)
        self._connection = connection
        self._changed = Condition()
        self._idle = 0  # threads waiting for a batch
        self._stopped = Event()
        self._threads = [Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(in_flight)]
        for thread in self._threads:
            thread.start()
        if close_at_exit:
            atexit.register(self._at_exit)

    # ------------------------------------------------------------ adding

    def add(
        self,
        space: str | bytes,
        data: bytes | None = None,
        *,
        timestamp: Any,
        grouping: str | bytes | None = None,
        indexes: Mapping[str, Any] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> None:
        """Add one event, with the parameters of `esformat.Writer.add`.

        Raises InvalidEventError, WriteFailedError (for earlier events; this one is not added), OverloadedError
        (when_full="refuse"), ClosedError.
        """
        self.add_row(row_of(space, data, timestamp, grouping, indexes, columns))

    def add_row(self, row: Row) -> None:
        """Add one event, or record of a stream, as a mapping. Raises as `add` does."""
        size = row_bytes(row)
        with self._changed:
            if self._admit(size, 1):
                first = not self._outbox.waiting
                self._outbox.add_row(row, size, time.monotonic())
                self._wake(first)

    def add_table(self, table: Any) -> None:
        """Add events from anything with the Arrow C stream.

        Raises as `add` does. Nothing was added then, except from a table larger than a batch: "block" adds it in parts.
        """
        for part in self._parts(table):
            with self._changed:
                if self._admit(part.nbytes, len(part)):
                    first = not self._outbox.waiting
                    self._outbox.add_table(part, time.monotonic())
                    self._wake(first)

    def _admit(self, size: int, count: int) -> bool:
        self._check()
        if self._outbox.when_full != "block":
            return self._outbox.make_room(size, count)
        while not self._outbox.has_room(size):
            self._changed.wait()
            self._check()
        return True

    def _wake(self, first: bool) -> None:
        """Wake a sending thread if it has a reason: a first event, or a full batch."""
        if not self._idle:
            return
        due_s = self._outbox.due_s(time.monotonic())
        if first or (due_s is not None and due_s <= 0):
            self._changed.notify_all()

    # ------------------------------------------------------------ state

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything added so far is stored.

        Raises WriteFailedError for events that cannot be stored, UnavailableError if some still wait after `timeout_s`.
        """
        with self._changed:
            end = self._outbox.hurry()
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._outbox.is_settled(end), timeout_s):
                raise UnavailableError(
                    f"events still wait after {timeout_s} s",
                    hint="they are still being sent: flush again, or close",
                    status=None,
                    maybe_stored=False,
                )
            self._outbox.raise_failures()

    def close(self, timeout_s: float | None = None) -> None:
        """Send the remaining events, and stop. Closing twice is allowed.

        Raises WriteFailedError with the events that cannot be delivered or were not acknowledged in time. Some of them
        may be stored: those that the server received without having responded yet.
        """
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            self._closing = True
            end = self._outbox.hurry()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._outbox.is_settled(end), timeout_s)
            self._stopped.set()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(None if end_s is None else max(0.0, end_s + ENDING_S - time.monotonic()))
        atexit.unregister(self._at_exit)
        with self._changed:
            if any(thread.is_alive() for thread in self._threads):
                self._abandon()
            self._give_up()

    def _at_exit(self) -> None:
        self.close(_AT_EXIT_S)

    # ------------------------------------------------------------ sending

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            parts = [batch]
            while parts:
                part, halves = parts.pop(0), list[Batch]()
                try:
                    halves += self._deliver(part)
                finally:
                    with self._changed:
                        self._outbox.settle(part, halves)
                        self._changed.notify_all()
                parts[:0] = halves

    def _next(self) -> Batch | None:
        """Wait until the next batch is due and return it; None if the writer was stopped."""
        with self._changed:
            while not self._stopped.is_set():
                due_s = self._outbox.due_s(time.monotonic())
                if due_s is not None and due_s <= 0:
                    return self._outbox.take()
                self._idle += 1
                try:
                    self._changed.wait(due_s)
                finally:
                    self._idle -= 1
            return None

    def _deliver(self, batch: Batch) -> Sequence[Batch]:
        """Send a batch. Return its halves if it is too large or one of its events cannot be sent."""
        began = time.monotonic()
        try:
            table = batch.table(self._table_of)
            with self._producers.borrow() as key:
                batch.key = key
                reply = self._connection.send(self._call_of(table, *key), self._retry, self._stopped.wait)
            calls.receipt(reply)
        except Exception as error:  # noqa: BLE001  # its events are reported, and later ones continue
            with self._changed:
                return self._outbox.refused(batch, error)
        with self._changed:
            self._outbox.acknowledge(batch, took_s=time.monotonic() - began, refusals=reply.refusals)
        return ()
