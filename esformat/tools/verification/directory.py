"""Check the directory: its root, pages and leaves, and their descriptions of each data block."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from esformat.core.roots import PAGE_LEAVES
from esformat.errors import CorruptSegmentError
from esformat.format.directory import LEAF_BLOCKS
from esformat.format.frame import Block
from esformat.format.layout import HEADER_BYTES, MAX_BLOCK_ROWS, MAX_PAGE_ENTRIES, BlockHandle
from esformat.format.node import DecodeContext
from esformat.tools.verification.data import Expected, Key
from esformat.tools.verification.parts import I64, Parts, check_range

_ROOT = struct.Struct("<I")  # leaves of the file
_LEAF = struct.Struct("<I")  # data blocks


@dataclass(frozen=True, slots=True)
class RootEntry:
    """A leaf's entry in the root or in a page, or a page's entry in the root. Numbers are those of the file."""

    first_space: bytes
    runs: int
    rows: int
    blocks: int
    first_row: int
    first_block: int
    data_offset: int
    handle: BlockHandle
    min_timestamp: int
    max_timestamp: int


def read_root(block: Block, context: DecodeContext, file_size: int) -> tuple[list[RootEntry], list[int]]:
    """Decode the root: its entries, and the number of leaves of each page, or an empty list if the entries are leaves.

    Raises CorruptSegmentError.
    """
    count = check_range(0, block.count, file_size, "the number of leaves")
    parts = Parts(block.body, context)
    (leaves,) = parts.fields(_ROOT)
    if count not in (leaves, -(-leaves // PAGE_LEAVES)):
        raise CorruptSegmentError(f"the directory root names {count} pages of {leaves} leaves")
    entries = _read_entries(parts, count, 0, 0)
    sizes = [min(PAGE_LEAVES, leaves - before) for before in range(0, leaves, PAGE_LEAVES)]
    return entries, [] if count == leaves else sizes


def read_page(block: Block, entry: RootEntry, leaves: int, context: DecodeContext) -> list[RootEntry]:
    """Decode a page with this many leaves, and check it against the root. Raises CorruptSegmentError."""
    if block.count != leaves:
        raise CorruptSegmentError(f"a directory page has {block.count} leaves instead of {leaves}")
    found = _read_entries(Parts(block.body, context), leaves, entry.first_row, entry.first_block)
    sums = [sum(getattr(each, name) for each in found) for name in ("runs", "rows", "blocks")]
    begins = found[0].first_space, found[0].data_offset
    times = min(each.min_timestamp for each in found), max(each.max_timestamp for each in found)
    if (sums, begins, times) != (
        [entry.runs, entry.rows, entry.blocks],
        (entry.first_space, entry.data_offset),
        (entry.min_timestamp, entry.max_timestamp),
    ):
        raise CorruptSegmentError("a directory page does not match the root")
    return found


def _read_entries(parts: Parts, count: int, first_row: int, first_block: int) -> list[RootEntry]:
    """Read the rest of a body, which consists of `count` entries."""
    spaces = parts.keys(count)
    runs, rows, blocks = (parts.counts(count, least=1).tolist() for _ in range(3))
    data_offsets = parts.counts(count, least=HEADER_BYTES).tolist()
    handles = parts.handles(count)
    low, high = _time_spans(parts, count)
    parts.end()
    if any(a > b for a, b in pairwise(spaces)):
        raise CorruptSegmentError("the leaves of the directory do not ascend")
    entries = []
    for fields in zip(spaces, runs, rows, blocks, data_offsets, handles, low.tolist(), high.tolist(), strict=True):
        space, run_count, row_count, block_count, *rest = fields
        entries.append(RootEntry(space, run_count, row_count, block_count, first_row, first_block, *rest))
        first_row += row_count
        first_block += block_count
    return entries


def _time_spans(parts: Parts, count: int) -> tuple[I64, I64]:
    """Smallest and largest timestamps; the latter are stored as differences modulo 2^64."""
    low = parts.numbers(count)
    high = low + parts.numbers(count)
    if bool((high < low).any()):
        raise CorruptSegmentError("a time span ends before it begins")
    return low, high


@dataclass(frozen=True, slots=True)
class LeafContents:
    """A decoded leaf: its runs, and for each data block its rows, handle and time span."""

    keys: list[Key]
    run_rows: list[int]
    block_rows: list[int]
    handles: list[BlockHandle]
    min_timestamps: list[int]
    max_timestamps: list[int]


def read_leaf(block: Block, entry: RootEntry, context: DecodeContext) -> LeafContents:
    """Decode a leaf, and check it for consistency and against the root. Raises CorruptSegmentError."""
    parts = Parts(block.body, context)
    (count,) = parts.fields(_LEAF)
    check_range(1, count, LEAF_BLOCKS, "the number of data blocks of a leaf")
    run_count = check_range(1, block.count, MAX_PAGE_ENTRIES, "the number of runs of a leaf")
    run_rows = parts.counts(run_count, least=1).tolist()
    keys = list(zip(parts.keys(run_count), parts.keys(run_count), strict=True))
    block_rows = parts.counts(count, least=1).tolist()
    lengths, checks = parts.counts(count).tolist(), parts.counts(count).tolist()
    low, high = _time_spans(parts, count)
    parts.end()
    check_range(1, max(block_rows), MAX_BLOCK_ROWS, "the number of rows of a data block")
    if any(a >= b for a, b in pairwise(keys)):
        raise CorruptSegmentError("the runs of a leaf do not ascend")
    if sum(run_rows) != sum(block_rows):
        raise CorruptSegmentError("the runs and the data blocks of a leaf have different numbers of rows")
    if (run_count, sum(block_rows), count, keys[0][0]) != (entry.runs, entry.rows, entry.blocks, entry.first_space):
        raise CorruptSegmentError("a leaf does not match the directory root")
    if (int(low.min()), int(high.max())) != (entry.min_timestamp, entry.max_timestamp):
        raise CorruptSegmentError("the time span of a leaf does not match the directory root")
    handles = []
    offset = entry.data_offset
    for length, check in zip(lengths, checks, strict=True):
        handles.append(BlockHandle(offset, length, check))
        offset += length
    return LeafContents(keys, run_rows, block_rows, handles, low.tolist(), high.tolist())


def expected_blocks(leaf: LeafContents) -> Iterator[tuple[BlockHandle, int, Expected]]:
    """Handle, number of rows and expected contents of each data block of a leaf."""
    run, left = 0, leaf.run_rows[0]
    for handle, rows, low, high in zip(
        leaf.handles, leaf.block_rows, leaf.min_timestamps, leaf.max_timestamps, strict=True
    ):
        runs: list[tuple[Key, int]] = []
        wanted = rows
        while wanted:
            if not left:
                run += 1
                left = leaf.run_rows[run]
            taken = min(left, wanted)
            runs.append((leaf.keys[run], taken))
            left -= taken
            wanted -= taken
        yield handle, rows, Expected(runs, low, high)
