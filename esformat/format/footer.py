"""The footer: the offset table that leads to every block that is not found through another block."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from esformat.errors import CorruptSegmentError
from esformat.format.frame import Block, check_length, encode_block
from esformat.format.layout import HEADER_BYTES, BlockHandle, BlockKind

_ENTRY = struct.Struct(
    "<"
    "B"  # kind of the block
    "B"  # copy: 0 the one to read, 1 a spare
    "H"  # ordinal: column of an index root, number of a dictionary, page of the filter, else zero
    "16s"  # handle
)

Key = tuple[int, int, int]
"""Kind, ordinal, copy."""


def encode_footer(table: Mapping[Key, BlockHandle]) -> bytes:
    """The framed footer."""
    entries = [
        _ENTRY.pack(kind, copy, ordinal, handle.encode()) for (kind, ordinal, copy), handle in sorted(table.items())
    ]
    return encode_block(BlockKind.FOOTER, b"".join(entries), count=len(entries))


def decode_footer(block: Block) -> dict[Key, BlockHandle]:
    """Read what `encode_footer` wrote. Raises CorruptSegmentError. Unknown kinds are kept: a newer writer's extras."""
    if len(block.body) != block.count * _ENTRY.size:
        raise CorruptSegmentError("the footer's length does not fit its count", offset=block.offset)
    table: dict[Key, BlockHandle] = {}
    last: Key = (-1, 0, 0)
    for kind, copy, ordinal, stored in _ENTRY.iter_unpack(block.body):
        if copy > 1 or (kind, ordinal, copy) <= last:
            raise CorruptSegmentError("the entries of the footer are not in order", offset=block.offset)
        last = kind, ordinal, copy
        handle = BlockHandle.decode(stored, 0)
        offset, length, _ = handle
        check_length(length, offset)
        if not HEADER_BYTES <= offset <= offset + length <= block.offset:
            raise CorruptSegmentError("the footer points outside the file", offset=block.offset)
        table[last] = handle
    for kind in (BlockKind.METADATA, BlockKind.DIRECTORY_ROOT):
        if (kind, 0, 0) not in table:
            raise CorruptSegmentError(f"the footer does not name the {kind.name.lower()} block", offset=block.offset)
    return table


def check_opening(table: Mapping[Key, BlockHandle], start: int) -> None:
    """Hold the opening offset `start` against the blocks that the footer names.

    Raises CorruptSegmentError unless the first of those that opening needs begins there, and no others follow.
    """
    needed = {BlockKind.DICTIONARY, BlockKind.DIRECTORY_ROOT, BlockKind.METADATA}
    behind = {key: handle for key, handle in table.items() if handle.offset >= start}
    complete = all(key in behind for key in table if key[0] in needed and key[2] == 0)
    foreign = any(key[0] == BlockKind.FILTER or key[2] for key in behind)
    if not complete or foreign or min(handle.offset for handle in behind.values()) != start:
        raise CorruptSegmentError(f"the opening offset {start} is not where the blocks for opening begin")
