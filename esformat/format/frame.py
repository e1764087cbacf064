"""The frame around every block: magic, kind, lengths, checksum. Other modules interpret the bodies."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from esformat.core.blocks import Block, checksum_end, open_block, verify_chunks
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
_CHECK = struct.Struct("<Q")  # xxh3-64 of frame header and body; of a data block, of the body only the head
FRAME_HEADER_BYTES = _FRAME.size
FRAME_BYTES = FRAME_HEADER_BYTES + _CHECK.size

__all__ = [
    "FRAME_BYTES",
    "FRAME_HEADER_BYTES",
    "Block",
    "check_length",
    "check_of",
    "decode_block",
    "encode_block",
    "handle_of",
    "with_dictionary",
]


def encode_block(
    kind: BlockKind, body: bytes, *, count: int = 0, dictionary: int = 0, chunks: Sequence[bytes] = ()
) -> bytes:
    """Put the frame around `body`; for a data block that is the head, and its `chunks` follow the checksum.

    Raises InvalidEventError if the block is larger than readers accept.
    """
    body_bytes = len(body) + sum(map(len, chunks))
    if FRAME_BYTES + body_bytes > MAX_BLOCK_BYTES:
        raise InvalidEventError(
            f"a block of {FRAME_BYTES + body_bytes} bytes is larger than the {MAX_BLOCK_BYTES} that a segment can hold",
            hint="split the largest events",
        )
    framed = _FRAME.pack(BLOCK_MAGIC, kind, 0, dictionary, body_bytes, count) + body
    return b"".join((framed, _CHECK.pack(checksum64(framed)), *chunks))


def check_of(block: bytes | memoryview) -> int:
    """The low 32 bits of the checksum of an encoded block, for its handle."""
    return int(_CHECK.unpack_from(block, checksum_end(block) - _CHECK.size)[0]) & SHORT_MASK


def with_dictionary(block: bytes | memoryview, number: int) -> bytes:
    """An encoded data block with the number of another dictionary."""
    magic, kind, reserved, _, body_bytes, count = _FRAME.unpack_from(block)
    end = checksum_end(block)
    framed = _FRAME.pack(magic, kind, reserved, number, body_bytes, count) + block[_FRAME.size : end - _CHECK.size]
    return b"".join((framed, _CHECK.pack(checksum64(framed)), block[end:]))


def handle_of(block: bytes, offset: int) -> BlockHandle:
    """The handle of an encoded block that will be stored at `offset`."""
    return BlockHandle(offset, len(block), check_of(block))


def decode_block(stored: bytes | memoryview, kind: int, check: int | None, offset: int) -> Block:
    """Verify one block, whose stored bytes are exactly `stored`; of a data block, also the chunks.

    `kind` is the expected kind; `check` the low 32 bits of the checksum in the block's handle (None if the block is
    read without a handle); `offset` the position of the block in the file, for messages. Raises ChecksumMismatchError
    or CorruptSegmentError.
    """
    block = open_block(stored, checksum64, kind, check, offset)
    verify_chunks(block)
    return block
