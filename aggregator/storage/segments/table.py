"""Column index of a topic's segments: selecting from 100,000 takes a few array operations."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from aggregator.model import SegmentInfo
from aggregator.storage.segments.signature import HASHES, SIGNATURE_BYTES, U8, can_hold, columns_of, places_of

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]
_Value = TypeVar("_Value", bound=np.generic)
_PARTITION, _FIRST, _LAST, _MIN, _MAX = range(5)
_LEAST_CAPACITY = 8  # small, because a catalog may have thousands of topics
_MANY_GONE = 64  # a table of more segments is rebuilt when most of them are removed
FEW_SPACES = 16
"""Spaces tried first; each further step tries FEW_SPACES times more. Usually one of the first is present."""
MANY = 4
"""If more than 1/MANY of the segments are selected, filter the whole list: half the time per selected one."""


def key_prefix(key: bytes, common: bytes) -> int:
    """The eight bytes of a key after the prefix `common` of all keys, as a number that sorts like the keys.

    Different keys may have the same number. A key that does not begin with `common` is below or above all that do.
    """
    if key.startswith(common):
        return int.from_bytes(key[len(common) : len(common) + 8].ljust(8, b"\0"), "big")
    return 0 if key < common else 2**64 - 1


def _prefixes_of(infos: Sequence[SegmentInfo], common: int) -> U64:
    """The `key_prefix` of both ends of segments; all keys share their first `common` bytes."""
    ends = [key[common : common + 8].ljust(8, b"\0") for info in infos for key in (info.min_space, info.max_space)]
    return np.frombuffer(b"".join(ends), ">u8").reshape(-1, 2).T


def common_prefix(keys: Iterable[bytes]) -> bytes:
    """The longest common prefix of the keys."""
    ordered = sorted(keys)
    if not ordered:
        return b""
    first, last = ordered[0], ordered[-1]
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The wanted events: times [start, end) in µs, record indexes [first_index, end_index). None: any.

    partition: its number.
    """

    space: bytes | None = None
    start: int | None = None
    end: int | None = None
    partition: int | None = None
    first_index: int | None = None
    end_index: int | None = None

    def overlap(self, times: tuple[int, int], indexes: tuple[int, int]) -> bool:
        """Whether rows with times and record indexes in these closed intervals may be inside."""
        early = self.start is not None and times[1] < self.start
        late = self.end is not None and times[0] >= self.end
        passed = self.first_index is not None and indexes[1] < self.first_index
        ahead = self.end_index is not None and indexes[0] >= self.end_index
        return not (early or late or passed or ahead)

    def masks(self, times: I64, indexes: I64) -> list[Mask]:
        """The rows inside, as one mask for each limit of time and record index."""
        masks = [] if self.start is None else [times >= self.start]
        masks += [] if self.end is None else [times < self.end]
        masks += [] if self.first_index is None else [indexes >= self.first_index]
        return masks if self.end_index is None else [*masks, indexes < self.end_index]


@dataclass(frozen=True, slots=True)
class SegmentView:
    """The segments at one moment. Later changes of the table are not visible."""

    infos: list[SegmentInfo]
    alive: Mask
    count: int
    index: SegmentIndex

    def __iter__(self) -> Iterator[SegmentInfo]:
        return compress(self.infos, self.alive[: self.count].tobytes())

    def __len__(self) -> int:
        return int(self.alive[: self.count].sum())

    def select(self, bounds: Bounds) -> list[SegmentInfo]:
        """Segments that may contain events within the bounds, in insertion order."""
        count = self.count
        built = self.index.of(count)
        columns, prefixes = built.columns, built.prefixes
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
            prefix = np.uint64(key_prefix(bounds.space, built.common))
            mask &= prefixes[0, :count] <= prefix
            mask &= prefixes[1, :count] >= prefix
            mask &= can_hold(built.signatures[:, :count], bounds.space)
            ends = (prefixes[0, :count] == prefix) | (prefixes[1, :count] == prefix)
            for place in (mask & ends).nonzero()[0].tolist():  # prefixes are equal: compare whole keys
                info = self.infos[place]
                mask[place] = info.min_space <= bounds.space <= info.max_space
        places = mask.nonzero()[0]
        if len(places) > count // MANY:
            return list(compress(self.infos, mask.tobytes()))
        return [self.infos[place] for place in places.tolist()]

    def holding(self, partition: int, ends: Mapping[bytes, int]) -> Iterator[SegmentInfo]:
        """Segments of a partition that may contain events of a space in `ends`, below its record index there.

        Checking 100,000 spaces against 1,000 segments takes a fraction of a second.
        """
        spaces = sorted(ends)
        before = np.array([ends[space] for space in spaces], np.int64)
        bits = np.array([places_of(space) for space in spaces], np.int64).reshape(len(spaces), HASHES)
        built = self.index.of(self.count)
        mine = self.alive[: self.count] & (built.columns[_PARTITION, : self.count] == partition)
        for place in mine.nonzero()[0].tolist():
            info = self.infos[place]
            first, last = bisect_left(spaces, info.min_space), bisect_right(spaces, info.max_space)
            signature = np.unpackbits(built.signatures[:, place], bitorder="little")
            step = FEW_SPACES
            while first < last:
                left = np.arange(first, min(last, first + step))
                left = left[before[left] > info.first_index]
                for each in bits.T:
                    left = left[signature[each[left]] != 0]
                if len(left):
                    yield info
                    break
                first, step = first + step, step * FEW_SPACES


