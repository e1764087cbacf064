"""The history that the store keeps of a catalog: which copies of its manifest, and the objects that these need.

Once the newest copy of the manifest no longer names an object, no later copy will. So the object may be deleted when
every copy that names it has grown too old, by any process, and at any later time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Sequence

from aggregator.storage.store.client import Stored
from aggregator.storage.store.shipped import manifest_sequence

NEWEST = 2
"""Number of copies that stay however old they are: one may be damaged."""


class Kept(Container[str]):
    """The names of objects that are named by a copy of the manifest in the store's history."""

    def __init__(self, history_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._history_s, self._clock = history_s, clock
        self._newest: frozenset[str] = frozenset()
        self._left: dict[str, float] = {}
        self._began = clock()

    def published(self, names: Collection[str]) -> None:
        """Record that a copy was announced that names these objects."""
        now, newest = self._clock(), frozenset(names)
        self._left |= dict.fromkeys(self._newest - newest, now)
        self._left = {name: left for name, left in self._left.items() if now - left <= self._history_s}
        self._newest = newest

    def __contains__(self, name: object) -> bool:
        """Whether a copy may name the object. If none of this run does, one of an earlier run may."""
        if name in self._newest:
            return True
        return self._clock() - self._left.get(str(name), self._began) <= self._history_s


def outdated(copies: Sequence[Stored], history_us: int, announced: str) -> tuple[list[str], int | None]:
    """Choose the copies of the manifest to delete. Also return the number of the first object of the log that may
    announce the oldest remaining copy.

    copies: all in the store, with times by the store's clock, whose present time is taken to be the newest of these.
    announced: the copy that was announced last, which stays: newer ones may never have been announced.
    """
    known = [(sequence, copy) for copy in copies if (sequence := manifest_sequence(copy.name)) is not None]
    known.sort(key=lambda each: (each[0], each[1].name))
    if not known:
        return [], None
    now_us = max(copy.modified_us for _, copy in known)
    old = [copy.name for _, copy in known[:-NEWEST] if not history_us or now_us - copy.modified_us > history_us]
    to_delete = [name for name in old if name != announced]
    remaining = [sequence for sequence, copy in known if copy.name not in set(to_delete)]
    return to_delete, remaining[0]
