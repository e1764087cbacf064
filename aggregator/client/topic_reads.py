"""`TopicReads`: the read methods shared by the topics of the sync and the async client."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from aggregator.client.http import calls
from aggregator.client.http.async_connection import AsyncConnection
from aggregator.client.http.connection import Connection
from aggregator.client.writing.producer_pool import ProducerPool
from aggregator.model import DEFAULT_PARTITION
from aggregator.read.query import Scans
from esformat import UsageError

S = TypeVar("S")
C = TypeVar("C", Connection, AsyncConnection)


class TopicReads(Scans[S], Generic[S, C]):
    """Read methods that return lazy results; nothing is sent before a result is used."""

    def __init__(self, connection: C, producers: ProducerPool, name: str) -> None:
        self._connection: C = connection
        self._producers, self.name = producers, name
        self._known: tuple[tuple[str, ...], bool] | None = None

    def __repr__(self) -> str:
        return f"<aggregator.client.{type(self).__name__} {self.name!r}>"

    def _append_to(self, partition: str) -> Callable[[pa.Table, str | None, int | None], calls.Call]:
        """Return a function that creates the call to append a batch."""
        compression = self._connection.options.compression

        def call(table: pa.Table, producer: str | None, sequence: int | None) -> calls.Call:
            return calls.append(self.name, table, partition, producer, sequence, compression)

        return call

    @abstractmethod
    def _result(self, where: tuple[str, ...], parameters: Mapping[str, Any]) -> S:
        """Return the lazy result of a path."""

    def _scan(self, conditions: Mapping[str, Any], options: Mapping[str, Any]) -> S:
        parameters = calls.scan_parameters(**options)
        if not conditions:
            return self._result(("v1", "topics", self.name, "events"), parameters)
        if len(conditions) > 1:
            raise UsageError("a server can look up only one index at a time", hint="pass one index, or use a query")
        ((name, value),) = conditions.items()
        return self._result(
            ("v1", "topics", self.name, "index", name), {**parameters, "value": value, "type": calls.type_of(value)}
        )

    def read(
        self,
        partition: str = DEFAULT_PARTITION,
        from_index: int | None = None,
        limit: int | None = None,
        *,
        reverse: bool = False,
        columns: Sequence[str] | None = None,
    ) -> S:
        """Return events of a partition in append order. See `aggregator.Topic.read`."""
        parameters = {
            "from_": from_index,
            "limit": limit,
            "reverse": reverse or None,
            "columns": None if columns is None else list(columns),
        }
        where = ("v1", "topics", self.name, "partitions", partition, "records")
        return self._result(where, parameters)
