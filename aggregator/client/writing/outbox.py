"""`Outbox`: a writer's queue: waiting events, batches in flight, results. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from aggregator.client.http.errors import BodyTooLargeError, WriteFailedError, wrap_unexpected
from aggregator.client.writing.backlog import Backlog, Batch, Row
from aggregator.client.writing.sizing import Sizing
from aggregator.errors import InvalidRequestError, OverloadedError
from esformat import EsdbError, InvalidEventError

WHEN_FULL = ("block", "refuse", "drop_oldest", "drop_newest")
_FULL_RETRY_S = 0.1


@dataclass(frozen=True, slots=True)
class Unsent:
    """Events that were not acknowledged, as they were added (rows, or a table), and the reason.

    producer, sequence: None if they were never sent. Otherwise append them again under the same, and they are stored
    once.
    """

    events: list[Row] | pa.Table
    error: EsdbError
    producer: str | None = None
    sequence: int | None = None


class Outbox:
    """Not thread-safe: its owner has a lock."""

    def __init__(self, sizing: Sizing, *, queue_bytes: int, linger_s: float, when_full: str) -> None:
        if when_full not in WHEN_FULL:
            raise InvalidRequestError(f"when_full must be one of {', '.join(WHEN_FULL)}, not {when_full!r}")
        if queue_bytes < 1 or linger_s < 0:
            raise InvalidRequestError("queue_bytes must be at least 1, and linger_s must not be negative")
        self.sizing = sizing
        self.when_full = when_full
        self._queue_bytes, self._linger_s = queue_bytes, linger_s
        self._backlog = Backlog()
        self._under_way: dict[int, Batch] = {}  # by start
        self._under_way_bytes = 0
        self._urgent = 0  # events below this number are due immediately
        self._rows = sizing.min_rows
        self._unsent: list[Unsent] = []
        self.acknowledged = 0
        self.dropped = 0

    # ------------------------------------------------------------ adding

    @property
    def held_bytes(self) -> int:
        """Bytes of events that wait or are in flight."""
        return self._backlog.size_bytes + self._under_way_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Whether this many bytes can be added. Something larger than the queue fits if the queue is empty."""
        held = self.held_bytes
        return held == 0 or held + size_bytes <= self._queue_bytes

    def make_room(self, size_bytes: int, count: int) -> bool:
        """Handle a full queue. Return True if the events can be added now, False if they were dropped.

        Requires that `when_full` is not "block". Raises OverloadedError if it is "refuse".
        """
        if self.has_room(size_bytes):
            return True
        if self.when_full == "refuse":
            raise OverloadedError(
                f"{self.held_bytes:,} bytes wait to be sent, and the limit of the queue is {self._queue_bytes:,}",
                hint="add the events again later; none of them was kept",
                retry_after_s=_FULL_RETRY_S,
            )
        if self.when_full == "drop_oldest":
            self.dropped += self._backlog.drop_oldest(size_bytes)
            if self.has_room(size_bytes):
                return True
        self.dropped += count
        return False

    def add_row(self, row: Row, size_bytes: int, now_s: float) -> None:
        """Add an event."""
        self._backlog.add_row(row, size_bytes, now_s)

    def add_table(self, table: pa.Table, now_s: float) -> None:
        """Add the events of a table."""
        if len(table):
            self._backlog.add_table(table, now_s)

    # ------------------------------------------------------------ sending

    @property
    def waiting(self) -> int:
        """Number of waiting events."""
        return self._backlog.count

    def hurry(self) -> int:
        """Make everything added so far due immediately; return the number to pass to `is_settled`."""
        self._urgent = self._backlog.end
        return self._urgent

    def is_settled(self, end: int) -> bool:
        """Whether every event below that number was acknowledged or has failed."""
        return min(self._under_way, default=self._backlog.taken) >= end and self._backlog.taken >= end

    def due_s(self, now_s: float) -> float | None:
        """Return seconds until the next batch is due, 0 or less for now; None if nothing waits."""
        oldest = self._backlog.oldest_s
        if oldest is None:
            return None
        full = self._backlog.count >= self._rows or self._backlog.size_bytes >= self.sizing.max_bytes
        if full or self._backlog.taken < self._urgent:
            return 0.0
        return oldest + self._linger_s - now_s

    def take(self) -> Batch:
        """Return the next batch, now in flight. Requires a waiting event."""
        batch = self._backlog.take(self._rows, self.sizing.max_bytes)
        self._begin(batch)
        return batch

    def _begin(self, batch: Batch) -> None:
        self._under_way[batch.start] = batch
        self._under_way_bytes += batch.size_bytes

    # ------------------------------------------------------------ results

    def acknowledge(self, batch: Batch, *, took_s: float, refusals: int) -> None:
        """Record that a batch is stored."""
        if batch.start not in self._under_way:  # it was reported as possibly stored
            return
        self.acknowledged += batch.count
        self._rows = self.sizing.next_rows(
            self._rows, sent=batch.count, took_s=took_s, refusals=refusals, waiting=self._backlog.count
        )

    def refused(self, batch: Batch, error: Exception) -> Sequence[Batch]:
        """Handle a batch that was not delivered. Return the halves to send instead, if that may help; otherwise it
        fails.
        """
        if isinstance(error, BodyTooLargeError | InvalidEventError) and batch.count > 1:
            if isinstance(error, BodyTooLargeError):
                self.sizing = replace(self.sizing, max_bytes=max(1, min(self.sizing.max_bytes, batch.size_bytes // 2)))
                return batch.halves()
            if batch.key[0] is None:  # it was not sent: an event cannot be converted to a table
                return batch.halves()
        if batch.start in self._under_way:
            wrapped = error if isinstance(error, EsdbError) else wrap_unexpected(error)
            self._unsent.append(Unsent(batch.events, wrapped, *batch.key))
        return ()

    def settle(self, batch: Batch, halves: Sequence[Batch] = ()) -> None:
        """Remove a batch from those in flight, and add its halves if it is sent in two."""
        if self._under_way.pop(batch.start, None) is not None:  # otherwise it was abandoned
            self._under_way_bytes -= batch.size_bytes
            for half in halves:
                self._begin(half)

    def abandon(self, error: EsdbError) -> None:
        """Report all batches in flight as unsent; later results for them are ignored."""
        self._unsent += [Unsent(batch.events, error, *batch.key) for _, batch in sorted(self._under_way.items())]
        self._under_way.clear()
        self._under_way_bytes = 0

    def give_up(self, error: EsdbError) -> None:
        """Report all waiting events as unsent."""
        while self._backlog.count:
            batch = self._backlog.take(1 << 62, 1 << 62)
            self._unsent.append(Unsent(batch.events, error))

    def raise_failures(self) -> None:
        """Raise WriteFailedError if anything failed since the last call."""
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            count = sum(len(each.events) for each in unsent)
            raise WriteFailedError(
                f"{count:,} events were not delivered: {unsent[0].error.message}",
                hint="see `unsent` of this error",
                unsent=unsent,
                failed=[each.error for each in unsent],
            )
