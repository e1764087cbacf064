"""`Forwarder`: sends the records of a statement as they arrive, at least once, continuing where it stopped."""

from __future__ import annotations

import json
import logging
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Protocol

import pyarrow as pa

from aggregator.errors import AggregatorError, InvalidRequestError
from aggregator.forward.destinations import Destination, StreamDestination, TryLaterError
from aggregator.lql import Columns, parse_statement, to_text
from aggregator.lql.parse.tree import Position, Select
from aggregator.storage.files.layout import replaced
from aggregator.storage.segments.records import FIELD_MAP, FIELDS
from aggregator.storage.state.arrivals import Arrivals

FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 30.0
NOTE_S = 1.0
"""Longest delay between sending records and recording the position after them, in seconds."""
_LOG = logging.getLogger(__name__)
_START_AGAIN = "choose another file with --state, or remove this one to start over"


class Following(Protocol):
    """The records of a SELECT as they arrive, like `aggregator.Tail`."""

    @property
    def position(self) -> str | None:
        """The current position; None at the start of the statement."""

    @property
    def gone(self) -> int:
        """Number of records after the start position that no longer exist."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the records, until none has arrived for the timeout."""


class Origin(Protocol):
    """The source of records: a catalog, or a client of a server."""

    @property
    def arrivals(self) -> Arrivals:
        """Its notifications; they end when the catalog is closed."""

    def tail(self, text: str, timeout_s: float | None = None) -> Following:
        """Follow a SELECT."""


class Forwarder:
    """Sends records to a destination. `run` until `stop` is called, from a signal or another thread."""

    def __init__(
        self,
        catalog: Origin,
        statement: str,
        destination: Destination,
        notes: Path,
        *,
        once: bool = False,
        patience_s: float = math.inf,
    ) -> None:
        """statement: a SELECT without COUNT, ORDER BY and LIMIT. notes: the file with the position. once: `run` sends
        existing records, and ends. patience_s: how long a batch is retried.

        Raises InvalidRequestError (also for notes of another statement), AggregatorError (unreadable notes), OSError.
        """
        parsed = parse_statement(statement)
        if not isinstance(parsed, Select) or parsed.count or parsed.newest_first or parsed.limit is not None:
            raise InvalidRequestError(
                "only a SELECT without COUNT, ORDER BY and LIMIT can be forwarded", hint="filter with FROM and WHERE"
            )
        self._catalog, self._destination, self._notes, self._once = catalog, destination, notes, once
        self._wait_s, self._patience_s = 0.0 if once else NOTE_S, patience_s
        self._statement = to_text(replace(parsed, position=None, offset=None))
        noted = self._noted()
        self._tail = catalog.tail(to_text(parsed), self._wait_s) if noted is None else self._resumed(parsed, noted)
        gone = self._tail.gone if noted is not None else 0
        if gone:
            _LOG.warning("%d records were removed before they were forwarded", gone)
        self._stopped = Event()
        self._sending = False
        self._unnoted = False  # a warning was logged that the position cannot be noted
        self._written: str | None = noted
        self.sent = 0
        """Number of records that the destination has accepted."""
        self.retries = 0
        """Number of failed attempts to send a batch."""
        if noted is None:
            self._note()

    def _resumed(self, statement: Select, noted: str) -> Following:
        """Follow the records after a noted position. Raises InvalidRequestError if the catalog does not know it."""
        resumed = replace(statement, position=Position("token", noted), offset=None)
        try:
            return self._catalog.tail(to_text(resumed), self._wait_s)
        except InvalidRequestError as error:
            raise InvalidRequestError(
                f"the saved position cannot be used: {error.message}", path=str(self._notes), hint=_START_AGAIN
            ) from None

    def stop(self) -> None:
        """End `run` after the batch that is being sent, or without it if sending fails."""
        self._stopped.set()

    def run(self) -> None:
        """Send until `stop`, or with `once` until all existing records are sent. Raises AggregatorError (also if
        patience ends), OSError (notes).

        It keeps sending if the position temporarily cannot be noted.
        """
        arrivals = self._catalog.arrivals
        noted = monotonic()
        try:
            while not self._stopped.is_set():
                before = self.sent
                for batch in self._tail.batches():
                    if not self._send(batch):
                        return
                    if monotonic() - noted >= NOTE_S:
                        self._try_to_note()
                        noted = monotonic()
                    if self._stopped.is_set():
                        break
                self._try_to_note()
                noted = monotonic()
                if arrivals.ended or (self._once and self.sent == before):
                    return
        finally:
            self._destination.close()
            if not arrivals.ended:
                self._note()

    def _send(self, batch: pa.RecordBatch) -> bool:
        """Send a batch, retrying as long as necessary. Return False if `stop` was called first."""
        wait, ends = FIRST_WAIT_S, monotonic() + self._patience_s
        columns = columns_of(batch)
        self._sending = True  # the tail's position is already after this batch
        while not self._stopped.is_set():
            after: float | None = None
            try:
                self._destination.send(batch, columns)
                self.sent += len(batch)
                self._sending = False
                return True
            except TryLaterError as error:
                after, cause = error.after_s, error
            except OSError as error:
                if isinstance(error, BrokenPipeError) and isinstance(self._destination, StreamDestination):
                    raise  # the reader is gone for good
                cause = error  # type: ignore[assignment]
            if monotonic() > ends:
                raise AggregatorError(
                    f"the destination has not accepted records for {self._patience_s:g} s: {cause}",
                    hint="run the command again to continue with these records",
                )
            self.retries += 1
            if wait == FIRST_WAIT_S:
                _LOG.warning("not sent yet, retrying: %s", cause)
            self._stopped.wait(wait * random.uniform(0.5, 1.0) if after is None else after)  # noqa: S311 - spreads load
            wait = min(LONGEST_WAIT_S, 2 * wait)
        return False

    # ------------------------------------------------------------ the noted position

    def _noted(self) -> str | None:
        try:
            noted = json.loads(self._notes.read_text("utf-8"))
            statement, position = noted["statement"], str(noted["position"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise AggregatorError(f"the progress file cannot be read: {error}", path=str(self._notes)) from None
        if statement != self._statement:
            raise InvalidRequestError(
                f"the progress file belongs to another statement: {statement}",
                path=str(self._notes),
                hint=_START_AGAIN,
            )
        return position

    def _try_to_note(self) -> None:
        """Note the position; log a failure. Ending on a full disk, say, would resend the same records on each start."""
        try:
            self._note()
        except OSError as error:
            if not self._unnoted:
                _LOG.warning("cannot save the position; a restart now would send records again: %s", error)
            self._unnoted = True
        else:
            self._unnoted = False

    def _note(self) -> None:
        if self._sending:
            return
        position = self._tail.position
        if position in (None, self._written):
            return
        with replaced(self._notes) as file:
            file.write(json.dumps({"statement": self._statement, "position": position}).encode())
        self._written = position


def columns_of(batch: pa.RecordBatch) -> Columns:
    """The columns of result batches for LQL: the map of fields as extra, internal columns hidden."""
    extra = FIELDS if FIELDS in batch.schema.names and batch.schema.field(FIELDS).type == FIELD_MAP else None
    return Columns(batch.schema, extra=extra, hidden=frozenset({"grouping", "record_index", "partition"}))
