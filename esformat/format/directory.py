"""The directory: which rows belong to which space and grouping, and where their data blocks are stored.

A leaf covers a group of consecutive data blocks: its runs (space, grouping, rows) and, for each block, its rows,
length, check and time span. The root lists each leaf's first space, its rows and where it is stored; it is read when a
segment is opened. In a file with many leaves, the root lists pages instead, each of which lists 256 leaves. A run that
crosses from one leaf's blocks into the next appears in both.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core.leaves import MOST_BLOCKS, Leaf
from esformat.core.roots import PAGE_LEAVES, Entries, Root
from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, make_compressor
from esformat.format.data_block import Runs, encode_runs_of_keys
from esformat.format.encoding import encode_texts
from esformat.format.frame import Block, encode_block
from esformat.format.layout import BlockHandle, BlockKind
from esformat.format.node import DecodeContext, EncodeContext
from esformat.format.packing import encode_ints

_ROOT = struct.Struct(
    "<I"  # leaves of the file
)
_LEAF = struct.Struct(
    "<I"  # data blocks that the leaf covers
)
LEAF_RUNS = 256  # a leaf ends at the block that brings it to this many runs …
LEAF_BLOCKS = MOST_BLOCKS  # … or this many blocks
MOST_ROOT_LEAVES = 512  # with more leaves, the root lists pages

_RAW = make_compressor(Codec.NONE)

I64 = npt.NDArray[np.int64]
ReadPages = Callable[[Sequence[tuple[BlockHandle, int, int]]], list[Entries]]
"""Reads pages. Takes, for each page, its handle and the number of rows and blocks before it."""


def leaf_is_full(run_count: int, block_count: int) -> bool:
    """Whether a leaf with this many runs and blocks is full."""
    return run_count >= LEAF_RUNS or block_count >= LEAF_BLOCKS


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """The description of one data block in its leaf."""

    rows: int
    length: int
    check: int
    min_timestamp: int
    max_timestamp: int


def _lengths(spans: list[tuple[int, int]]) -> list[int]:
    """Largest minus smallest timestamp of each span, modulo 2^64: the difference may not fit into an int64."""
    ends = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return (ends[:, 1] - ends[:, 0]).tolist()  # type: ignore[no-any-return]


def _column(values: list[int]) -> bytes:
    """Encode a column of a table, uncompressed: compression would save few bytes and make opening 10% slower."""
    return encode_ints(np.array(values, dtype=np.int64), _RAW)


def encode_leaf(runs: Runs, spans: list[BlockSpan], context: EncodeContext) -> bytes:
    """Encode one framed leaf."""
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
    """Open a leaf whose checksum was verified. Raises CorruptSegmentError if it contradicts itself.

    keys: decode its keys too.
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
    """Decode the keys of a leaf, whose block is at `offset`. Raises CorruptSegmentError."""
    try:
        leaf.open_keys(context.plain, context.framed)
    except CorruptSegmentError as error:
        error.offset = offset
        raise


def block_handle(leaf: Leaf, block: int) -> BlockHandle:
    """The handle of the leaf's data block number `block`."""
    offset = leaf.block_offsets[block]
    return BlockHandle(offset, leaf.block_offsets[block + 1] - offset, leaf.block_checks[block])


@dataclass(frozen=True, slots=True)
class LeafEntry:
    """The description of one leaf, or one page, in the root."""

    first_space: bytes
    runs: int
    rows: int
    blocks: int
    data_offset: int
    handle: BlockHandle
    min_timestamp: int
    max_timestamp: int


def encode_root(entries: Sequence[LeafEntry], leaves: int, context: EncodeContext) -> bytes:
    """Encode the framed root of a directory with this many leaves. entries: the leaves, or the pages that list them."""
    body = _ROOT.pack(leaves) + _encode_entries(entries, context)
    return encode_block(BlockKind.DIRECTORY_ROOT, body, count=len(entries))


def encode_page(leaves: Sequence[LeafEntry], context: EncodeContext) -> bytes:
    """Encode a framed page that lists some leaves."""
    return encode_block(BlockKind.DIRECTORY_PAGE, _encode_entries(leaves, context), count=len(leaves))


def pages_of(leaves: Sequence[LeafEntry]) -> list[Sequence[LeafEntry]]:
    """The leaves of each page; empty if the root can list all leaves."""
    if len(leaves) <= MOST_ROOT_LEAVES:
        return []
    return [leaves[first : first + PAGE_LEAVES] for first in range(0, len(leaves), PAGE_LEAVES)]


def entry_of_page(leaves: Sequence[LeafEntry], handle: BlockHandle) -> LeafEntry:
    """The root's entry for a page."""
    return LeafEntry(
        first_space=leaves[0].first_space,
        runs=sum(leaf.runs for leaf in leaves),
        rows=sum(leaf.rows for leaf in leaves),
        blocks=sum(leaf.blocks for leaf in leaves),
        data_offset=leaves[0].data_offset,
        handle=handle,
        min_timestamp=min(leaf.min_timestamp for leaf in leaves),
        max_timestamp=max(leaf.max_timestamp for leaf in leaves),
    )


def _encode_entries(entries: Sequence[LeafEntry], context: EncodeContext) -> bytes:
    return b"".join(
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


def open_root(block: Block, context: DecodeContext, read: ReadPages | None = None, name: str | None = None) -> Root:
    """Open a root whose checksum was verified.

    read: reads pages. name: of the file, for messages. Raises CorruptSegmentError if the root contradicts itself.
    """
    return Root(block.body, block.count, block.offset, context.plain, context.framed, BlockHandle, name, read)


def open_page(
    block: Block, first_row: int, first_block: int, context: DecodeContext, name: str | None = None
) -> Entries:
    """Open a page whose checksum was verified, after `first_row` rows and `first_block` blocks.

    Raises like `open_root`.
    """
    plain, framed = context.plain, context.framed
    return Entries(block.body, 0, block.count, first_row, first_block, block.offset, plain, framed, BlockHandle, name)
