"""`AsyncClient`: `Client` for programs with an event loop."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from aggregator.client.http import calls
from aggregator.client.http.async_connection import AsyncConnection, AsyncStream
from aggregator.client.http.connection import Options
from aggregator.client.http.errors import TruncatedAnswerError
from aggregator.client.http.retry import Retry
from aggregator.client.scan import events_of
from aggregator.client.streams import records_table, tags_text
from aggregator.client.tail import BROKEN_POLLS, POLL_RECORDS, POLL_S, Page
from aggregator.client.topic_reads import TopicReads
from aggregator.client.writing.async_writer import AsyncWriter
from aggregator.client.writing.producer_pool import ProducerPool
from aggregator.model import DEFAULT_PARTITION, STREAMS_TOPIC, Receipt
from aggregator.policy import Retention, Roll
from esformat import Event
from esformat.parts import with_fields


class AsyncAnswer:
    """Events that are read from a server on demand; may be read repeatedly.

    `async for` yields `esformat.Event`s, `batches` record batches, in bounded memory. A truncated response raises
    TruncatedAnswerError; it never looks like a shorter result.
    """

    def __init__(self, connection: AsyncConnection, call_of: Callable[..., calls.Call], facts: Any) -> None:
        """Created by methods of AsyncTopic and AsyncClient. call_of: returns the call, with some parameters changed."""
        self._connection, self._call_of, self._facts = connection, call_of, facts

    async def _stream(self, **changed: Any) -> AsyncStream:
        return await self._connection.stream(self._call_of(**changed))

    async def schema(self) -> pa.Schema:
        """Return the current Arrow schema of the batches."""
        stream = await self._stream(limit=0)
        await stream.close()
        return stream.schema

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Yield the events as record batches, in order."""
        stream = await self._stream()
        async for batch in stream.batches():
            yield batch

    async def to_table(self, *, fields: Iterable[str] | Mapping[str, pa.DataType] = ()) -> pa.Table:
        """Return all events as one table; `fields` of JSON payloads as in `esformat.Scan.to_table`."""
        stream = await self._stream()
        table = pa.Table.from_batches([batch async for batch in stream.batches()], schema=stream.schema)
        return with_fields(table, fields) if fields else table

    async def to_pandas(self, *, fields: Iterable[str] | Mapping[str, pa.DataType] = (), **options: Any) -> Any:
        """Return all events as a pandas data frame. fields: as in `to_table`. options: of `pyarrow.Table.to_pandas`."""
        return (await self.to_table(fields=fields)).to_pandas(**options)

    async def count(self) -> int:
        """Return the number of events. The server sends their timestamps; for a SELECT, all columns of its records."""
        stream = await self._stream(columns=["timestamp"])
        return sum([len(batch) async for batch in stream.batches()])

    async def __aiter__(self) -> AsyncIterator[Event]:
        indexes, binary = await self._facts()
        stream = await self._stream(with_keys=True)
        async for batch in stream.batches():
            for event in events_of(iter([batch]), indexes, b"" if binary else ""):
                yield event


