"""The directory: which rows belong to which space and grouping, and where the data blocks with those rows lie.

It has two levels. A leaf covers a group of data blocks that follow each other in the file: its runs
(space, grouping, rows) and, for each block, rows, length, check and time span. The root names every leaf's first space,
its rows and its place; it is read when a segment is opened. A run that crosses from one leaf's blocks
into the next's appears in both.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core.leaves import MOST_BLOCKS, Leaf
from esformat.core.roots import Root
from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, make_compressor
from esformat.format.data_block import Runs, encode_runs_of_keys
from esformat.format.encoding import encode_texts
from esformat.format.frame import Block, encode_block
from esformat.format.layout import BlockHandle, BlockKind
from esformat.format.node import DecodeContext, EncodeContext
from esformat.format.packing import encode_ints

_LEAF = struct.Struct(
    "<I"  # data blocks that the leaf covers
)
LEAF_RUNS = 256  # a leaf ends at the block with which it holds so many runs …
LEAF_BLOCKS = MOST_BLOCKS  # … or so many blocks
GROWTH_LEAVES = 1024  # after so many leaves of one size the next ones may hold twice the runs
MAX_LEAF_RUNS = 4096

_RAW = make_compressor(Codec.NONE)

I64 = npt.NDArray[np.int64]


def leaf_is_full(leaves_before: int, run_count: int, block_count: int) -> bool:
    """Whether a leaf with so many runs and blocks ends here. Leaves grow with the file so that the root stays small."""
    limit = min(LEAF_RUNS << min(leaves_before // GROWTH_LEAVES, 8), MAX_LEAF_RUNS)
    return run_count >= limit or block_count >= LEAF_BLOCKS


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """One data block as its leaf describes it."""

    rows: int
    length: int
    check: int
    min_timestamp: int
    max_timestamp: int


def _lengths(spans: list[tuple[int, int]]) -> list[int]:
    """Largest less smallest timestamp, modulo 2^64: the ends of time are further apart than an int64 can tell."""
    ends = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return (ends[:, 1] - ends[:, 0]).tolist()  # type: ignore[no-any-return]


def _column(values: list[int]) -> bytes:
    """A table's column. Not compressed: a few bytes less in each leaf would cost a tenth of opening."""
    return encode_ints(np.array(values, dtype=np.int64), _RAW)


def encode_leaf(runs: Runs, spans: list[BlockSpan], context: EncodeContext) -> bytes:
    """One framed leaf."""
    body = b"".join(
        [
            _LEAF.pack(len(spans)),
            encode_runs_of_keys(runs, context),
            _column([span.rows for span in spans]),
            _column([span.length for span in spans]),
            _column([span.check for span in spans]),
            _column([span.min_timestamp for span in spans]),
            _column(_lengths([(span.min_timestamp, span.max_timestamp) for span in spans])),
        ]
    )
    return encode_block(BlockKind.DIRECTORY, body, count=len(runs.rows))


def open_leaf(
    block: Block, first_row: int, first_block: int, data_offset: int, context: DecodeContext, *, keys: bool = True
) -> Leaf:
    """A leaf whose checksum was verified. Raises CorruptSegmentError where it contradicts itself.

    keys: decode its keys, too.
    """
    try:
        leaf = Leaf(block.body, block.count, first_row, first_block, data_offset, context.plain)
    except CorruptSegmentError as error:
        error.offset = block.offset
        raise
    if keys:
        open_keys(leaf, block.offset, context)
    return leaf


def open_keys(leaf: Leaf, offset: int, context: DecodeContext) -> None:
    """Decode the keys of a leaf, whose block lies at `offset`. Raises CorruptSegmentError."""
    try:
        leaf.open_keys(context.plain, context.framed)
    except CorruptSegmentError as error:
        error.offset = offset
        raise


def block_handle(leaf: Leaf, block: int) -> BlockHandle:
    """Where the leaf's `block`-th data block lies."""
    offset = leaf.block_offsets[block]
    return BlockHandle(offset, leaf.block_offsets[block + 1] - offset, leaf.block_checks[block])


@dataclass(frozen=True, slots=True)
class LeafEntry:
    """One leaf as the root describes it."""

    first_space: bytes
    runs: int
    rows: int
    blocks: int
    data_offset: int
    handle: BlockHandle
    min_timestamp: int
    max_timestamp: int


def encode_root(entries: list[LeafEntry], context: EncodeContext) -> bytes:
    """The framed root of the directory."""
    body = b"".join(
        [
            encode_texts(pa.array([entry.first_space for entry in entries], pa.binary()), context),
            _column([entry.runs for entry in entries]),
            _column([entry.rows for entry in entries]),
            _column([entry.blocks for entry in entries]),
            _column([entry.data_offset for entry in entries]),
            _column([entry.handle.offset for entry in entries]),
            _column([entry.handle.length for entry in entries]),
            _column([entry.handle.check for entry in entries]),
            _column([entry.min_timestamp for entry in entries]),
            _column(_lengths([(entry.min_timestamp, entry.max_timestamp) for entry in entries])),
        ]
    )
    return encode_block(BlockKind.DIRECTORY_ROOT, body, count=len(entries))


def open_root(block: Block, context: DecodeContext, name: str | None = None) -> Root:
    """The root whose checksum was verified.

    `name`: the file's, for messages. Raises CorruptSegmentError where it contradicts itself.
    """
    return Root(block.body, block.count, block.offset, context.plain, context.framed, BlockHandle, name)
