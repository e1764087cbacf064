"""A data block: consecutive rows, at most 2,048 as this package writes it, stored column by column.

    base timestamp | table of chunks | chunks: timestamps, one per column of the schema, keys

Readers of few columns read the beginning of a block and verify only the chunks that they use, so short chunks come
first, and keys last.

The keys chunk names the runs (space, grouping, rows) in the block, so that a block, with the metadata and its
dictionary, is enough to recover its events. Scans take the runs from the directory and never read the keys chunk.
Timestamps are stored as differences within a run; the first row of each run is relative to the block's base, its
smallest timestamp.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core.blocks import FIRST_COLUMN_CHUNK, KEYS_CHUNK, TIMESTAMPS_CHUNK, Chunks
from esformat.core.keys import Keys, read_keys
from esformat.errors import CorruptSegmentError
from esformat.format.arrays import bytes_of
from esformat.format.bytes_node import BytesNode
from esformat.format.checksum import checksum64
from esformat.format.codec import Decompressor
from esformat.format.encoding import decode_node, encode_texts
from esformat.format.frame import encode_block
from esformat.format.layout import BlockKind
from esformat.format.node import DecodeContext, EncodeContext, NodeHead, Shape, read_head
from esformat.format.packing import decode_ints, encode_int_slices, encode_ints, plane_bytes, read_pack
from esformat.format.template_node import TemplateNode

TIMES_BITS_COST = 1.25
"""Store timestamps as bits if that takes at most this many times the size of planes: with bits, a reader decodes the
timestamps of one run without the rest of the block.
"""
_HEAD = struct.Struct(
    "<"
    "q"  # base: smallest timestamp of the block, µs
    "I"  # runs in the keys chunk
    "I"  # chunks: keys, timestamps, columns
)
_ENTRY = struct.Struct(
    "<"
    "I"  # offset, from the first byte after the block's checksum
    "I"  # length
    "Q"  # xxh3-64 of the chunk
)
_TEMPLATES = bytes([Shape.TEMPLATES])

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Runs:
    """Consecutive runs, each the rows of one (space, grouping): keys as binary arrays, and the rows of each run."""

    spaces: pa.Array
    groupings: pa.Array
    rows: I64

    def slice(self, first: int, last: int, rows: I64) -> Runs:
        """Runs [first, last), with their row counts replaced by `rows`, because the outer runs may be cut."""
        return Runs(self.spaces.slice(first, last - first), self.groupings.slice(first, last - first), rows)


def encode_runs_of_keys(runs: Runs, context: EncodeContext) -> bytes:
    """Encode the runs: rows, spaces, groupings."""
    keys = encode_texts(runs.spaces, context) + encode_texts(runs.groupings, context)
    return encode_ints(runs.rows, context.plain, raw=1) + keys  # the lowest bytes are noise


def keys_array(keys: Keys) -> pa.Array:
    """Keys as an Arrow binary array."""
    offsets = pa.py_buffer(np.asarray(keys.edges).astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(keys), [None, offsets, pa.py_buffer(keys.data)])


class RunKeys(NamedTuple):
    """Decoded runs: the rows of each run, and its space and grouping."""

    rows: I64
    spaces: Keys
    groupings: Keys


def decode_runs_of_keys(body: memoryview, at: int, count: int, context: DecodeContext) -> tuple[RunKeys, int]:
    """Decode what `encode_runs_of_keys` wrote; also return the byte after it. Raises CorruptSegmentError."""
    pack = read_pack(body, at, count)
    rows = decode_ints(body, pack, context.plain)
    if count and (np.minimum.reduce(rows) < 1 or np.maximum.reduce(rows) > 1 << 48):
        raise CorruptSegmentError("a run of rows breaks the format")
    spaces, at = decode_keys(body, pack.end, count, context)
    groupings, at = decode_keys(body, at, count, context)
    return RunKeys(rows, spaces, groupings), at


def decode_keys(body: memoryview, at: int, count: int, context: DecodeContext) -> tuple[Keys, int]:
    """Decode a node of keys; also return the byte after it. Raises CorruptSegmentError."""
    return read_keys(body, at, count, context.plain, context.framed)


def encode_timestamps(
    timestamps: I64, run_starts: I64, bounds: list[int], context: EncodeContext
) -> tuple[list[bytes], I64, I64]:
    """Encode the timestamps chunks of several blocks; also return each block's smallest and largest timestamp.

    `run_starts` are the rows at which a run begins, `bounds` the edges of the blocks; both count from the first
    timestamp.
    """
    starts = np.asarray(bounds[:-1])
    low = np.minimum.reduceat(timestamps, starts)
    high = np.maximum.reduceat(timestamps, starts)
    numbers = np.empty(len(timestamps), dtype=np.int64)
    np.subtract(timestamps[1:], timestamps[:-1], out=numbers[1:])
    firsts = np.union1d(run_starts, starts)
    numbers[firsts] = timestamps[firsts] - low[np.searchsorted(starts, firsts, side="right") - 1]
    return encode_int_slices(numbers, bounds, context.plain, raw=context.raw, bits_cost=TIMES_BITS_COST), low, high


def encode_data_block(base: int, run_count: int, row_count: int, chunks: list[bytes], dictionary: int) -> bytes:
    """Encode one framed data block; `chunks` are its keys, timestamps and columns."""
    order = [*sorted(range(TIMESTAMPS_CHUNK, len(chunks)), key=lambda number: len(chunks[number])), KEYS_CHUNK]
    stored = [chunks[number] for number in order]
    offsets = dict(zip(order, accumulate(map(len, stored), initial=0), strict=False))
    table = [_ENTRY.pack(offsets[n], len(chunk), checksum64(chunk)) for n, chunk in enumerate(chunks)]
    head = _HEAD.pack(base, run_count, len(chunks)) + b"".join(table)
    return encode_block(BlockKind.DATA, head, count=row_count, dictionary=dictionary, chunks=stored)


class DataBlock(Chunks):
    """An open data block: it knows where each verified chunk is. Columns are decoded on demand."""

    __slots__ = ()

    def runs(self, context: DecodeContext) -> RunKeys:
        """The runs of the block, decoded from its own keys chunk."""
        if not 0 < self.run_count <= self.row_count:
            raise CorruptSegmentError("the number of runs breaks the format", offset=self.offset)
        runs, end = decode_runs_of_keys(self.body, self.start_of(KEYS_CHUNK), self.run_count, context)
        if end != self.end_of(KEYS_CHUNK) or int(runs.rows.sum()) != self.row_count:
            raise CorruptSegmentError("the runs of a data block do not fit its rows", offset=self.offset)
        return runs

    def head(self, position: int, decompressor: Decompressor) -> NodeHead:
        """The head of a column's node, cached."""
        head = self.cached_heads.get(position)
        if head is None:
            at = self.start_of(FIRST_COLUMN_CHUNK + position)
            head = self.cached_heads[position] = read_head(self.body, at, self.row_count, decompressor)
        return head

    def short_codes(self, position: int, decompressor: Decompressor) -> tuple[int, bytes] | None:
        """The codes of a column as a base and one byte per row, cached; None if they are not stored as single bytes."""
        try:
            return self.cached_codes[position]
        except KeyError:
            head = self.head(position, decompressor)
            pack = read_pack(self.body, head.at, self.row_count) if head.shape == Shape.CODES else None
            short = pack is not None and pack.width == 1
            made = (pack.base, plane_bytes(self.body, pack, decompressor)) if pack is not None and short else None
            self.cached_codes[position] = made
            return made

    def pieces(self, chunks: list[int]) -> list[bytes]:
        """Copies of some chunks, created once: every call must ask for the same chunks."""
        if self.cached_pieces is None:
            self.cached_pieces = [bytes(self.body[self.start_of(chunk) : self.end_of(chunk)]) for chunk in chunks]
        return self.cached_pieces

    def has_templates(self, position: int) -> bool:
        """Whether a column is stored as templates."""
        at = self.start_of(FIRST_COLUMN_CHUNK + position)
        return bool(self.body[at : at + 1] == _TEMPLATES)

    def template_node(self, position: int, context: DecodeContext, read: tuple[Any, int]) -> TemplateNode:
        """The node of a column stored as templates, cached. `read`: what `read_template_codes` returned for it."""
        node = self.cached_nodes.get(position)
        if node is None:
            at, key = self.start_of(FIRST_COLUMN_CHUNK + position), (self.offset, position)
            node = self.cached_nodes[position] = TemplateNode(self.body, at, self.row_count, context, key, read)
        assert isinstance(node, TemplateNode)
        return node

    def bytes_node(self, position: int, context: DecodeContext) -> BytesNode | TemplateNode:
        """The node of a column of strings or binary, cached."""
        node = self.cached_nodes.get(position)
        if node is None:
            at = self.start_of(FIRST_COLUMN_CHUNK + position)
            key = (self.offset, position)
            made = TemplateNode if self.has_templates(position) else BytesNode
            node = self.cached_nodes[position] = made(self.body, at, self.row_count, context, key)
        return node

    def column(self, position: int, kind: pa.DataType, context: DecodeContext) -> pa.Array:
        """All values of one column of the schema."""
        at = self.start_of(FIRST_COLUMN_CHUNK + position)
        array, end = decode_node(self.body, at, self.row_count, kind, context)
        if end != self.end_of(FIRST_COLUMN_CHUNK + position):
            raise CorruptSegmentError("a column chunk is longer than its values", offset=self.offset)
        return array


def key_bytes(array: pa.Array) -> list[bytes]:
    """Keys as a list of bytes."""
    offsets, data = bytes_of(array)
    edges = offsets.tolist()
    stored = bytes(data)
    return [stored[a:b] for a, b in pairwise(edges)]
