"""`Client`: a catalog on a server, with the methods of `aggregator.Catalog`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from aggregator.base.result import Closing
from aggregator.client.http import calls
from aggregator.client.http.connection import Connection, Options
from aggregator.client.http.retry import Retry
from aggregator.client.scan import RemoteRows, RemoteScan, RemoteSelection
from aggregator.client.streams import records_table, tags_text
from aggregator.client.tail import Page, RemoteTail
from aggregator.client.topic_reads import TopicReads
from aggregator.client.writing.producer_pool import ProducerPool
from aggregator.client.writing.writer import Writer
from aggregator.model import DEFAULT_PARTITION, STREAMS_TOPIC, Receipt
from aggregator.policy import Retention, Roll
from esformat import UsageError


class Client(Closing):
    """A connection to a server. Thread-safe; close it, or use it as a context manager."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        compression: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        client_cert: tuple[str, str] | None = None,
    ) -> None:
        """Create a client, without contacting the server.

        url: http://host:port or https://…. For several servers with the same catalog, such as one and its followers, a
            list: if one of them is gone or only follows, the next one is asked.
        token: sent in the header Authorization.
        timeout_s: for a connection, a piece of a request, and a piece of a response.
        retry: what to do if the server is busy, fails or cannot be reached; by default it is tried for a minute. Every
            append carries a producer and a sequence, so that a retried one is stored once.
        compression: of request bodies: None, "zstd" or "gzip".
        ca_file: certificate authorities to trust instead of the system's. client_cert: files of a certificate and its
            key.

        Raises InvalidRequestError for invalid options, OSError for files.
        """
        options = Options(url, token, timeout_s, retry or Retry(), compression, ca_file, client_cert)
        self._connection = Connection(options)
        self._producers = ProducerPool()

    def __repr__(self) -> str:
        return f"<aggregator.client.Client {self._connection.options.url!r}>"

    # ------------------------------------------------------------ topics

    def topics(self) -> tuple[str, ...]:
        """Return the names of the topics in order of creation."""
        return calls.topic_names(self._connection.send(calls.plain("GET", calls.path("v1", "topics"))))

    def topic(self, name: str) -> RemoteTopic:
        """Return a topic, without contacting the server: a missing topic is noticed by its first method call."""
        return RemoteTopic(self._connection, self._producers, name)

    def create_topic(
        self,
        name: str,
        *,
        indexes: Sequence[str] = (),
        keys: str = "text",
        roll: Roll | Mapping[str, Any] | None = None,
        retention: Retention | Mapping[str, Any] | None = None,
    ) -> RemoteTopic:
        """Create a topic unless it exists with the same settings. See `aggregator.Catalog.create_topic`.

        Raises TopicExistsError if it exists with others, InvalidRequestError, AccessDeniedError.
        """
        self._connection.send(calls.create_topic(name, indexes, keys, roll, retention))
        return self.topic(name)

    def alter_topic(
        self,
        name: str,
        *,
        roll: Roll | Mapping[str, Any] | None = None,
        retention: Retention | Mapping[str, Any] | None = None,
    ) -> RemoteTopic:
        """Change a topic's policies, as `aggregator.Catalog.alter_topic` does; those that are None stay.

        Raises TopicNotFoundError, InvalidRequestError, AccessDeniedError.
        """
        self._connection.send(calls.alter_topic(name, roll, retention))
        return self.topic(name)

    def rename_topic(self, name: str, new_name: str) -> RemoteTopic:
        """Rename a topic, as `aggregator.Catalog.rename_topic` does.

        Raises TopicNotFoundError, TopicExistsError, InvalidRequestError, AccessDeniedError.
        """
        self._connection.send(calls.rename_topic(name, new_name))
        return self.topic(new_name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all of its events, irrevocably, as `aggregator.Catalog.delete_topic` does.

        Raises TopicNotFoundError, InvalidRequestError, AccessDeniedError, UnavailableError (it may be deleted).
        """
        self._connection.send(calls.delete_topic(name))

    # ------------------------------------------------------------ streams

    def write(
        self,
        tags: Mapping[str, str],
        records: Any,
        topic: str = STREAMS_TOPIC,
        *,
        partition: str = DEFAULT_PARTITION,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Receipt:
        """Store records in the stream with these tags: all of them, durably, or none. As `Catalog.write`.

        Raises the same errors as `RemoteTopic.append`.
        """
        table = records_table(records)
        compression = self._connection.options.compression
        text = tags_text(tags)
        if producer is not None or sequence is not None:
            call = calls.write(text, table, topic, partition, producer, sequence, compression)
            return calls.receipt(self._connection.send(call))
        with self._producers.borrow() as (mine, number):
            call = calls.write(text, table, topic, partition, mine, number, compression)
            return calls.receipt(self._connection.send(call))

    def stream_writer(
        self,
        tags: Mapping[str, str],
        topic: str = STREAMS_TOPIC,
        *,
        partition: str = DEFAULT_PARTITION,
        **options: Any,
    ) -> Writer:
        """Return a background writer for a stream: rows are records, as in `write`. options: of `Writer`."""
        text = tags_text(tags)
        compression = self._connection.options.compression

        def call(table: pa.Table, producer: str, sequence: int) -> calls.Call:
            return calls.write(text, table, topic, partition, producer, sequence, compression)

        return Writer(self._connection, call, records_table, **options)

    # ------------------------------------------------------------ queries

    def query(self, text: str) -> RemoteSelection | pa.Table:
        """Run an LQL statement: a SELECT of records returns a lazy result, anything else a table.

        Raises InvalidRequestError for an invalid statement.
        """
        if not calls.gives_table(text):
            return RemoteSelection(self._connection, text)
        stream = self._connection.stream(calls.query(text))
        return pa.Table.from_batches(stream, schema=stream.schema)

    def sql(self, statement: str) -> RemoteRows:
        """Return the rows of an SQL statement over the server's topics. Nothing is sent until they are read.

        Reading raises InvalidRequestError for an invalid statement, or one that exceeds its limits.
        """
        return RemoteRows(self._connection, statement)

    def page(self, text: str, position: str = "head", *, wait_s: float = 0.0, limit: int = 1000) -> Page:
        """Return up to `limit` records of a SELECT after a position, and the position after them.

        position: "head", "tail", "at TIME", or one from an earlier page. wait_s: seconds to wait for a first record, at
        most 60. Raises InvalidRequestError, TruncatedAnswerError.
        """
        stream = self._connection.stream(calls.page(text, position, wait_s, limit))
        table = pa.Table.from_batches(stream, schema=stream.schema)
        return Page(table, stream.headers.get(calls.POSITION_HEADER, position), calls.gone(stream.headers))

    def tail(self, text: str, *, position: str = "tail", timeout_s: float | None = None) -> RemoteTail:
        """Follow a SELECT: records that arrive from now on, or after `position`. Resumes after failures.

        timeout_s: end after this many seconds without a record; None: continue until stopped.
        """
        return RemoteTail(self.page, text, position, timeout_s)

    def stats(self) -> dict[str, Any]:
        """Return figures of the catalog: contents, memory and disk space. See `aggregator.Catalog.stats`."""
        found: dict[str, Any] = self._connection.send(calls.plain("GET", calls.path("v1", "stats"))).json()
        return found

    # ------------------------------------------------------------ closing

    def close(self) -> None:
        """Close every connection. Close writers first."""
        self._connection.close()


class RemoteTopic(TopicReads[RemoteScan, Connection]):
    """A topic of a server. Thread-safe. Created by `Client.topic` and `create_topic`."""

    def _result(self, where: tuple[str, ...], parameters: Mapping[str, Any]) -> RemoteScan:
        return RemoteScan(self._connection, where, parameters, self._facts)

    def _facts(self) -> tuple[tuple[str, ...], bool]:
        """Return the indexes, and whether keys are binary. Cached, because they never change."""
        if self._known is None:
            self._known = calls.topic_facts(self.stats())
        return self._known

    @property
    def indexes(self) -> tuple[str, ...]:
        """Names of the indexed columns. Raises TopicNotFoundError."""
        return self._facts()[0]

    @property
    def keys(self) -> str:
        """Kind of the keys: "text" or "binary". Raises TopicNotFoundError."""
        return "binary" if self._facts()[1] else "text"

    def stats(self) -> dict[str, Any]:
        """Return rows, bytes, segments and more. See `aggregator.Topic.stats`. Raises TopicNotFoundError."""
        found: dict[str, Any] = self._connection.send(calls.stats(self.name)).json()
        return found

    # ------------------------------------------------------------ appending

    def append(
        self,
        events: Any,
        partition: str = DEFAULT_PARTITION,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Receipt:
        """Append events durably: all of them, or none. Retried if that may help, and stored once.

        events: esformat.Event objects, mappings, or anything with the Arrow C stream.
        producer, sequence: identify the batch, so that a retry by another process is also recognised; by default the
            client chooses them.

        Raises esformat.InvalidEventError, SequenceConflictError, TopicNotFoundError, AccessDeniedError,
        BodyTooLargeError (nothing was stored), OverloadedError (nothing was stored), UnavailableError (`maybe_stored`).
        """
        table = calls.events_table(events)
        with self._producers.borrow() as (mine, number):
            named = producer is not None or sequence is not None
            key = (producer, sequence) if named else (mine, number)
            return calls.receipt(self._connection.send(self._append_to(partition)(table, *key)))

    def writer(self, partition: str = DEFAULT_PARTITION, **options: Any) -> Writer:
        """Return a writer that sends events in the background, in batches. options: of `Writer`."""
        return Writer(self._connection, self._append_to(partition), calls.events_table, **options)

    # ------------------------------------------------------------ upkeep

    def retain(self, *, dry_run: bool = False) -> dict[str, Any]:
        """Remove what the topic's retention no longer keeps, now. dry_run: only report it."""
        return self._keep_house("retain", dry_run=dry_run or None)

    def compact(self) -> dict[str, Any]:
        """Merge the topic's segments, and delete erased events from disk, now."""
        return self._keep_house("compact")

    def erase(self, spaces: Sequence[str]) -> dict[str, Any]:
        """Erase every event of these spaces."""
        if isinstance(spaces, str | bytes):
            raise UsageError("pass a list of spaces")
        return self._keep_house("erase", {"spaces": list(spaces)})

    def _keep_house(self, verb: str, content: Any = None, **parameters: Any) -> dict[str, Any]:
        where = calls.path("v1", "topics", self.name, verb, **parameters)
        found: dict[str, Any] = self._connection.send(calls.plain("POST", where, content)).json()
        return found