def _wider(columns: npt.NDArray[_Value], capacity: int) -> npt.NDArray[_Value]:
    """A copy with capacity for more columns."""
    made = np.zeros((*columns.shape[:-1], capacity), columns.dtype)
    made[..., : columns.shape[-1]] = columns
    return made


_facts_of = attrgetter("partition", "first_index", "last_index", "min_timestamp", "max_timestamp")


@dataclass(frozen=True, slots=True)
class _Built:
    """The first `count` segments of a list in columns, which may have spare capacity. prefixes: the `key_prefix` of
    their spaces, which all begin with `common`.
    """

    count: int
    columns: I64
    prefixes: U64
    signatures: U8
    common: bytes


class SegmentIndex:
    """A list of segments in columns, built on the first search, because a catalog may have thousands of topics that
    nobody reads. The list only grows. Thread-safe.
    """

    def __init__(self, infos: list[SegmentInfo]) -> None:
        self._infos = infos
        columns, prefixes = np.zeros((5, 0), np.int64), np.zeros((2, 0), np.uint64)
        self._built = _Built(0, columns, prefixes, np.zeros((SIGNATURE_BYTES, 0), np.uint8), b"")

    def of(self, count: int) -> _Built:
        """The columns of at least `count` segments.

        Threads that extend the columns at the same time write the same values to the same positions.
        """
        built = self._built
        if built.count < count:
            built = self._built = self._with_new(built)
        return built

    def _with_new(self, built: _Built) -> _Built:
        first, infos = built.count, self._infos[built.count :]
        last = first + len(infos)
        columns, prefixes, signatures = built.columns, built.prefixes, built.signatures
        if last > columns.shape[1]:
            capacity = max(_LEAST_CAPACITY, 2 * last)
            columns, prefixes = _wider(columns, capacity), _wider(prefixes, capacity)
            signatures = _wider(signatures, capacity)
        keys = [key for info in infos for key in (info.min_space, info.max_space)]
        common = common_prefix([*keys, built.common] if first else keys)
        if common != built.common:
            prefixes = prefixes.copy()  # other readers keep using the old ones
            prefixes[:, :first] = _prefixes_of(self._infos[:first], len(common))
        columns[:, first:last] = np.array([_facts_of(info) for info in infos], np.int64).T
        prefixes[:, first:last] = _prefixes_of(infos, len(common))
        signatures[:, first:last] = columns_of(info.signature for info in infos)
        return _Built(last, columns, prefixes, signatures, common)


class SegmentTable:
    """The segments of a topic. Changed under the catalog's view lock; read through immutable views.

    size_bytes: of their files.
    """

    def __init__(self, infos: Iterable[SegmentInfo] = ()) -> None:
        self._start(infos)

    def _start(self, infos: Iterable[SegmentInfo]) -> None:
        self._infos: list[SegmentInfo] = []
        self._index = SegmentIndex(self._infos)
        self._alive: Mask = np.zeros(0, np.bool_)
        self._places: dict[int, int] = {}
        self.size_bytes = 0
        self.add(infos)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def get(self, number: int) -> SegmentInfo | None:
        """The segment with that number; None if there is none."""
        place = self._places.get(number)
        return None if place is None else self._infos[place]

    def view(self) -> SegmentView:
        """The current segments."""
        return SegmentView(self._infos, self._alive, len(self._infos), self._index)

    def add(self, infos: Iterable[SegmentInfo]) -> None:
        """Add segments. Existing views do not show them, because they remember their own count."""
        infos = list(infos)
        first = len(self._infos)
        last = first + len(infos)
        if last > len(self._alive):
            self._alive = _wider(self._alive, max(_LEAST_CAPACITY, 2 * last))
        self._places.update((info.number, place) for place, info in enumerate(infos, first))
        self.size_bytes += sum(info.size_bytes for info in infos)
        self._alive[first:last] = True
        self._infos.extend(infos)

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove segments, ignoring unknown ones. Existing views keep them."""
        places = [self._places.pop(number) for number in numbers if number in self._places]
        self._alive = self._alive.copy()
        self._alive[places] = False
        self.size_bytes -= sum(self._infos[place].size_bytes for place in places)
        if len(self._infos) > _MANY_GONE and 2 * len(self._places) < len(self._infos):
            self._start(list(self.view()))
