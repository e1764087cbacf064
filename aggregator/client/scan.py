"""`RemoteScan`, `RemoteSelection`, `RemoteRows`: lazy results of a server, with the methods of a catalog's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import pyarrow as pa

from aggregator.base.result import Answer
from aggregator.client.http import calls
from aggregator.client.http.connection import Connection, Stream
from esformat import Event
from esformat.parts import rows_of_batch
from esformat.sql import RowAnswer

Facts = Callable[[], tuple[tuple[str, ...], bool]]
"""Returns a topic's indexes, and whether its keys are binary."""


class RemoteScan(Answer):
    """The events of a scan, read from the server on demand. See `aggregator.Scan`.

    A truncated response raises TruncatedAnswerError; it never looks like a shorter result.
    """

    def __init__(
        self, connection: Connection, where: tuple[str, ...], parameters: Mapping[str, Any], facts: Facts
    ) -> None:
        """Created by methods of RemoteTopic."""
        self._connection, self._where, self._parameters, self._facts = connection, where, dict(parameters), facts

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._parameters.items() if value is not None)
        return f"<aggregator.client.RemoteScan {'/'.join(self._where[1:])}{' ' if given else ''}{given}>"

    def _stream(self, **changed: Any) -> Stream:
        return self._connection.stream(calls.read(self._where, self._parameters, changed))

    def _open(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        stream = self._stream()
        return stream.schema, stream

    @property
    def schema(self) -> pa.Schema:
        """The current Arrow schema of the batches; a topic may gain columns."""
        stream = self._stream(limit=0)
        stream.close()
        return stream.schema

    def count(self) -> int:
        """Return the number of events. The server sends their timestamps."""
        return sum(map(len, self._stream(columns=["timestamp"])))

    def __iter__(self) -> Iterator[Event]:
        indexes, binary = self._facts()
        return events_of(self._stream(**calls.with_keys(self._parameters)), indexes, b"" if binary else "")


class RemoteSelection(Answer):
    """The records of a SELECT, read from the server on demand. See `aggregator.Catalog.query`.

    A truncated response raises TruncatedAnswerError; it never looks like a shorter result.
    """

    def __init__(self, connection: Connection, text: str) -> None:
        """Created by `Client.query`."""
        self._connection, self._text = connection, text

    def __repr__(self) -> str:
        return f"<aggregator.client.RemoteSelection {self._text}>"

    def _open(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        stream = self._connection.stream(calls.query(self._text))
        return stream.schema, stream

    @property
    def schema(self) -> pa.Schema:
        """The current Arrow schema of the batches; topics may gain columns."""
        stream = self._connection.stream(calls.query(self._text))
        stream.close()
        return stream.schema

    def count(self) -> int:
        """Return the number of records. The server sends all of them: SELECT COUNT is faster."""
        return sum(map(len, self._open()[1]))

    @property
    def warnings(self) -> list[str]:
        """Warnings about parts of the statement that match nothing: FROM, and fields that no topic has."""
        reply = self._connection.send(calls.analyse(self._text))
        return calls.warnings(reply)

    def __iter__(self) -> Iterator[Event]:
        return events_of(self._open()[1], (), "")


class RemoteRows(RowAnswer):
    """The rows of an SQL statement, read from the server on demand. See `aggregator.Catalog.sql`.

    A truncated response raises TruncatedAnswerError; it never looks like a shorter result.
    """

    def __init__(self, connection: Connection, text: str) -> None:
        """Created by `Client.sql`."""
        self._connection, self._text = connection, text

    def __repr__(self) -> str:
        return f"<aggregator.client.RemoteRows {self._text}>"

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a pyarrow stream that is read as it is consumed."""
        stream = self._connection.stream(calls.sql(self._text))
        return pa.RecordBatchReader.from_batches(stream.schema, stream)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        stream = self._connection.stream(calls.sql(self._text))
        stream.close()
        return stream.schema


def events_of(batches: Iterator[pa.RecordBatch], indexes: tuple[str, ...], empty: str | bytes) -> Iterator[Event]:
    """Return the events of batches that have the key columns."""
    rows = (rows_of_batch(batch, indexes) for batch in batches)
    return chain.from_iterable(chain.from_iterable(row.iterators() for row in rows))
