"""Destinations of a collector's batches: a local catalog or a server. Both recognise a repeated batch."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import pyarrow as pa

from aggregator.base.web import Peer
from aggregator.catalog import Catalog
from aggregator.errors import (
    AggregatorError,
    InvalidRequestError,
    OverloadedError,
    SequenceConflictError,
    TopicExistsError,
)
from aggregator.storage.segments.records import STREAM_SCHEMA
from esformat import InvalidEventError

TIMEOUT_S = 60.0
FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 30.0
_KEPT = "run the collector again to store the remaining lines"
_JSON = {"Content-Type": "application/json"}
Sleep = Callable[[float], None]
"""Waits for some seconds; raises StoppedError if the collector is stopped."""


class StoppedError(AggregatorError):
    """The collector was stopped while a batch waited to be accepted; the batch is stored on the next start."""


class TooLargeError(AggregatorError):
    """The batch is larger than the server accepts; nothing of it was stored."""


class Sink(Protocol):
    """Stores batches."""

    def catalog_end(self) -> tuple[str, int] | None:
        """The identity of the catalog, and the end of its records; None if they cannot be found out."""

    def append(self, events: pa.Table, producer: str, sequence: int) -> int | None:
        """Store a batch durably, once even if it is repeated. Return the record index after it, None if unknown.

        Waits while the destination is overloaded. Raises SequenceConflictError, InvalidEventError (columns that the
        topic does not accept, or too large a batch), TooLargeError, AggregatorError, EsdbError, OSError.
        """

    def close(self) -> None:
        """Close the connection or the catalog."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a batch may wait in total until it is accepted. longest_s: None means forever."""

    longest_s: float | None = None
    clock: Callable[[], float] = time.monotonic

    def check(self, began_s: float, wait_s: float, error: Exception) -> None:
        """Raise `error` if waiting another `wait_s` would exceed the limit."""
        if self.longest_s is not None and self.clock() - began_s + wait_s > self.longest_s:
            raise error


class CatalogSink:
    """A local catalog, which the collector writes to directly."""

    def __init__(
        self, catalog: Catalog, topic: str, partition: str, sleep: Sleep, patience: Patience | None = None
    ) -> None:
        self._catalog, self._partition, self._sleep = catalog, partition, sleep
        self._patience = patience or Patience()
        if topic not in catalog.topics():
            with contextlib.suppress(TopicExistsError):
                catalog.create_topic(topic, STREAM_SCHEMA)
        self._topic = catalog.topic(topic)
        if self._topic.keys != "text":
            raise InvalidRequestError(
                f"the topic {topic!r} has binary keys", hint="streams need a topic with text keys"
            )

    def catalog_end(self) -> tuple[str, int]:
        """The identity of the catalog, and the end of its records."""
        return _catalog_end(self._topic.stats(), self._partition)

    def append(self, events: pa.Table, producer: str, sequence: int) -> int:
        """Store a batch."""
        began_s = self._patience.clock()
        while True:
            try:
                receipt = self._topic.append(events, self._partition, producer=producer, sequence=sequence)
                return receipt.last + 1
            except OverloadedError as error:
                self._patience.check(began_s, error.retry_after_s, error)
                self._sleep(error.retry_after_s)

    def close(self) -> None:
        """Close the catalog."""
        self._catalog.close()


class ServerSink:
    """A server: `POST /v1/topics/{topic}/events`, retried until it succeeds or patience ends."""

    def __init__(
        self,
        address: str,
        topic: str,
        partition: str,
        token: str | None,
        sleep: Sleep,
        patience: Patience | None = None,
    ) -> None:
        self._peer = Peer(address, TIMEOUT_S, {"Authorization": f"Bearer {token}"} if token else {})
        self._topic = f"{urlsplit(address).path.rstrip('/')}/v1/topics/{quote(topic, safe='')}"
        self._target = f"{self._topic}/events?partition={quote(partition, safe='')}"
        self._address, self._partition, self._sleep, self._patience = address, partition, sleep, patience or Patience()

    def catalog_end(self) -> tuple[str, int] | None:
        """The identity of the catalog, and the end of its records; None if the server does not say."""
        try:
            status, _, answer, _ = self._peer.request("GET", self._topic, b"")
            facts = json.loads(answer)
            if status == 404 and facts["type"] == "/problems/no-such-topic":
                return "", 0
            return _catalog_end(facts, self._partition) if status == 200 else None
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            return None

    def append(self, events: pa.Table, producer: str, sequence: int) -> int | None:
        """Store a batch."""
        body = io.BytesIO()
        with pa.ipc.new_stream(body, events.schema) as stream:
            stream.write_table(events)
        headers = {"Content-Type": "application/vnd.apache.arrow.stream", "Idempotency-Key": f"{producer}:{sequence}"}
        wait, made, began_s = FIRST_WAIT_S, False, self._patience.clock()
        while True:
            try:
                status, _, answer, after_s = self._peer.request("POST", self._target, body.getvalue(), headers)
                if status == 404 and not made:
                    status, _, answer, after_s = self._peer.request("PUT", self._topic, b"{}", _JSON)
                    made = status < 300 or status == 409
                    if made:
                        continue
                why = _describe(status, answer)
            except (OSError, http.client.HTTPException) as error:
                status, answer, after_s = 503, b"", None
                why = f"the server cannot be reached: {error}"
            if status < 300:
                return _end_of(answer)
            if status == 409:
                raise SequenceConflictError(_describe(status, answer))
            if status == 400 and _is_invalid_event(answer):
                raise InvalidEventError(_describe(status, answer), path=self._target)
            if status == 413:
                raise TooLargeError(_describe(status, answer), path=self._target)
            if status not in (408, 429, 500, 502, 503, 504):
                raise AggregatorError(_describe(status, answer), path=self._target)
            pause = wait * random.uniform(0.5, 1.0) if after_s is None else after_s  # noqa: S311 - spreads load
            self._patience.check(began_s, pause, AggregatorError(why, path=self._address, hint=_KEPT))
            self._sleep(pause)
            wait = min(LONGEST_WAIT_S, 2 * wait)

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()


def _catalog_end(facts: Mapping[str, Any], partition: str) -> tuple[str, int]:
    mine = facts["partitions"].get(partition)
    return str(facts["catalog"]), int(mine["end_index"]) if mine is not None else 0


def _end_of(answer: bytes) -> int | None:
    """The record index after a batch, from a server's receipt; None if it is not there."""
    try:
        return int(json.loads(answer)["last"]) + 1
    except (ValueError, KeyError, TypeError):
        return None


def _is_invalid_event(answer: bytes) -> bool:
    """Whether a server refused a batch because of its contents."""
    try:
        return bool(json.loads(answer)["type"] == "/problems/invalid-event")
    except (ValueError, KeyError, TypeError):
        return False


def _describe(status: int, answer: bytes) -> str:
    """Describe a server's response in one line."""
    try:
        facts = json.loads(answer)
        text = str(facts.get("detail") or facts.get("title") or "") if isinstance(facts, dict) else ""
    except ValueError:
        text = ""
    return f"the server answered {status}" + (f": {text[:500]}" if text else "")
