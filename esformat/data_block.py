"""A data block: up to a thousand or so consecutive rows, column by column.

    base timestamp | chunk lengths | keys | timestamps | one chunk per column of the schema

The keys chunk names the runs (space, grouping, rows) in the block, so that a block alone, with the metadata and its
dictionary, is enough to recover its events. Scans take the runs from the directory and never touch it.
Timestamps are differences within a run; the first row of each run counts from the block's base, its smallest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.arrays import bytes_array, bytes_of
from esformat.block import Block, encode_block
from esformat.bytes_node import BytesNode, slices
from esformat.codec import Decompressor
from esformat.encoding import decode_node, encode_node
from esformat.errors import CorruptSegmentError
from esformat.layout import MAX_BLOCK_ROWS, BlockKind
from esformat.node import DecodeContext, EncodeContext
from esformat.packing import Pack, decode_ints, encode_int_runs, encode_ints, plane_bytes, read_pack

_HEAD = struct.Struct(
    "<"
    "q"  # base: smallest timestamp of the block, µs
    "I"  # runs in the keys chunk
    "I"  # chunks: keys, timestamps, columns
)
KEYS_CHUNK, TIMESTAMPS_CHUNK, FIRST_COLUMN_CHUNK = 0, 1, 2
FEW_ROWS = 24  # up to here Python integers are quicker than NumPy arrays

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Runs:
    """Consecutive runs of rows with one (space, grouping) each: keys as binary arrays, rows per run."""

    spaces: pa.Array
    groupings: pa.Array
    rows: I64

    def slice(self, first: int, last: int, rows: I64) -> Runs:
        """Runs [first, last), with other row counts where they are cut."""
        return Runs(self.spaces.slice(first, last - first), self.groupings.slice(first, last - first), rows)


def encode_runs_of_keys(runs: Runs, context: EncodeContext) -> bytes:
    """The keys of runs: rows, spaces, groupings."""
    return (
        encode_ints(runs.rows, context.plain) + encode_node(runs.spaces, context) + encode_node(runs.groupings, context)
    )


class Keys:
    """Decoded keys: kept as their bytes side by side, given as a list for look-ups or as an array for scans."""

    __slots__ = ("_data", "_lengths", "_list", "all_empty")

    def __init__(self, lengths: npt.NDArray[Any], data: bytes) -> None:
        self.all_empty = not data
        self._lengths, self._data = lengths, data
        self._list: list[bytes] | None = None

    def as_list(self) -> list[bytes]:
        """The keys as Python bytes."""
        if self._list is None:
            if self.all_empty:
                self._list = [b""] * len(self._lengths)
            else:
                self._list = slices(self._data, list(accumulate(self._lengths.tolist(), initial=0)))
        return self._list

    def as_array(self) -> pa.Array:
        """The keys as an Arrow binary array."""
        return bytes_array(self._lengths, pa.py_buffer(self._data), pa.binary())

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.as_list())


class RunKeys(NamedTuple):
    """Decoded runs: rows of each, and their spaces and groupings."""

    rows: I64
    spaces: Keys
    groupings: Keys


def decode_runs_of_keys(body: memoryview, at: int, count: int, context: DecodeContext) -> tuple[RunKeys, int]:
    """Read what `encode_runs_of_keys` wrote; also the byte after it. Raises CorruptSegmentError."""
    pack = read_pack(body, at, count)
    rows = decode_ints(body, pack, context.plain)
    if count and (int(rows.min()) < 1 or int(rows.max()) > 1 << 48):
        raise CorruptSegmentError("a run of rows breaks the format")
    spaces, at = decode_keys(body, pack.end, count, context)
    groupings, at = decode_keys(body, at, count, context)
    return RunKeys(rows, spaces, groupings), at


def decode_keys(body: memoryview, at: int, count: int, context: DecodeContext) -> tuple[Keys, int]:
    """A node of keys; also the byte after it. Raises CorruptSegmentError."""
    node = BytesNode(body, at, count, context)
    if node.head.valid is not None:
        raise CorruptSegmentError("a key is null")
    if not node.lengths.width and not node.lengths.base:  # no grouping anywhere: the usual case
        return Keys(np.zeros(count, dtype=np.int64), b""), node.end
    return Keys(*node.all_values(context)), node.end


def encode_timestamps(
    timestamps: I64, run_starts: I64, bounds: list[int], context: EncodeContext
) -> tuple[list[bytes], I64, I64]:
    """Chunks of the timestamps of several blocks, and each block's smallest and largest timestamp.

    `run_starts` are the rows at which a run begins, `bounds` the blocks' edges; both count from the first timestamp.
    """
    starts = np.asarray(bounds[:-1])
    low = np.minimum.reduceat(timestamps, starts)
    high = np.maximum.reduceat(timestamps, starts)
    numbers = np.empty(len(timestamps), dtype=np.int64)
    np.subtract(timestamps[1:], timestamps[:-1], out=numbers[1:])
    firsts = np.union1d(run_starts, starts)
    numbers[firsts] = timestamps[firsts] - low[np.searchsorted(starts, firsts, side="right") - 1]
    return encode_int_runs(numbers, bounds, context.plain, raw=context.raw), low, high


def encode_data_block(base: int, run_count: int, row_count: int, chunks: list[bytes], dictionary: int) -> bytes:
    """One framed data block; `chunks` are its keys, timestamps and columns."""
    head = _HEAD.pack(base, run_count, len(chunks)) + struct.pack(f"<{len(chunks)}I", *map(len, chunks))
    return encode_block(BlockKind.DATA, b"".join([head, *chunks]), count=row_count, dictionary=dictionary)


class DataBlock:
    """A data block whose checksum was verified, opened: where each chunk lies. Columns are decoded on demand."""

    __slots__ = (
        "_nodes",
        "_planes",
        "_times",
        "base",
        "body",
        "chunks",
        "dictionary",
        "offset",
        "row_count",
        "run_count",
        "size_bytes",
    )

    def __init__(self, block: Block, column_count: int) -> None:
        """Raises CorruptSegmentError where the head breaks the format."""
        body = block.body
        self.body, self.row_count, self.dictionary, self.offset = body, block.count, block.dictionary, block.offset
        self._nodes: dict[int, BytesNode] = {}
        self._planes: dict[int, tuple[Pack, bytes]] = {}
        self._times: dict[int, I64] = {}
        self.size_bytes = len(body) + 40 * block.count + 1000  # 40: what is kept of each row once it was asked for
        try:
            self.base, self.run_count, count = _HEAD.unpack_from(body)
            if count != column_count + FIRST_COLUMN_CHUNK:
                raise CorruptSegmentError(f"a data block has {count} chunks, expected {column_count + 2}")
            lengths = struct.unpack_from(f"<{count}I", body, _HEAD.size)
        except struct.error:
            raise CorruptSegmentError("the head of a data block is cut short", offset=self.offset) from None
        self.chunks = list(accumulate(lengths, initial=_HEAD.size + 4 * count))
        if self.chunks[-1] != len(body) or not 0 < self.row_count <= MAX_BLOCK_ROWS:
            raise CorruptSegmentError("the head of a data block does not fit its body", offset=self.offset)

    def runs(self, context: DecodeContext) -> RunKeys:
        """The runs of the block, from its own keys chunk."""
        if not 0 < self.run_count <= self.row_count:
            raise CorruptSegmentError("the number of runs breaks the format", offset=self.offset)
        runs, end = decode_runs_of_keys(self.body, self.chunks[KEYS_CHUNK], self.run_count, context)
        if end != self.chunks[TIMESTAMPS_CHUNK] or int(runs.rows.sum()) != self.row_count:
            raise CorruptSegmentError("the runs of a data block do not fit its rows", offset=self.offset)
        return runs

    def planes_at(self, at: int, decompressor: Decompressor) -> tuple[Pack, bytes]:
        """Packed numbers, one for each row, at byte `at`: their header and byte planes, kept for the next question."""
        known = self._planes.get(at)
        if known is None:
            pack = read_pack(self.body, at, self.row_count)
            known = self._planes[at] = (pack, plane_bytes(self.body, pack, decompressor))
        return known

    def bytes_node(self, position: int, context: DecodeContext) -> BytesNode:
        """The node of a column of strings or binary, kept for the next question."""
        node = self._nodes.get(position)
        if node is None:
            at = self.chunks[FIRST_COLUMN_CHUNK + position]
            key = (self.offset, position)
            node = self._nodes[position] = BytesNode(self.body, at, self.row_count, context, key)
        return node

    def run_timestamps(self, start: int, low: int, high: int, decompressor: Decompressor) -> list[int]:
        """Timestamps of rows [low, high) of the one run that begins at row `start` of this block, µs."""
        pack, stored = self.planes_at(self.chunks[TIMESTAMPS_CHUNK], decompressor)
        count, base = pack.numbers, pack.base
        if high - start > FEW_ROWS or pack.width == 8 or base < 0:  # the last two may wrap round at 2^64, as NumPy does
            return self.run_times(start, high, decompressor)[low - start :].tolist()  # type: ignore[no-any-return]
        from_bytes = int.from_bytes
        steps = [from_bytes(stored[row::count], "little") for row in range(start, high)]
        if base:
            steps = [base + step for step in steps]
        if steps:
            steps[0] += self.base
        return list(accumulate(steps))[low - start :]

    def run_times(self, start: int, high: int, decompressor: Decompressor) -> I64:
        """Timestamps of rows [start, high) of the one run that begins at row `start`; kept if it is a large one."""
        known = self._times.get(start)
        if known is not None and len(known) >= high - start:
            return known[: high - start]
        pack, stored = self.planes_at(self.chunks[TIMESTAMPS_CHUNK], decompressor)
        wide = np.zeros((high - start, 8), dtype=np.uint8)
        wide[:, : pack.width] = np.frombuffer(stored, np.uint8).reshape(pack.width, pack.numbers)[:, start:high].T
        numbers = wide.view("<i8")[:, 0]
        if pack.base:
            numbers += pack.base
        numbers[:1] += self.base  # as an array: a scalar would warn where it wraps
        times: I64 = np.cumsum(numbers)
        if 4 * (high - start) >= self.row_count:
            self._times[start] = times
        return times

    def column(self, position: int, kind: pa.DataType, context: DecodeContext) -> pa.Array:
        """All values of one column of the schema."""
        at = self.chunks[FIRST_COLUMN_CHUNK + position]
        array, end = decode_node(self.body, at, self.row_count, kind, context)
        if end != self.chunks[FIRST_COLUMN_CHUNK + position + 1]:
            raise CorruptSegmentError("a column chunk is longer than its values", offset=self.offset)
        return array


def key_bytes(array: pa.Array) -> list[bytes]:
    """Keys as a list of bytes."""
    offsets, data = bytes_of(array)
    edges = offsets.tolist()
    stored = bytes(data)
    return [stored[a:b] for a, b in pairwise(edges)]
