"""The tables that names after FROM stand for: events, and the counts that may answer a statement without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa


class Counted(Protocol):
    """Keys or values with their numbers of events, looked up one by one or iterated in order."""

    def get(self, key: Any, default: int, /) -> int:
        """Return the number of events of a key."""
        ...

    def pairs(self) -> Iterator[tuple[Any, int]]:
        """Yield all keys with their numbers of events."""
        ...


class Table(Protocol):
    """A source of events in a statement: an open segment, a collection or a topic."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the events."""
        ...

    @property
    def indexes(self) -> tuple[str, ...]:
        """The names of the columns whose values are counted without reading events."""
        ...

    @property
    def num_events(self) -> int:
        """The number of events."""
        ...

    @property
    def min_timestamp(self) -> int | None:
        """The earliest timestamp, µs; None without events."""
        ...

    @property
    def max_timestamp(self) -> int | None:
        """The latest timestamp, µs; None without events."""
        ...

    def dataset(self, *, dictionaries: bool = False) -> Any:
        """The events as an `EventDataset` for query engines. dictionaries: as for `Segment.dataset`."""
        ...

    def spaces(self, prefix: str | bytes | None = None) -> Any:
        """The spaces as `Counted`, optionally only those with a prefix."""
        ...

    def index_values(self, name: str) -> Any:
        """The values of an index as `Counted`."""
        ...


_SMALL = str.maketrans({capital: capital.lower() for capital in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"})


def folded(name: str) -> str:
    """Return a name as DuckDB compares it: with only ASCII capitals in lower case."""
    return name.translate(_SMALL)


Find = Callable[[str], "Table | None"]
"""Returns the table of a name, or None if it is unknown."""


def named(tables: Mapping[str, Table]) -> Find:
    """Return a function that finds tables by name, ignoring case as SQL does."""
    known = {folded(name): table for name, table in tables.items()}
    return lambda name: known.get(folded(name))
