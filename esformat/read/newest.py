"""Find the latest or earliest timestamps of a segment by reading the few blocks that can contain them."""

from __future__ import annotations

import heapq

import numpy as np
import pyarrow as pa

from esformat.core.cached_segment import RowSpan
from esformat.format.data_block import I64
from esformat.read.ask.question import Query
from esformat.read.blocks.reader import Reader
from esformat.read.scan import Scan


def extreme_times(reader: Reader, count: int, *, newest: bool) -> I64:
    """The `count` latest timestamps of a segment, or the earliest, µs, in any order; all if it has fewer events.

    Leaves and blocks are read in the order of their latest (or earliest) timestamps, until the others cannot have any.
    """
    sign = -1 if newest else 1  # the loop finds the smallest
    root = reader.root
    ends = root.max_timestamps if newest else root.min_timestamps
    queue = [(sign * end, number, -1) for number, end in enumerate(ends)]
    heapq.heapify(queue)
    best: I64 = np.empty(0, np.int64)
    while queue and count:
        bound, number, block = heapq.heappop(queue)
        if len(best) == count and bound >= best[-1]:
            break
        leaf = reader.leaf(number)
        if block < 0:
            of_blocks = leaf.block_max if newest else leaf.block_min
            for at, end in enumerate(of_blocks):
                heapq.heappush(queue, (sign * end, number, at))
            continue
        times = _times(reader, RowSpan(number, leaf.block_rows[block], leaf.block_rows[block + 1], -1))
        best = np.sort(np.concatenate([best, sign * times]))[:count]
    return sign * best


def _times(reader: Reader, row_span: RowSpan) -> I64:
    """The timestamps of the rows of one block."""
    query = Query(columns=("timestamp",))
    scan = Scan(reader, query, lambda: (row_span,), span=(row_span.first, row_span.last), threads=1)
    return np.concatenate([np.asarray(batch.column(0).cast(pa.int64())) for batch in scan.batches()])
