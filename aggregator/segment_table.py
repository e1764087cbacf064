"""The segments of a topic as columns, so that choosing among a hundred thousand takes a few array operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from aggregator.model import SegmentInfo

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
_PARTITION, _FIRST, _LAST, _MIN, _MAX = range(5)
_FIRST_CAPACITY = 64


def key_prefix(key: bytes) -> int:
    """The first eight bytes of a key as a number that orders as the keys do, ties apart."""
    return int.from_bytes(key[:8].ljust(8, b"\0"), "big")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a segment must overlap to be chosen; None: anything. Times [start, end), record indexes [first, end)."""

    space: bytes | None = None
    start: int | None = None
    end: int | None = None
    partition: int | None = None
    first_index: int | None = None
    end_index: int | None = None


@dataclass(frozen=True, slots=True)
class SegmentView:
    """The segments at one moment. Later changes of the table do not show."""

    infos: list[SegmentInfo]
    columns: I64
    prefixes: U64
    alive: Mask
    count: int

    def __iter__(self) -> Iterator[SegmentInfo]:
        return (self.infos[place] for place in self.alive[: self.count].nonzero()[0].tolist())

    def __len__(self) -> int:
        return int(self.alive[: self.count].sum())

    def select(self, bounds: Bounds) -> list[SegmentInfo]:
        """Segments that can hold what lies within the bounds, in the order in which they came."""
        count = self.count
        columns = self.columns
        mask = self.alive[:count].copy()
        if bounds.partition is not None:
            mask &= columns[_PARTITION, :count] == bounds.partition
        if bounds.start is not None:
            mask &= columns[_MAX, :count] >= bounds.start
        if bounds.end is not None:
            mask &= columns[_MIN, :count] < bounds.end
        if bounds.first_index is not None:
            mask &= columns[_LAST, :count] >= bounds.first_index
        if bounds.end_index is not None:
            mask &= columns[_FIRST, :count] < bounds.end_index
        if bounds.space is not None:
            prefix = np.uint64(key_prefix(bounds.space))
            mask &= self.prefixes[0, :count] <= prefix
            mask &= self.prefixes[1, :count] >= prefix
        chosen = [self.infos[place] for place in mask.nonzero()[0].tolist()]
        if bounds.space is None:
            return chosen
        return [info for info in chosen if info.min_space <= bounds.space <= info.max_space]


class SegmentTable:
    """The segments of a topic. Changed under the catalog's view lock; read through views, which do not change."""

    def __init__(self, infos: Iterable[SegmentInfo] = ()) -> None:
        self._start(list(infos))

    def _start(self, infos: list[SegmentInfo]) -> None:
        capacity = max(_FIRST_CAPACITY, 2 * len(infos))
        self._infos: list[SegmentInfo] = []
        self._columns: I64 = np.zeros((5, capacity), np.int64)
        self._prefixes: U64 = np.zeros((2, capacity), np.uint64)
        self._alive: Mask = np.zeros(capacity, np.bool_)
        self._places: dict[int, int] = {}
        self.add(infos)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def view(self) -> SegmentView:
        """The segments now."""
        return SegmentView(self._infos, self._columns, self._prefixes, self._alive, len(self._infos))

    def add(self, infos: Iterable[SegmentInfo]) -> None:
        """Add segments. Views that exist do not see them: they know how many they had."""
        infos = list(infos)
        first = len(self._infos)
        last = first + len(infos)
        if last > self._columns.shape[1]:
            room = ((0, 0), (0, last))
            self._columns = np.pad(self._columns, room)
            self._prefixes = np.pad(self._prefixes, room)
            self._alive = np.pad(self._alive, room[1])
        for place, info in enumerate(infos, first):
            facts = (info.partition, info.first_index, info.last_index, info.min_timestamp, info.max_timestamp)
            self._columns[:, place] = facts
            self._prefixes[:, place] = key_prefix(info.min_space), key_prefix(info.max_space)
            self._places[info.number] = place
        self._infos.extend(infos)
        self._alive[first:last] = True

    def remove(self, numbers: Iterable[int]) -> None:
        """Take segments out, those that are there. Views that exist keep them."""
        places = [self._places.pop(number) for number in numbers if number in self._places]
        self._alive = self._alive.copy()
        self._alive[places] = False
        if len(self._infos) > _FIRST_CAPACITY and 2 * len(self._places) < len(self._infos):
            self._start(list(self.view()))