class AsyncClient:
    """A connection to a server, for one event loop. Close it, or use it as an async context manager."""

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
        """Options as in `Client`."""
        options = Options(url, token, timeout_s, retry or Retry(), compression, ca_file, client_cert)
        self._connection = AsyncConnection(options)
        self._producers = ProducerPool()

    def __repr__(self) -> str:
        return f"<aggregator.client.AsyncClient {self._connection.options.url!r}>"

    async def topics(self) -> tuple[str, ...]:
        """Return the names of the topics in order of creation."""
        return calls.topic_names(await self._connection.send(calls.plain("GET", calls.path("v1", "topics"))))

    def topic(self, name: str) -> AsyncTopic:
        """Return a topic, without contacting the server."""
        return AsyncTopic(self._connection, self._producers, name)

    async def create_topic(
        self,
        name: str,
        *,
        indexes: Sequence[str] = (),
        keys: str = "text",
        roll: Roll | Mapping[str, Any] | None = None,
        retention: Retention | Mapping[str, Any] | None = None,
    ) -> AsyncTopic:
        """Create a topic unless it exists with the same settings. As `Client.create_topic`."""
        await self._connection.send(calls.create_topic(name, indexes, keys, roll, retention))
        return self.topic(name)

    async def alter_topic(
        self,
        name: str,
        *,
        roll: Roll | Mapping[str, Any] | None = None,
        retention: Retention | Mapping[str, Any] | None = None,
    ) -> AsyncTopic:
        """Change a topic's policies; those that are None stay. As `Client.alter_topic`."""
        await self._connection.send(calls.alter_topic(name, roll, retention))
        return self.topic(name)

    async def rename_topic(self, name: str, new_name: str) -> AsyncTopic:
        """Rename a topic. As `Client.rename_topic`."""
        await self._connection.send(calls.rename_topic(name, new_name))
        return self.topic(new_name)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all of its events. As `Client.delete_topic`."""
        await self._connection.send(calls.delete_topic(name))

    async def write(
        self, tags: Mapping[str, str], records: Any, topic: str = STREAMS_TOPIC, *, partition: str = DEFAULT_PARTITION
    ) -> Receipt:
        """Store records in the stream with these tags: all of them, durably, or none. As `Client.write`."""
        table = records_table(records)
        compression = self._connection.options.compression
        with self._producers.borrow() as key:
            call = calls.write(tags_text(tags), table, topic, partition, *key, compression)
            return calls.receipt(await self._connection.send(call))

    async def query(self, text: str) -> AsyncAnswer | pa.Table:
        """Run an LQL statement: a SELECT of records returns a lazy result, anything else a table."""

        def call(**_: Any) -> calls.Call:
            return calls.query(text)

        if not calls.gives_table(text):
            return AsyncAnswer(self._connection, call, _no_facts)
        return await AsyncAnswer(self._connection, call, _no_facts).to_table()

    async def sql(self, statement: str) -> pa.Table:
        """Return the rows of an SQL statement over the server's topics. As `Client.sql`."""
        stream = await self._connection.stream(calls.sql(statement))
        return pa.Table.from_batches([batch async for batch in stream.batches()], schema=stream.schema)

    async def page(self, text: str, position: str = "head", *, wait_s: float = 0.0, limit: int = 1000) -> Page:
        """Return up to `limit` records of a SELECT after a position, and the position after them. As `Client.page`."""
        stream = await self._connection.stream(calls.page(text, position, wait_s, limit))
        table = pa.Table.from_batches([batch async for batch in stream.batches()], schema=stream.schema)
        return Page(table, stream.headers.get(calls.POSITION_HEADER, position), calls.gone(stream.headers))

    async def tail(self, text: str, *, position: str = "tail", timeout_s: float | None = None) -> AsyncIterator[Page]:
        """Follow a SELECT: pages of records as they arrive, and where to continue after each. As `Client.tail`."""
        heard = time.monotonic()
        heard_all, broken = False, 0
        while True:
            left = POLL_S if timeout_s is None else heard + timeout_s - time.monotonic()
            if left < 0 and heard_all:
                return
            wait_s = 0.0 if position == "tail" else min(max(left, 0.0), POLL_S)  # see RemoteTail
            try:
                page = await self.page(text, position, wait_s=wait_s, limit=POLL_RECORDS)
            except TruncatedAnswerError:
                broken += 1
                if broken == BROKEN_POLLS:
                    raise
                continue
            heard_all, broken, position = page.table.num_rows == 0, 0, page.position
            if page.table.num_rows:
                yield page
                heard = time.monotonic()

    async def close(self) -> None:
        """Close every connection. Close writers first."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncTopic(TopicReads[AsyncAnswer, AsyncConnection]):
    """A topic of a server. Created by `AsyncClient.topic` and `create_topic`."""

    async def _facts(self) -> tuple[tuple[str, ...], bool]:
        if self._known is None:
            self._known = calls.topic_facts(await self.stats())
        return self._known

    def _result(self, where: tuple[str, ...], parameters: Mapping[str, Any]) -> AsyncAnswer:
        def call(*, with_keys: bool = False, **changed: Any) -> calls.Call:
            return calls.read(where, calls.with_keys(parameters) if with_keys else parameters, changed)

        return AsyncAnswer(self._connection, call, self._facts)

    async def stats(self) -> dict[str, Any]:
        """Return rows, bytes, segments and more. As `Topic.stats`. Raises TopicNotFoundError."""
        found: dict[str, Any] = (await self._connection.send(calls.stats(self.name))).json()
        return found

    async def append(
        self,
        events: Any,
        partition: str = DEFAULT_PARTITION,
        *,
        producer: str | None = None,
        sequence: int | None = None,
    ) -> Receipt:
        """Append events durably. Retried if that may help, and stored once.

        As `RemoteTopic.append`.
        """
        table = calls.events_table(events)
        with self._producers.borrow() as (mine, number):
            named = producer is not None or sequence is not None
            key = (producer, sequence) if named else (mine, number)
            return calls.receipt(await self._connection.send(self._append_to(partition)(table, *key)))

    def writer(self, partition: str = DEFAULT_PARTITION, **options: Any) -> AsyncWriter:
        """Return a writer that sends events in the background, in batches. options: of `AsyncWriter`."""
        return AsyncWriter(self._connection, self._append_to(partition), calls.events_table, **options)


async def _no_facts() -> tuple[tuple[str, ...], bool]:
    return (), False
