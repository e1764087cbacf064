"""`Space`: the events of one space in an open segment."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from esformat.core.cached_segment import RowSpan, SpaceRows
from esformat.read.answer import Scannable, Unpicklable
from esformat.read.ask.question import Query
from esformat.read.blocks.prefetch import is_local
from esformat.read.counts import Counts
from esformat.read.decode.small_space import SmallSpace
from esformat.read.scan import Scan

FEW_EVENTS, FEW_BLOCKS = 1024, 8
"""A space of several groupings with at most this many events, in this many blocks, is read into memory and sorted."""


ANNOUNCED_BYTES = 1 << 20
"""Maximum bytes of a space that are fetched before it is scanned; a larger space is fetched as it is read."""


class Space(SpaceRows, Unpicklable, Scannable[Scan]):
    """The events of one space in an open segment, oldest first; groupings are merged by time.

    key: the space's key, as `str`, or `bytes` in a segment with binary keys; key_bytes: the key as stored
    num_events: the number of events
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<esformat.Space {self.key!r}, {self.num_events} events>"

    def __len__(self) -> int:
        return self.num_events

    @property
    def num_groupings(self) -> int:
        """Number of distinct groupings."""
        return len(self._groupings)

    def groupings(self) -> Counts:
        """The space's groupings in key order, each with its number of events."""
        counts = {self._reader.shown(key): count for key, count in self._groupings}
        return Counts(lambda: iter(counts.items()), counts.__getitem__)

    def _scan(self, query: Query, grouping: bytes | None) -> Scan:
        scan: Scan | None = self.of_one_run(query, grouping, Scan)
        return self._scan_of_several(query, grouping) if scan is None else scan

    def _scan_of_several(self, query: Query, grouping: bytes | None) -> Scan:
        row_spans, groupings = (self._row_spans, self._groupings) if grouping is None else self._only(grouping)
        if len(groupings) == 1:
            keys = (self.key, self._reader.shown(groupings[0][0]))
            return Scan(self._reader, query, row_spans, span=(row_spans[0].first, row_spans[-1].last), keys=keys)
        span = (row_spans[0].first, row_spans[-1].last) if row_spans else (0, 0)
        small = bool(row_spans) and self._is_small()
        return Scan(
            self._reader,
            query,
            row_spans,
            span=span,
            merged=bool(row_spans),
            small=(lambda: SmallSpace(self._reader, self.key, self._runs(), span)) if small else None,
        )

    def _is_small(self) -> bool:
        if not is_local(self._reader, self._row_spans):  # of a remote source, all row spans are requested together
            return False
        first, last = self._row_spans[0], self._row_spans[-1]
        a, b = self._reader.leaf(first.leaf, keys=False), self._reader.leaf(last.leaf, keys=False)
        blocks = b.first_block + b.block_of(last.last - 1) - a.first_block - a.block_of(first.first)
        return self.num_events <= FEW_EVENTS and blocks < FEW_BLOCKS

    def _runs(self) -> list[tuple[str | bytes, RowSpan]]:
        """The row spans of all groupings, in the order of the file."""
        edges = list(accumulate((count for _, count in self._groupings), initial=self._row_spans[0].first))
        keys = [self._reader.shown(key) for key, _ in self._groupings]
        return [(keys[bisect_right(edges, row_span.first) - 1], row_span) for row_span in self._row_spans]

    def _only(self, grouping: bytes) -> tuple[list[RowSpan], list[tuple[bytes, int]]]:
        first = self._row_spans[0].first
        for key, count in self._groupings:
            if key == grouping:
                inside = [s for s in self._row_spans if first <= s.first < first + count]
                return inside, [(key, count)]
            first += count
        return [], []
