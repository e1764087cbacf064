"""`History`: what the store keeps of a catalog's past: which copies of its manifest, and what these need.

Objects are never named again once the newest copy of the manifest names them no more: so they may go when every copy
that does has grown too old, whoever deletes them, and however late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Sequence

from aggregator.storage.store.client import Stored
from aggregator.storage.store.shipped import manifest_sequence

NEWEST = 2
"""So many copies stay however old they are: one may be damaged."""


class Kept(Container[str]):
    """Names of segments' objects that copies of the manifest name which the store keeps."""

    def __init__(self, history_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._history_s, self._clock = history_s, clock
        self._newest: frozenset[str] = frozenset()
        self._left: dict[str, float] = {}
        self._began = clock()

    def published(self, names: Collection[str]) -> None:
        """A copy was announced that names these objects."""
        now, newest = self._clock(), frozenset(names)
        self._left |= dict.fromkeys(self._newest - newest, now)
        self._left = {name: left for name, left in self._left.items() if now - left <= self._history_s}
        self._newest = newest

    def __contains__(self, name: object) -> bool:
        """Of those that no copy of this run has named, a run before may have had some that did."""
        if name in self._newest:
            return True
        return self._clock() - self._left.get(str(name), self._began) <= self._history_s


def outdated(copies: Sequence[Stored], history_us: int, announced: str) -> tuple[list[str], int | None]:
    """Copies of the manifest that go, and the object of the log from which on the oldest that stays may be announced.

    copies: all that there are, with their times by the store's clock, whose now is the newest of these. announced: the
    one that was announced last: newer ones may be on their way, or have got no further.
    """
    known = [(sequence, copy) for copy in copies if (sequence := manifest_sequence(copy.name)) is not None]
    known.sort(key=lambda each: (each[0], each[1].name))
    if not known:
        return [], None
    now_us = max(copy.modified_us for _, copy in known)
    old = [copy.name for _, copy in known[:-NEWEST] if not history_us or now_us - copy.modified_us > history_us]
    going = [name for name in old if name != announced]
    staying = [sequence for sequence, copy in known if copy.name not in set(going)]
    return going, staying[0]
