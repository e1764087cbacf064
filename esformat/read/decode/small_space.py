"""Read a small space with several groupings: each block is decoded once, then all events are sorted by time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter

import numpy as np
import pyarrow as pa

from esformat.core.cached_segment import RowSpan, oldest_first
from esformat.core.events import Event
from esformat.format.data_block import I64, DataBlock
from esformat.read.ask.question import Query
from esformat.read.blocks.plan import match_indexes, slices
from esformat.read.blocks.reader import Reader
from esformat.read.decode.block_events import EventMaker, RunPart, find_rows
from esformat.read.decode.run_batches import BatchMaker

Run = tuple[str | bytes, RowSpan]
"""The rows of one grouping within a leaf."""


class SmallSpace:
    """All rows of a space, read into memory together; `runs` are in the order of the file."""

    def __init__(self, reader: Reader, space: str | bytes, runs: Sequence[Run], span: tuple[int, int]) -> None:
        """span: the rows [low, high) of the space."""
        self._reader, self._space, self._runs, self._span = reader, space, runs, span

    def events(self, query: Query) -> list[Event]:
        """The events that match a query, in its direction, up to its limit."""
        maker = EventMaker(self._reader, self._space, columns=query.columns)
        parts = list(self._parts(query))
        events = list(chain.from_iterable(maker.several(block, within) for block, within in _by_block(parts)))
        events.sort(key=attrgetter("timestamp"))
        if query.reverse:
            events.reverse()
        return events[: query.limit]

    def batch(self, query: Query, columns: Sequence[str]) -> pa.RecordBatch:
        """The events that match a query, in its direction, up to its limit, as one batch."""
        maker = BatchMaker(self._reader, self._space, columns=columns)
        parts = list(self._parts(query))
        blocks = list(_by_block(parts))
        order = _order(parts, query)
        if not blocks:
            return pa.RecordBatch.from_pylist([], schema=self._reader.schema.select(columns))
        if len(blocks) == 1:
            return maker.several(*blocks[0], order)
        made = pa.concat_batches([maker.several(block, within) for block, within in blocks])
        return made.take(pa.array(order))

    def _parts(self, query: Query) -> Iterator[RunPart]:
        """The rows that can be in the answer, in the order of the file; per block and run at most the limit."""
        reader, plain, limit = self._reader, self._reader.thread_context().plain, query.limit
        index_matches = match_indexes(reader, query, *self._span)
        if index_matches.nothing:
            return
        blocks: dict[int, DataBlock] = {}
        forward, filtered = oldest_first(query), query.filtered
        for grouping, row_span in self._runs:
            for part in slices(reader, forward, row_span, index_matches):
                block = blocks.get(part.number)
                if block is None:
                    block = blocks[part.number] = reader.data_block(part.leaf, part.block)
                low, high, start = part.first - part.origin, part.last - part.origin, part.run_row
                with reader.named:
                    rows = find_rows(reader, query, part, block, index_matches) if filtered else None
                    if rows is not None:
                        rows = rows if limit is None else rows[-limit:] if query.reverse else rows[:limit]
                        if rows:
                            times = np.asarray(block.run_times(start, rows[0], rows[-1] + 1, plain))
                            yield RunPart(block, grouping, rows[0], rows, times[np.array(rows) - rows[0]])
                        continue
                    if limit is not None:
                        low, high = (max(low, high - limit), high) if query.reverse else (low, min(high, low + limit))
                    yield RunPart(block, grouping, low, None, block.run_times(start, low, high, plain))


def _by_block(parts: Sequence[RunPart]) -> Iterator[tuple[DataBlock, list[RunPart]]]:
    for _, within in groupby(parts, lambda part: id(part.block)):
        few = list(within)
        yield few[0].block, few


def _order(parts: Sequence[RunPart], query: Query) -> I64:
    """The positions of the answer's rows among those of all parts: by time, equal times in the order of the file."""
    if not parts:
        return np.zeros(0, np.int64)
    order = np.concatenate([part.times for part in parts]).argsort(kind="stable")
    return (order[::-1] if query.reverse else order)[: query.limit]
