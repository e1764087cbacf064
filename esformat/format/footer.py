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
_APART = struct.Struct(_ENTRY.format.replace("16s", "QII"))  # the same with the parts of the handle

_FOR_OPENING = frozenset(map(int, (BlockKind.DICTIONARY, BlockKind.DIRECTORY_ROOT, BlockKind.METADATA)))
_FILTER = int(BlockKind.FILTER)

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
    for kind, copy, ordinal, offset, length, check in _APART.iter_unpack(block.body):
        if copy > 1 or (kind, ordinal, copy) <= last:
            raise CorruptSegmentError("the entries of the footer are not in order", offset=block.offset)
        last = kind, ordinal, copy
        check_length(length, offset)
        if not HEADER_BYTES <= offset <= offset + length <= block.offset:
            raise CorruptSegmentError("the footer points outside the file", offset=block.offset)
        table[last] = BlockHandle(offset, length, check)
    for kind in (BlockKind.METADATA, BlockKind.DIRECTORY_ROOT):
        if (kind, 0, 0) not in table:
            raise CorruptSegmentError(f"the footer does not name the {kind.name.lower()} block", offset=block.offset)
    return table


def check_opening(table: Mapping[Key, BlockHandle], start: int) -> None:
    """Hold the opening offset `start` against the blocks that the footer names.

    Raises CorruptSegmentError unless the first of those that opening needs begins there, and no others follow.
    """
    first = None
    fits = True
    for (kind, _, copy), (offset, _, _) in table.items():
        if offset < start:
            fits = fits and (copy != 0 or kind not in _FOR_OPENING)
        else:
            fits = fits and not copy and kind != _FILTER
            first = offset if first is None else min(first, offset)
    if not fits or first != start:
        raise CorruptSegmentError(f"the opening offset {start} is not where the blocks for opening begin")
