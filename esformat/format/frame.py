"""The frame around every block: magic, kind, lengths, checksum. Other modules interpret the bodies."""

from __future__ import annotations

import struct

from esformat.core.blocks import Block, open_block
from esformat.core.blocks import check_block_length as check_length
from esformat.errors import InvalidEventError
from esformat.format.checksum import SHORT_MASK, checksum64
from esformat.format.layout import BLOCK_MAGIC, MAX_BLOCK_BYTES, BlockHandle, BlockKind

_FRAME = struct.Struct(
    "<"
    "4s"  # magic
    "B"  # kind
    "B"  # reserved, zero
    "H"  # dictionary: number of the dictionary block that the body needs, 0 for none
    "I"  # body length
    "I"  # count: rows of a data block, entries of any other
)
_CHECK = struct.Struct("<Q")  # xxh3-64 of frame header and body
FRAME_HEADER_BYTES = _FRAME.size
FRAME_BYTES = FRAME_HEADER_BYTES + _CHECK.size

__all__ = ["FRAME_BYTES", "FRAME_HEADER_BYTES", "Block", "check_length", "decode_block", "encode_block", "handle_of"]


def encode_block(kind: BlockKind, body: bytes, *, count: int = 0, dictionary: int = 0) -> bytes:
    """Put the frame around `body`. Raises InvalidEventError if the block is larger than readers accept."""
    if FRAME_BYTES + len(body) > MAX_BLOCK_BYTES:
        raise InvalidEventError(
            f"a block of {FRAME_BYTES + len(body)} bytes is larger than the {MAX_BLOCK_BYTES} that a segment can hold",
            hint="split the largest events",
        )
    framed = _FRAME.pack(BLOCK_MAGIC, kind, 0, dictionary, len(body), count) + body
    return framed + _CHECK.pack(checksum64(framed))


def handle_of(block: bytes, offset: int) -> BlockHandle:
    """The handle of an encoded block that will be stored at `offset`."""
    return BlockHandle(offset, len(block), _CHECK.unpack_from(block, len(block) - 8)[0] & SHORT_MASK)


def decode_block(stored: bytes | memoryview, kind: int, check: int | None, offset: int) -> Block:
    """Verify the frame of one block, whose stored bytes are exactly `stored`.

    `kind` is the expected kind; `check` the low 32 bits of the checksum in the block's handle (None if the block is
    read without a handle); `offset` the position of the block in the file, for messages. Raises ChecksumMismatchError
    or CorruptSegmentError.
    """
    return open_block(stored, checksum64, kind, check, offset)
