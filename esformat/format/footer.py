"""The footer: the offset table of all blocks that are not found through another block."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from esformat.core.footers import check_opening, read_entries
from esformat.format.frame import Block, encode_block
from esformat.format.layout import BlockHandle, BlockKind

__all__ = ["Key", "check_opening", "decode_footer", "encode_footer"]

_ENTRY = struct.Struct(
    "<"
    "B"  # kind of the block
    "B"  # copy: 0 for the one to read, 1 for the spare
    "H"  # ordinal: column of an index root, number of a dictionary, page of the filter; otherwise zero
    "16s"  # handle
)
Key = tuple[int, int, int]
"""Kind, ordinal, copy."""


def encode_footer(table: Mapping[Key, BlockHandle]) -> bytes:
    """Encode the framed footer."""
    entries = [
        _ENTRY.pack(kind, copy, ordinal, handle.encode()) for (kind, ordinal, copy), handle in sorted(table.items())
    ]
    return encode_block(BlockKind.FOOTER, b"".join(entries), count=len(entries))


def decode_footer(block: Block) -> dict[Key, BlockHandle]:
    """Decode what `encode_footer` wrote, including unknown kinds of newer writers. Raises CorruptSegmentError."""
    return read_entries(block.body, block.count, block.offset, BlockHandle)
