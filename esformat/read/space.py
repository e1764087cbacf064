"""`Space`: the events of one space in an open segment."""

from __future__ import annotations

from esformat.read.answer import Scannable
from esformat.read.ask.question import Checks, Query
from esformat.read.blocks.plan import Stretch
from esformat.read.blocks.prefetch import announce_of
from esformat.read.blocks.reader import Reader
from esformat.read.counts import Counts
from esformat.read.scan import Scan

FEW_RUNS, FEW_EVENTS = 16, 1024
"""Groupings and events of a space up to which each grouping is read by itself and their events are sorted."""


class Space(Scannable[Scan]):
    """The events of one space in an open segment: oldest first, groupings merged by time."""

    __slots__ = ("_groupings", "_reader", "_stretches", "key", "key_bytes", "num_events")

    def __init__(
        self,
        reader: Reader,
        key: bytes,
        stretches: list[Stretch],
        groupings: list[tuple[bytes, int]],
        asked: str | bytes = b"",
    ) -> None:
        """Made by `Segment.find`. `asked`: the key as the caller gave it."""
        self._reader = reader
        self.key_bytes = key
        self.key: str | bytes = asked if type(asked) is reader.shown_type else reader.shown(key)
        """The space's key."""
        self._stretches = stretches
        self._groupings = groupings
        self.num_events: int = stretches[-1].last - stretches[0].first

    def _shown(self, key: bytes) -> str | bytes:
        return self._reader.shown(key)

    def __repr__(self) -> str:
        return f"<esformat.Space {self.key!r}, {self.num_events} events>"

    def __len__(self) -> int:
        return self.num_events

    @property
    def num_groupings(self) -> int:
        """Distinct groupings."""
        return len(self._groupings)

    def groupings(self) -> Counts:
        """The space's groupings, in key order, and how many events each has."""
        counts = {self._shown(key): count for key, count in self._groupings}
        return Counts(lambda: iter(counts.items()), counts.__getitem__)

    @property
    def _checks(self) -> Checks:
        return self._reader.checks

    def _scan(self, query: Query, grouping: bytes | None) -> Scan:
        stretches, groupings = (self._stretches, self._groupings) if grouping is None else self._only(grouping)
        if len(groupings) == 1:
            keys = (self.key, self._shown(groupings[0][0]))
            return Scan(
                self._reader, query, lambda: stretches, span=(stretches[0].first, stretches[-1].last), keys=keys
            )
        span = (stretches[0].first, stretches[-1].last) if stretches else (0, 0)
        near = announce_of(self._reader) is None  # a source far away is asked for all of them at once
        small = near and 1 < len(groupings) <= FEW_RUNS and self.num_events <= FEW_EVENTS
        return Scan(
            self._reader, query, lambda: stretches, span=span, merged=bool(stretches),
            runs=(lambda: [self._scan(query, key) for key, _ in groupings]) if small else None,
        )  # fmt: skip

    def _only(self, grouping: bytes) -> tuple[list[Stretch], list[tuple[bytes, int]]]:
        first = self._stretches[0].first
        for key, count in self._groupings:
            if key == grouping:
                inside = [s for s in self._stretches if first <= s.first < first + count]
                return inside, [(key, count)]
            first += count
        return [], []
