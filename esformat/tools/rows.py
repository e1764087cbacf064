"""Decoded rows that move from one segment to another: slice, join and merge them in the order of segments."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from esformat.core.blocks import TIMESTAMPS_CHUNK
from esformat.format.codec import Decompressor
from esformat.format.data_block import I64, DataBlock, Runs, key_bytes
from esformat.format.node import DecodeContext
from esformat.format.order import sort_order
from esformat.format.packing import decode_ints, read_pack
from esformat.format.schema import Field
from esformat.write.block_encoder import Column, SortedRows

Key = tuple[bytes, bytes]
"""Space and grouping."""
Bound = tuple[bytes, bytes, int]
"""Space, grouping, timestamp: a row's position in the order of a segment, apart from ties."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows of one original. `keys`, `run_rows`: their runs; `numbers`: their rows in the original."""

    keys: list[Key]
    run_rows: I64
    timestamps: I64
    columns: list[pa.Array]
    numbers: I64

    def __len__(self) -> int:
        return len(self.timestamps)

    @property
    def first(self) -> Bound:
        """The bound of the first row."""
        return (*self.keys[0], int(self.timestamps[0]))

    @property
    def last(self) -> Bound:
        """The bound of the last row."""
        return (*self.keys[-1], int(self.timestamps[-1]))

    def take(self, places: I64) -> Rows:
        """The rows at ascending places, at least one."""
        run_of = np.repeat(np.arange(len(self.keys)), self.run_rows)[places]
        runs, counts = np.unique(run_of, return_counts=True)
        chosen = pa.array(places)
        return Rows(
            [self.keys[run] for run in runs.tolist()],
            counts,
            self.timestamps[places],
            [column.take(chosen) for column in self.columns],
            self.numbers[places],
        )

    def slice(self, first: int, last: int) -> Rows:
        """Rows [first, last), at least one."""
        edges = np.concatenate([[0], np.cumsum(self.run_rows)])
        a = int(np.searchsorted(edges, first, side="right")) - 1
        b = int(np.searchsorted(edges, last, side="left"))
        return Rows(
            self.keys[a:b],
            np.diff(np.clip(edges[a : b + 1], first, last)),
            self.timestamps[first:last],
            [column.slice(first, last - first) for column in self.columns],
            self.numbers[first:last],
        )

    def count_before(self, bound: Bound, *, ties: bool) -> int:
        """The number of rows before a bound; with `ties`, including those equal to it."""
        run = bisect_left(self.keys, bound[:2])
        start = int(self.run_rows[:run].sum())
        if run == len(self.keys) or self.keys[run] != bound[:2]:
            return start
        times = self.timestamps[start : start + int(self.run_rows[run])]
        return start + int(np.searchsorted(times, bound[2], side="right" if ties else "left"))


def decode_rows(
    block: DataBlock, runs: Runs, first_row: int, fields: Sequence[Field], contexts: Sequence[DecodeContext]
) -> Rows:
    """Decode all rows of a data block. Raises CorruptSegmentError."""
    keys = list(zip(key_bytes(runs.spaces), key_bytes(runs.groupings), strict=True))
    columns = [
        block.column(place, field.type, context)
        for place, (field, context) in enumerate(zip(fields, contexts, strict=True))
    ]
    numbers = np.arange(first_row, first_row + block.row_count)
    plain = contexts[0].plain if contexts else Decompressor()
    return Rows(keys, runs.rows, decode_timestamps(block, runs.rows, plain), columns, numbers)


def decode_timestamps(block: DataBlock, run_rows: I64, plain: Decompressor) -> I64:
    """Timestamps of all rows of a data block, µs; sums are modulo 2^64, as when they were written."""
    steps = decode_ints(block.body, read_pack(block.body, block.start_of(TIMESTAMPS_CHUNK), block.row_count), plain)
    starts = np.cumsum(run_rows) - run_rows
    sums = np.cumsum(steps)
    lead = sums[starts] - steps[starts] - np.array([block.base])
    sums -= np.repeat(lead, run_rows)
    return sums


def join(parts: Sequence[Rows]) -> Rows:
    """Join consecutive rows of one original."""
    if len(parts) == 1:
        return parts[0]
    keys: list[Key] = []
    counts: list[int] = []
    for part in parts:
        for key, count in zip(part.keys, part.run_rows.tolist(), strict=True):
            if keys and keys[-1] == key:
                counts[-1] += count
            else:
                keys.append(key)
                counts.append(count)
    return Rows(
        keys,
        np.array(counts, dtype=np.int64),
        np.concatenate([part.timestamps for part in parts]),
        [pa.concat_arrays(columns) for columns in zip(*(part.columns for part in parts), strict=True)],
        np.concatenate([part.numbers for part in parts]),
    )


def merge_rows(parts: Sequence[Rows]) -> tuple[Rows, I64]:
    """Merge rows of several originals in the order of segments, ties in the order of `parts`.

    Also returns, for each row, the part that it came from; rows keep the numbers of their original.
    """
    origins = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    if len(parts) == 1:
        return parts[0], origins
    distinct = sorted({key for part in parts for key in part.keys})
    rank_of = {key: rank for rank, key in enumerate(distinct)}
    ranks = np.concatenate([np.repeat([rank_of[key] for key in part.keys], part.run_rows) for part in parts])
    timestamps = np.concatenate([part.timestamps for part in parts])
    numbers = np.concatenate([part.numbers for part in parts])
    columns = [pa.concat_arrays(columns) for columns in zip(*(part.columns for part in parts), strict=True)]
    order = sort_order(ranks, timestamps)
    if order is not None:
        ranks, timestamps, numbers, origins = ranks[order], timestamps[order], numbers[order], origins[order]
        columns = [column.take(pa.array(order)) for column in columns]
    return Rows(distinct, np.bincount(ranks, minlength=len(distinct)), timestamps, columns, numbers), origins


def sorted_rows(rows: Rows, columns: Sequence[Column], before: Key | None) -> SortedRows:
    """Rows as the encoder takes them, with `columns` instead of their own. before: the key of the preceding row."""
    return SortedRows(
        timestamps=rows.timestamps,
        run_starts=np.cumsum(rows.run_rows) - rows.run_rows,
        spaces=pa.array([space for space, _ in rows.keys], pa.binary()),
        groupings=pa.array([grouping for _, grouping in rows.keys], pa.binary()),
        columns=columns,
        continues=rows.keys[0] == before,
    )
