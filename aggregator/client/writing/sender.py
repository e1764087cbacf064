"""`Sender`: the common part of the writers for threads and for event loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from aggregator.client.http import calls
from aggregator.client.http.errors import UnavailableError
from aggregator.client.http.retry import Retry
from aggregator.client.writing.outbox import Outbox
from aggregator.client.writing.producer_pool import ProducerPool
from aggregator.errors import InvalidRequestError
from esformat import ClosedError
from esformat.parts import to_arrow

CallOf = Callable[[pa.Table, str, int], calls.Call]
TableOf = Callable[[Any], pa.Table]
FOREVER = Retry(deadline_s=None)
ENDING_S = 0.1
"""Seconds that a thread or task may take to notice that the writer is closed."""


class Sender:
    """The state of a writer. Callers of its methods hold the writer's lock."""

    def __init__(
        self,
        outbox: Outbox,
        call_of: CallOf,
        table_of: TableOf,
        in_flight: int,
        retry: Retry | None,
        producer: str | None,
    ) -> None:
        if in_flight < 1:
            raise InvalidRequestError("in_flight must be at least 1")
        self._outbox, self._call_of, self._table_of = outbox, call_of, table_of
        self._retry, self._producers = retry or FOREVER, ProducerPool(producer)
        self._closing = False

    @property
    def acknowledged(self) -> int:
        """Number of events that are stored."""
        return self._outbox.acknowledged

    @property
    def dropped(self) -> int:
        """Number of events that a full queue dropped."""
        return self._outbox.dropped

    def _check(self) -> None:
        if self._closing:
            raise ClosedError("the writer is closed", hint="create a new writer")
        self._outbox.raise_failures()

    def _parts(self, table: Any) -> Sequence[pa.Table]:
        """Return the parts in which a table is added: one, or several if a full queue blocks."""
        whole, limit = to_arrow(table), self._outbox.sizing.max_rows
        blocks = self._outbox.when_full == "block"
        return [whole.slice(at, limit) for at in range(0, len(whole), limit)] if blocks else [whole]

    def _abandon(self) -> None:
        """Stop waiting for responses to batches in flight."""
        error = UnavailableError("the writer was closed before the server answered", status=None, maybe_stored=True)
        self._outbox.abandon(error)

    def _give_up(self) -> None:
        """Send nothing more. Raises WriteFailedError with all events that were not delivered."""
        error = UnavailableError("the writer was closed before they were sent", status=None, maybe_stored=False)
        self._outbox.give_up(error)
        self._outbox.raise_failures()
