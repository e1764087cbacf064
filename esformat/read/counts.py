"""`Counts`: keys or values of a segment, each with its number of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from esformat.read.answer import Unpicklable


class Counts(Unpicklable, Mapping[Any, int]):
    """Keys or values in order, each with its number of events: read from the file when iterated or looked up."""

    def __init__(self, items: Any, count: Any) -> None:
        self._items = items
        self._count = count

    def __getitem__(self, key: Any) -> int:
        return int(self._count(key))

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._items())

    def __len__(self) -> int:
        return sum(1 for _ in self._items())

    def items(self) -> Any:
        """Pairs of key and count, read on demand."""
        return _Pairs(self)

    def pairs(self) -> Iterator[tuple[Any, int]]:
        """The same as `items`, as a plain iterator."""
        return iter(self._items())

    def __repr__(self) -> str:
        shown = dict(zip(range(10), self._items(), strict=False))
        inside = ", ".join(f"{key!r}: {count}" for key, count in shown.values())
        return f"Counts({{{inside}{', …' if len(shown) == 10 else ''}}})"


class _Pairs:
    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        return self._counts.pairs()

    def __len__(self) -> int:
        return len(self._counts)
