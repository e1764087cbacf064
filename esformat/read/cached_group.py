"""Data blocks of an index scan that is asked again: what is decoded of them stays at hand.

Blocks, their times and codes, and the frames that were decompressed go where a question about one space keeps them, but
only as long as there is room: a long scan makes nobody else's forgotten. A question that is asked once pays for none of
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.format.bytes_node import BytesNode
from esformat.format.data_block import I64, DataBlock
from esformat.format.node import NodeHead, Shape
from esformat.read.block_group import BlockGroup, FramePlan, Later
from esformat.read.plan import Portion
from esformat.read.reader import Reader

SCATTERED_ROWS = 8  # one row of so many, or fewer: then values are taken one by one from frames that are kept


class KeptGroup(BlockGroup):
    """A group of blocks that uses, and leaves behind, what was decoded of them."""

    def __init__(self, reader: Reader, portions: Sequence[Portion], blocks: list[DataBlock] | None = None) -> None:
        """Raises CorruptSegmentError, ClosedError."""
        if blocks is None:
            blocks = reader.kept_data_blocks([(p.leaf, p.block) for p in portions])
        super().__init__(reader, portions, blocks)

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

    def _times_at(self, places: I64 | None) -> I64:
        known = [block.times for block in self.blocks if block.times is not None]
        if places is None or self._times is not None or len(known) < len(self.blocks):
            return super()._times_at(places)
        block_of, rows = self._rows_of_blocks(places)
        bounds = [0, *np.cumsum(np.bincount(block_of, minlength=len(known))).tolist()]
        return np.concatenate([times[rows[a:b]] for times, (a, b) in zip(known, pairwise(bounds), strict=True)])

    def _heads(self, place: int) -> list[NodeHead]:
        plain = self._reader.own().plain
        return [block.head(place, plain) for block in self.blocks]

    def _ints(self, place: int, heads: list[NodeHead]) -> npt.NDArray[np.integer[Any]]:
        if place not in self._numbers and all(head.shape == Shape.CODES for head in heads):
            plain = self._reader.own().plain
            short = [codes for block in self.blocks if (codes := block.short_codes(place, plain)) is not None]
            if len(short) == len(self.blocks) and not any(base for base, _ in short):
                self._numbers[place] = np.frombuffer(b"".join([stored for _, stored in short]), np.uint8)
        return super()._ints(place, heads)

    def _bytes(self, place: int, kind: pa.DataType, places: I64 | None) -> pa.Array:
        if places is None or not self._is_scattered(places) or pa.types.is_fixed_size_binary(kind):
            return super()._bytes(place, kind, places)
        return pa.array(self._values(place, places), _binary_like(kind)).cast(kind)

    def _binary_later(self, place: int, places: I64 | None, later: Later) -> Callable[[], pa.Array]:
        if places is None or not self._is_scattered(places):
            return super()._binary_later(place, places, later)
        array = self._bytes(place, pa.binary(), places)
        return lambda: array

    # ------------------------------------------------------------ values one by one

    def _rows_of_blocks(self, places: I64) -> tuple[I64, I64]:
        """For each place, its block and its row there."""
        block_of = np.searchsorted(self._starts, places, side="right") - 1
        return block_of, places - self._starts[block_of]

    def _is_scattered(self, places: I64) -> bool:
        return SCATTERED_ROWS * len(places) <= self.row_count

    def _values(self, place: int, places: I64) -> list[bytes | None]:
        """Values of a column of strings or binary at ascending places."""
        contexts = [self._reader.contexts(block.dictionary)[place] for block in self.blocks]
        nodes = [block.bytes_node(place, context) for block, context in zip(self.blocks, contexts, strict=True)]
        edges_of = [node.edges_of_values(context) for node, context in zip(nodes, contexts, strict=True)]
        block_of, rows = self._rows_of_blocks(places)
        rows_of_frame = np.array([node.rows for node in nodes])[block_of]
        frame_of = rows // rows_of_frame
        wanted = np.stack([frame_of * rows_of_frame, rows, rows + 1])
        bounds = [0, *np.cumsum(np.bincount(block_of, minlength=len(nodes))).tolist()]
        places_of = zip(edges_of, pairwise(bounds), strict=True)
        origins, begins, ends = np.concatenate([edges[wanted[:, a:b]] for edges, (a, b) in places_of], axis=1)
        begins, ends = begins - origins, ends - origins

        new = np.ones(len(places), np.bool_)  # rows that are the first wanted of their frame
        new[1:] = (frame_of[1:] != frame_of[:-1]) | (block_of[1:] != block_of[:-1])
        frames = self._frames(place, nodes, edges_of, block_of[new].tolist(), frame_of[new].tolist())
        cuts = zip((np.cumsum(new) - 1).tolist(), begins.tolist(), ends.tolist(), strict=True)
        values: list[bytes | None] = [bytes(frames[n][a:b]) for n, a, b in cuts]
        valid = self._validity(nodes)
        if valid is not None:
            values = [value if held else None for value, held in zip(values, valid[places].tolist(), strict=True)]
        return values

    def _frames(
        self, place: int, nodes: list[BytesNode], edges_of: list[I64], blocks: list[int], numbers: list[int]
    ) -> list[bytes | memoryview]:
        """Uncompressed frames, each named by its block and its number there: those at hand, and the others by one call.

        These are kept where there is room.
        """
        cache = self._reader.frames
        find = cache.find
        frames: list[Any] = [find((nodes[b].key, number)) for b, number in zip(blocks, numbers, strict=True)]
        missing = [n for n, frame in enumerate(frames) if frame is None]
        if not missing:
            return frames
        sizes_of = [
            np.diff(edges[np.append(np.arange(0, n.count, n.rows), n.count)])
            for n, edges in zip(nodes, edges_of, strict=True)
        ]
        first_frames = list(accumulate(map(len, sizes_of), initial=0))
        sizes = np.concatenate(sizes_of)
        touched = np.zeros(len(sizes), np.bool_)
        touched[[first_frames[blocks[n]] + numbers[n] for n in missing]] = True
        dictionaries = [block.dictionary for block in self.blocks]
        plan = FramePlan(place, nodes, dictionaries, sizes, touched, sizes[:0], None, None)
        out = memoryview(plan.decode(self._reader)).cast("B")
        ends = np.cumsum(sizes[touched]).tolist()
        for n, begin, end in zip(missing, [0, *ends[:-1]], ends, strict=True):
            frame = frames[n] = out[begin:end]
            if cache.has_room(end - begin):
                frames[n] = bytes(frame)
                cache.keep((nodes[blocks[n]].key, numbers[n]), frames[n], end - begin)
        return frames


def _binary_like(kind: pa.DataType) -> pa.DataType:
    """The type whose values are any bytes and whose offsets are as wide."""
    return pa.large_binary() if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else pa.binary()
