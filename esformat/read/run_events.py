"""The events of one run of rows, block by block: what most questions about a space come to."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from esformat.event import Event
from esformat.format.data_block import DataBlock
from esformat.format.directory import Leaf
from esformat.read.block_events import EventMaker, find_rows
from esformat.read.plan import Narrowed, Portion, Query, Stretch, narrow, portions
from esformat.read.prefetch import announce_of, each_ahead, stretches_ahead
from esformat.read.reader import Reader

POINT_BLOCKS = 8  # data blocks that are read together


class RunEvents:
    """The events of a run that answer a query; `stretches` gives the run's rows, in row order."""

    __slots__ = ("_keys", "_maker", "_query", "_reader", "_span", "_stretches")

    def __init__(
        self,
        reader: Reader,
        query: Query,
        stretches: Callable[[], Iterable[Stretch]],
        span: tuple[int, int],
        keys: tuple[str | bytes, str | bytes],
    ) -> None:
        """`span`: the rows [low, high) of the run; `keys`: its space and grouping."""
        self._reader, self._query, self._stretches, self._span = reader, query, stretches, span
        shown = None if query.columns is None else frozenset(query.columns)
        self._maker = EventMaker(reader, keys[0], keys[1], reverse=query.reverse, shown=shown)

    def __iter__(self) -> Iterator[Event]:
        query = self._query
        stretches = [*self._stretches()]
        if query.conditions or query.start is not None or query.end is not None:
            found = self._filtered(stretches)
            return found if query.limit is None else islice(found, query.limit)
        if len(stretches) == 1 and announce_of(self._reader) is None:
            events = self._within_one_block(stretches[0])
            if events is not None:
                return events
        return chain.from_iterable(self._every(stretches))

    # ------------------------------------------------------------ every event

    def _within_one_block(self, stretch: Stretch) -> Iterator[Event] | None:
        """The events of a stretch that lies in one block, as the short way to them; None for any other."""
        number, first, last, run_start = stretch
        limit = self._query.limit
        if limit is not None and last - first > limit:
            first, last = (last - limit, last) if self._query.reverse else (first, first + limit)
        leaf = self._reader.leaf(number)
        rows = leaf.block_rows
        at = bisect_right(rows, first) - 1
        origin = rows[at]
        if first == last or last > rows[at + 1]:
            return None
        block = self._reader.data_block(leaf, at)
        start = run_start - origin
        return self._maker.stretch(block, start if start > 0 else 0, first - origin, last - origin)

    def _every(self, stretches: Sequence[Stretch]) -> Iterator[Iterator[Event]]:
        """Every event, or the first `limit`: their rows are known before anything is read."""
        reader, reverse, left = self._reader, self._query.reverse, self._query.limit
        for leaf_number, first, last, run_start in stretches_ahead(reader, self._query, self._directed(stretches)):
            if left is not None:
                if not left:
                    return
                first, last = (max(first, last - left), last) if reverse else (first, min(last, first + left))
                left -= last - first
            leaf = reader.leaf(leaf_number)
            edges = leaf.block_rows
            blocks = range(bisect_right(edges, first) - 1, bisect_left(edges, last))
            for number, block in self._opened(leaf, blocks[::-1] if reverse else blocks):
                origin = edges[number]
                low, high = max(first - origin, 0), min(last - origin, block.row_count)
                yield self._maker.stretch(block, max(run_start - origin, 0), low, high)

    def _opened(self, leaf: Leaf, numbers: Iterable[int]) -> Iterator[tuple[int, DataBlock]]:
        """Data blocks of a leaf that lie near each other, a few at a time read together."""
        rest = iter(numbers)
        while few := list(islice(rest, POINT_BLOCKS)):
            yield from zip(few, self._reader.few_data_blocks(leaf, few), strict=True)

    # ------------------------------------------------------------ some of them

    def _filtered(self, stretches: Sequence[Stretch]) -> Iterator[Event]:
        """The events that meet time and conditions."""
        narrowed = narrow(self._reader, self._query, *self._span)
        if narrowed.nothing:
            return iter(())
        directed = self._directed(stretches)
        found = chain.from_iterable(portions(self._reader, self._query, stretch, narrowed) for stretch in directed)
        return chain.from_iterable(
            self._matching(portion, narrowed) for portion in each_ahead(self._reader, self._query, found)
        )

    def _directed(self, stretches: Sequence[Stretch]) -> Sequence[Stretch]:
        return stretches[::-1] if self._query.reverse else stretches

    def _matching(self, portion: Portion, narrowed: Narrowed) -> Iterator[Event]:
        reader = self._reader
        leaf, number, first, last, _, run_start = portion
        origin = leaf.block_rows[number]
        block = reader.data_block(leaf, number)
        rows = find_rows(reader, self._query, portion, block, narrowed)
        start = max(run_start - origin, 0)
        if rows is None:
            return self._maker.stretch(block, start, first - origin, last - origin)
        return self._maker.picked(block, start, rows) if rows else iter(())
