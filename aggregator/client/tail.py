"""`RemoteTail`: the records of a SELECT as they arrive, by long polling from a position."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from aggregator.client.http.errors import TruncatedAnswerError
from aggregator.client.scan import events_of
from esformat import Event

POLL_S = 20.0  # of one poll: shorter than the timeouts of proxies
POLL_RECORDS = 10_000
BROKEN_POLLS = 5  # consecutive truncated responses


@dataclass(frozen=True, slots=True)
class Page:
    """Records, and the position after them. gone: records after the requested position that are gone."""

    table: pa.Table
    position: str
    gone: int = 0


class RemoteTail:
    """Records as they arrive; iterate once. None is lost or repeated if the server restarts."""

    def __init__(self, page: Callable[..., Page], text: str, position: str, timeout_s: float | None) -> None:
        """Created by `Client.tail`."""
        self._page, self._text, self._timeout_s = page, text, timeout_s
        self.position = position
        """The position after the last batch. Pass it as `position` to continue from there."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records as record batches as soon as they arrive.

        Raises InvalidRequestError (an invalid statement), UnavailableError after all attempts.
        """
        heard = time.monotonic()
        heard_all, broken = False, 0
        while True:
            left = POLL_S if self._timeout_s is None else heard + self._timeout_s - time.monotonic()
            if left < 0 and heard_all:
                return
            # The first poll from "tail" does not wait: only its response fixes the position.
            wait_s = 0.0 if self.position == "tail" else min(max(left, 0.0), POLL_S)
            try:
                page = self._page(self._text, self.position, wait_s=wait_s, limit=POLL_RECORDS)
            except TruncatedAnswerError:
                broken += 1
                if broken == BROKEN_POLLS:
                    raise
                continue
            heard_all, broken = page.table.num_rows == 0, 0
            self.position = page.position  # before yielding: a reader that stops there needs it
            if page.table.num_rows:
                yield from page.table.combine_chunks().to_batches()
                heard = time.monotonic()

    def __iter__(self) -> Iterator[Event]:
        return events_of(self.batches(), (), "")
