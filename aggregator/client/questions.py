"""`Questions`: the verbs of a topic that ask for events, the same for the sync and the async client."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from aggregator.client.http import calls
from aggregator.model import DEFAULT_PARTITION
from aggregator.read.query import Scans
from esformat import UsageError

S = TypeVar("S")


class Questions(Scans[S]):
    """Each gives a lazy answer; nothing is sent before that is used."""

    name: str

    @abstractmethod
    def _answer(self, where: tuple[str, ...], parameters: Mapping[str, Any]) -> S:
        """The lazy answer of a path."""

    def _scan(self, conditions: Mapping[str, Any], options: Mapping[str, Any]) -> S:
        parameters = calls.scan_parameters(**options)
        if not conditions:
            return self._answer(("v1", "topics", self.name, "events"), parameters)
        if len(conditions) > 1:
            raise UsageError("a server looks up one index at a time", hint="give one, or use a query")
        ((name, value),) = conditions.items()
        return self._answer(
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
        """Events of a partition in the order in which they were appended. See `aggregator.Topic.read`."""
        parameters = {
            "from_": from_index, "limit": limit, "reverse": reverse or None,
            "columns": None if columns is None else list(columns),
        }  # fmt: skip
        where = ("v1", "topics", self.name, "partitions", partition, "records")
        return self._answer(where, parameters)
