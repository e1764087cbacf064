"""Data blocks made by hand, with valid checksums."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

from esformat.format.checksum import checksum64
from esformat.format.frame import encode_block
from esformat.format.layout import BlockKind

HEAD, ENTRY = struct.Struct("<qII"), struct.Struct("<IIQ")


def data_block(
    chunks: Sequence[bytes],
    *,
    base: int = 0,
    runs: int = 1,
    rows: int = 1,
    dictionary: int = 0,
    places: Sequence[tuple[int, int]] | None = None,
) -> bytes:
    """A stored data block. chunks: of keys, timestamps and columns, stored in this order.

    places: the offset and length of each chunk, as the head has them, if not where the chunk is.
    """
    stored = b"".join(chunks)
    if places is None:
        places = list(zip(accumulate(map(len, chunks), initial=0), map(len, chunks), strict=False))
    table = [ENTRY.pack(at, size, checksum64(stored[at : at + size])) for at, size in places]
    head = HEAD.pack(base, runs, len(places)) + b"".join(table)
    return encode_block(BlockKind.DATA, head, count=rows, dictionary=dictionary, chunks=[stored])


def resealed(head: bytes, stored: bytes, rows: int) -> bytes:
    """A stored data block with this head and these chunks, whose checksums are made valid where they are read."""
    out = bytearray(head)
    for at in range(HEAD.size, len(head) - ENTRY.size + 1, ENTRY.size):
        offset, size, _ = ENTRY.unpack_from(head, at)
        ENTRY.pack_into(out, at, offset, size, checksum64(stored[offset : offset + size]))
    return encode_block(BlockKind.DATA, bytes(out), count=rows, chunks=[stored])
