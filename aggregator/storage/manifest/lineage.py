"""The openings of a catalog and the record indexes of each, so that positions of another history are refused.

A restored copy reassigns record indexes that the catalog had assigned before, to other records. So each opening for
writing begins an *incarnation*: a random name, and the first record index that it assigns in each partition. A position
names the incarnation that assigned the newest record before it. If the catalog never had that incarnation, or the next
one began at a lower index, the position comes from a future that the catalog no longer has.

The history is bounded: for the time before its first incarnation only the record indexes are known, not the names.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aggregator.errors import BehindError, InvalidRequestError

NAME_BYTES = 4
MAX_INCARNATIONS = 256
"""Incarnations that are distinguished; of older ones, only where the last of them ended is known."""
BEFORE = b"\0" * NAME_BYTES
"""The name for everything before the first known incarnation; never used as a random name."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The past of a catalog. identity: distinguishes it from others. names: of its incarnations, oldest first.

    starts: for each partition, the positions in `names` at which its first record index changed, and the new indexes.
    is_copy: whether its newest records were copied from elsewhere, where there may be more.
    """

    identity: bytes
    names: tuple[bytes, ...]
    starts: Mapping[int, tuple[list[int], list[int]]]
    is_copy: bool = False

    @classmethod
    def of(cls, identity: bytes, names: Iterable[tuple[int, bytes]], starts: Iterable[tuple[int, int, int]]) -> Lineage:
        """Build from rows in order. names: number and name. starts: incarnation's number, partition, first index."""
        numbered = list(names)
        place = {number: at for at, (number, _) in enumerate(numbered)}
        found: dict[int, tuple[list[int], list[int]]] = {}
        for number, partition, first in starts:
            places, firsts = found.setdefault(partition, ([], []))
            places.append(place[number])
            firsts.append(first)
        return cls(identity, tuple(name for _, name in numbered), found)

    def start(self, place: int, partition: int) -> int:
        """The first record index that the incarnation at position `place` assigns in a partition."""
        places, firsts = self.starts.get(partition, ([], []))
        at = bisect_right(places, place) - 1
        return firsts[at] if at >= 0 else 0

    def name_of(self, ends: Mapping[int, int]) -> bytes:
        """The incarnation that assigned the newest of the records below these indexes."""
        newest = 0
        for partition, end in ends.items():
            if end > 0:
                places, firsts = self.starts.get(partition, ([], []))
                at = bisect_left(firsts, end)
                newest = max(newest, places[at] - 1 if at < len(places) else len(self.names) - 1)
        return self.names[newest]

    def has(self, name: bytes, ends: Mapping[int, int], visible: Mapping[int, int]) -> bool:
        """Whether the records below these indexes belong to this past.

        name: the incarnation that assigned the newest of them. visible: where the partitions end now.
        """
        if not any(ends.values()):
            return True
        place = self.names.index(name) if name in self.names else 0
        if place + 1 == len(self.names):
            return all(end <= visible.get(partition, 0) for partition, end in ends.items())
        return all(end <= self.start(place + 1, partition) for partition, end in ends.items())

    def check(self, name: bytes, ends: Mapping[int, int], visible: Mapping[int, int]) -> None:
        """Raises InvalidRequestError if `has` returns False; BehindError if that may change."""
        if not self.has(name, ends, visible):
            if self.is_copy and name not in self.names[:-1]:
                raise BehindError(
                    "the position is ahead of this copy: another server returned it",
                    hint="retry in a moment, or query that server",
                )
            raise InvalidRequestError(
                "the position is from after the state that this catalog was restored from: the records after "
                "it do not continue those that were read",
                hint="start at HEAD, or at a time shortly before the copy was made",
            )
