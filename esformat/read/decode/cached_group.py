"""Data blocks of a repeated index scan: what is decoded of them is cached.

Blocks, their timestamps and codes, and decompressed frames go to the caches that queries of one space use, but only
while there is room, so a long scan evicts nothing. A query that is asked once does not pay for caching.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core.caches import Cache
from esformat.core.leaves import BlockSlice
from esformat.format.data_block import I64, DataBlock
from esformat.read.blocks.reader import Reader
from esformat.read.decode.block_group import BlockGroup

SCATTERED_ROWS = 8  # if at most one row in this many is wanted, values are read one by one, and their frames cached


class CachedGroup(BlockGroup):
    """A group of blocks that reads and fills the caches of decoded data."""

    def __init__(self, reader: Reader, parts: Sequence[BlockSlice], blocks: list[DataBlock] | None = None) -> None:
        """Raises CorruptSegmentError, ClosedError."""
        if blocks is None:
            blocks = reader.cached_data_blocks(parts)
        super().__init__(reader, parts, blocks)

    def timestamps(self) -> I64:
        """Timestamps of all rows, µs."""
        known = [block.times for block in self.blocks if block.times is not None]
        if self._times is None and len(known) == len(self.blocks):
            self._times = np.concatenate(known)
        times = super().timestamps()
        if len(known) < len(self.blocks):
            for block, start in zip(self.blocks, self._starts.tolist(), strict=True):
                block.times = times[start : start + block.row_count].copy()
        return times

    def times_at(self, places: I64 | None) -> I64:
        known = [block.times for block in self.blocks if block.times is not None]
        if places is None or self._times is not None or len(known) < len(self.blocks):
            times = self.timestamps()
            return times if places is None else times[places]
        block_of, rows = self._rows_of_blocks(places)
        bounds = [0, *np.cumsum(np.bincount(block_of, minlength=len(known))).tolist()]
        return np.concatenate([times[rows[a:b]] for times, (a, b) in zip(known, pairwise(bounds), strict=True)])

    def _ints(self, place: int) -> npt.NDArray[np.integer[Any]]:
        if place not in self._numbers:
            plain = self._reader.thread_context().plain
            short = [codes for block in self.blocks if (codes := block.short_codes(place, plain)) is not None]
            if len(short) == len(self.blocks) and not any(base for base, _ in short):
                self._numbers[place] = np.frombuffer(b"".join([stored for _, stored in short]), np.uint8)
        return super()._ints(place)

    def _bytes(self, place: int, kind: pa.DataType, places: I64 | None) -> pa.Array:
        if places is None or not self._is_scattered(places) or pa.types.is_fixed_size_binary(kind):
            return super()._bytes(place, kind, places)
        return pa.array(self._values(place, places), _binary_like(kind)).cast(kind)

    # ------------------------------------------------------------ values one by one

    def _rows_of_blocks(self, places: I64) -> tuple[I64, I64]:
        """For each place, its block and its row within the block."""
        block_of = np.searchsorted(self._starts, places, side="right") - 1
        return block_of, places - self._starts[block_of]

    def _is_scattered(self, places: I64) -> bool:
        return SCATTERED_ROWS * len(places) <= self.row_count

    def _values(self, place: int, places: I64) -> list[bytes | None]:
        """Values of a column of strings or binary at ascending places; frames are cached if there is room."""
        frames = _WhereRoom(self._reader.frames)
        block_of, rows = self._rows_of_blocks(places)
        edges = np.searchsorted(block_of, np.arange(len(self.blocks) + 1)).tolist()
        values: list[bytes | None] = []
        for block, (first, last) in zip(self.blocks, pairwise(edges), strict=True):
            if first < last:
                context = self._reader.contexts(block.dictionary)[place]
                node = block.bytes_node(place, context)
                values += node.chosen_values(rows[first:last].tolist(), context, frames)
        return values


class _WhereRoom(Cache):
    """A view of a cache that adds values without evicting others."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def find(self, key: Hashable) -> Any:
        """The value of a key, or None."""
        return self._cache.find(key)

    def keep(self, key: Hashable, value: object, size_bytes: int) -> None:
        """Add a value if there is room."""
        if self._cache.has_room(size_bytes):
            self._cache.keep(key, value, size_bytes)


def _binary_like(kind: pa.DataType) -> pa.DataType:
    """The binary type with offsets of the same width."""
    return pa.large_binary() if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else pa.binary()
