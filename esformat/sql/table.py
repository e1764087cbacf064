"""What a name behind FROM stands for: events, and the few facts by which a statement may be answered without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pyarrow as pa


class Counted(Protocol):
    """Keys or values, and how many events each has, looked up one by one or all in order."""

    def get(self, key: Any, default: int, /) -> int:
        """How many events a key has."""
        ...

    def pairs(self) -> Iterator[tuple[Any, int]]:
        """All of them."""
        ...


class Table(Protocol):
    """Events that a statement names: an open segment, a collection, a topic."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the events."""
        ...

    @property
    def indexes(self) -> tuple[str, ...]:
        """Names of the columns whose values are counted without reading events."""
        ...

    @property
    def num_events(self) -> int:
        """How many there are."""
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
        """The events, as `EventDataset` gives them to engines. dictionaries: as of `Segment.dataset`."""
        ...

    def spaces(self, prefix: str | bytes | None = None) -> Any:
        """Spaces, those that begin with a prefix, as `Counted`."""
        ...

    def index_values(self, name: str) -> Any:
        """Values of an index, as `Counted`."""
        ...


_SMALL = str.maketrans({capital: capital.lower() for capital in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"})


def folded(name: str) -> str:
    """A name as DuckDB compares it: the capitals of ASCII are small letters, and no others."""
    return name.translate(_SMALL)


Find = Callable[[str], "Table | None"]
"""The table of a name, or None where there is none of that name."""


def named(tables: Mapping[str, Table]) -> Find:
    """Find tables by name, as SQL does: capital letters are the same as small ones."""
    known = {folded(name): table for name, table in tables.items()}
    return lambda name: known.get(folded(name))
