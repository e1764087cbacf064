"""`Questions`: the verbs of a topic that ask for events, the same for the sync and the async client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from aggregator.client import calls
from esformat import UsageError

DEFAULT_PARTITION = "0"
S = TypeVar("S")


class Questions(ABC, Generic[S]):
    """Each gives a lazy answer; nothing is sent before that is used."""

    name: str

    @abstractmethod
    def _answer(self, where: tuple[str, ...], parameters: Mapping[str, Any]) -> S:
        """The lazy answer of a path."""

    def scan(
        self,
        *,
        space: str | bytes | None = None,
        grouping: str | bytes | None = None,
        start: Any = None,
        end: Any = None,
        reverse: bool = False,
        limit: int | None = None,
        columns: Sequence[str] | None = None,
        partition: str | None = None,
    ) -> S:
        """Events by time, oldest first, as `aggregator.Topic.scan` gives them. Raises UsageError, InvalidEventError."""
        parameters = calls.scan_parameters(
            space=space, grouping=grouping, start=start, end=end, reverse=reverse, limit=limit, columns=columns,
            partition=partition,
        )  # fmt: skip
        return self._answer(("v1", "topics", self.name, "events"), parameters)

    def scan_index(
        self,
        name: str,
        value: Any,
        *,
        space: str | bytes | None = None,
        grouping: str | bytes | None = None,
        start: Any = None,
        end: Any = None,
        reverse: bool = False,
        limit: int | None = None,
        columns: Sequence[str] | None = None,
        partition: str | None = None,
    ) -> S:
        """Events with a value of an index; else as `scan`. Raises UsageError, InvalidEventError."""
        parameters = calls.scan_parameters(
            space=space, grouping=grouping, start=start, end=end, reverse=reverse, limit=limit, columns=columns,
            partition=partition,
        )  # fmt: skip
        if value is None:
            raise UsageError("give the value of the index to look for")
        where = ("v1", "topics", self.name, "index", name)
        return self._answer(where, parameters | {"value": value, "type": calls.type_of(value)})

    def read(
        self,
        partition: str = DEFAULT_PARTITION,
        from_index: int | None = None,
        limit: int | None = None,
        *,
        reverse: bool = False,
        columns: Sequence[str] | None = None,
    ) -> S:
        """Events of a partition in the order in which they were appended. See `aggregator.Topic.read`."""
        parameters = {
            "from_": from_index, "limit": limit, "reverse": reverse or None,
            "columns": None if columns is None else list(columns),
        }  # fmt: skip
        where = ("v1", "topics", self.name, "partitions", partition, "records")
        return self._answer(where, parameters)
