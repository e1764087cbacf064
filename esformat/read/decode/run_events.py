"""The rows of one run, block by block: what most questions about a space come to. What is made of them others say."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Generic, Protocol, TypeVar

from esformat.core.leaves import BlockSlice
from esformat.format.data_block import DataBlock
from esformat.read.ask.question import Query
from esformat.read.blocks.plan import Narrowed, Stretch, narrow, slices
from esformat.read.blocks.prefetch import each_ahead, stretches_ahead
from esformat.read.blocks.reader import Reader
from esformat.read.decode.block_events import find_rows

POINT_BLOCKS = 8  # data blocks that are read together

Made = TypeVar("Made", covariant=True)


class Maker(Protocol[Made]):
    """Makes something of rows of one run, in one direction."""

    def stretch(self, block: DataBlock, run_start: int, low: int, high: int) -> Made:
        """Of rows [low, high) of a block; their run begins at row `run_start` of it."""
        ...

    def picked(self, block: DataBlock, run_start: int, places: list[int]) -> Made:
        """Of some rows of a block."""
        ...


class RunRows(Generic[Made]):
    """The rows of a run that answer a query; `stretches` gives the run's rows, in row order."""

    __slots__ = ("_maker", "_query", "_reader", "_span", "_stretches")

    def __init__(
        self,
        reader: Reader,
        query: Query,
        stretches: Callable[[], Iterable[Stretch]],
        span: tuple[int, int],
        maker: Maker[Made],
    ) -> None:
        """`span`: the rows [low, high) of the run."""
        self._reader, self._query, self._stretches, self._span = reader, query, stretches, span
        self._maker = maker

    def parts(self) -> Iterable[Made]:
        """What the maker makes of the rows in each block, never of none; where rows are filtered, beyond the limit."""
        query = self._query
        stretches = [*self._stretches()]
        if query.filtered:
            return self._filtered(stretches)
        if len(stretches) == 1 and self._reader.announce is None:
            made = self._within_one_block(stretches[0])
            if made is not None:
                return (made,)
        return self._every(stretches)

    # ------------------------------------------------------------ every event

    def _within_one_block(self, stretch: Stretch) -> Made | None:
        """The events of a stretch that lies in one block, as the short way to them; None for any other."""
        number, first, last, run_start = stretch
        limit = self._query.limit
        if limit is not None and last - first > limit:
            first, last = (last - limit, last) if self._query.reverse else (first, first + limit)
        leaf = self._reader.leaf(number, keys=False)
        rows = leaf.block_rows
        at = bisect_right(rows, first) - 1
        origin = rows[at]
        if first == last or last > rows[at + 1]:
            return None
        block = self._reader.data_block(leaf, at)
        start = run_start - origin
        return self._maker.stretch(block, start if start > 0 else 0, first - origin, last - origin)

    def _every(self, stretches: Sequence[Stretch]) -> Iterator[Made]:
        """Every event, or the first `limit`: their rows are known before anything is read."""
        reader, reverse, left = self._reader, self._query.reverse, self._query.limit
        for leaf_number, first, last, run_start in stretches_ahead(reader, self._query, self._directed(stretches)):
            if left is not None:
                if not left:
                    return
                first, last = (max(first, last - left), last) if reverse else (first, min(last, first + left))
                left -= last - first
            found = reader.leaf(leaf_number, keys=False).slices(first, last, run_start)
            for part, block in self._opened(found[::-1] if reverse else found):
                yield self._maker.stretch(block, part.run_row, part.first - part.origin, part.last - part.origin)

    def _opened(self, parts: Sequence[BlockSlice]) -> Iterator[tuple[BlockSlice, DataBlock]]:
        """Slices and their blocks, which lie near each other, a few at a time read together."""
        rest = iter(parts)
        while few := list(islice(rest, POINT_BLOCKS)):
            yield from zip(few, self._reader.few_data_blocks(few), strict=True)

    # ------------------------------------------------------------ some of them

    def _filtered(self, stretches: Sequence[Stretch]) -> Iterator[Made]:
        """The rows that meet time and conditions."""
        narrowed = narrow(self._reader, self._query, *self._span)
        if narrowed.nothing:
            return
        directed = self._directed(stretches)
        found = chain.from_iterable(slices(self._reader, self._query, stretch, narrowed) for stretch in directed)
        for part in each_ahead(self._reader, self._query, found):
            made = self._matching(part, narrowed)
            if made is not None:
                yield made

    def _directed(self, stretches: Sequence[Stretch]) -> Sequence[Stretch]:
        return stretches[::-1] if self._query.reverse else stretches

    def _matching(self, part: BlockSlice, narrowed: Narrowed) -> Made | None:
        reader = self._reader
        block = reader.data_block(part.leaf, part.block)
        with reader.named:
            rows = find_rows(reader, self._query, part, block, narrowed)
        if rows is None:
            return self._maker.stretch(block, part.run_row, part.first - part.origin, part.last - part.origin)
        return self._maker.picked(block, part.run_row, rows) if rows else None
