"""Sections of an archive: bytes split into blocks of at most 4 KiB, each raw or compressed with Snappy."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from esformat.customerio.varint import I64, PADDING, U8, decode, encode
from esformat.errors import CorruptSegmentError

BLOCK_BYTES = 4096  # of a section, uncompressed
RAW, SNAPPY = 0, 1
HEADER = struct.Struct(
    "<"  # little-endian, no padding
    "H"  # stored length
    "B"  # encoding
)
MARKER_BYTES = 256
"""The Go reader takes a block offset that is a multiple of this for the end of an index."""
_CODEC = pa.Codec("snappy")


@dataclass(frozen=True, slots=True)
class Sections:
    """Concatenated sections, uncompressed."""

    data: bytes
    """The bytes of the sections, then PADDING."""
    starts: I64
    """The start of each section in `data`, and the end of the last."""
    block_offsets: I64
    """The offset of each block in the buffer read from; ascending if the sections are."""
    block_starts: I64
    """The start of each block's bytes in `data`."""

    @property
    def array(self) -> U8:
        """The bytes as a NumPy array."""
        return np.frombuffer(self.data, dtype=np.uint8)


def read_sections(stored: bytes, spans: Sequence[tuple[int, int]]) -> Sections:
    """Decompress the sections at bytes [start, end) of `stored`. Raises CorruptSegmentError."""
    parts: list[bytes] = []
    starts, offsets, block_starts = [0], [], []
    size = 0
    header, uncompress = HEADER.unpack_from, _uncompress
    for at, end in spans:
        while at < end:
            if at + HEADER.size > end:
                raise CorruptSegmentError("the header of a block is cut short", offset=at)
            length, encoding = header(stored, at)
            start = at + HEADER.size
            if start + length > end:
                raise CorruptSegmentError("a block reaches beyond its section", offset=at)
            if encoding == RAW and length <= BLOCK_BYTES:
                part = stored[start : start + length]
            else:
                part = uncompress(stored, start, length, encoding)
            offsets.append(at)
            block_starts.append(size)
            parts.append(part)
            size += len(part)
            at = start + length
        starts.append(size)
    parts.append(PADDING)
    numbers = (np.array(each, dtype=np.int64) for each in (starts, offsets, block_starts))
    return Sections(b"".join(parts), *numbers)


def _uncompress(stored: bytes, start: int, length: int, encoding: int) -> bytes:
    if encoding != SNAPPY:
        what = "is longer than 4096 bytes" if encoding == RAW else f"has unknown encoding {encoding}"
        raise CorruptSegmentError(f"a block {what}", offset=start)
    block = stored[start : start + length]
    size, _ = decode(block, 0)
    if size > BLOCK_BYTES:  # before anything is allocated
        raise CorruptSegmentError(f"a block claims {size} bytes, more than {BLOCK_BYTES}", offset=start)
    try:
        part: bytes = _CODEC.decompress(block, decompressed_size=size, asbytes=True)
    except OSError as error:
        raise CorruptSegmentError(f"a block cannot be uncompressed: {error}", offset=start) from None
    return part


def write_section(
    data: memoryview, origin: int, *, entry_bytes: int = 1, avoid_markers: bool = False
) -> Iterator[tuple[bytes, int]]:
    """Yield the stored blocks of a section that begins at `origin` of its space, each with its number of section bytes.

    entry_bytes: blocks contain whole entries of that size; 1 for events, which may cross blocks.
    avoid_markers: choose lengths so that no following block begins at a multiple of MARKER_BYTES.
    """
    most = BLOCK_BYTES - BLOCK_BYTES % entry_bytes
    at = 0
    while at < len(data):
        forms = _forms(data[at : at + most])
        block, taken = next(forms)
        while avoid_markers and not (origin + len(block)) % MARKER_BYTES:
            block, taken = next(forms)
        yield block, taken
        origin += len(block)
        at += taken


def _forms(data: memoryview) -> Iterator[tuple[bytes, int]]:
    """Yield encodings of a block with distinct lengths, each with its number of section bytes.

    The first is that of the Go writer. There are always at least two, so one of them avoids any given end offset.
    """
    compressed = _CODEC.compress(data, asbytes=True)
    raw = HEADER.pack(len(data), RAW) + bytes(data)
    if len(compressed) <= len(data):
        yield HEADER.pack(len(compressed), SNAPPY) + compressed, len(data)
    if len(compressed) != len(data):
        yield raw, len(data)
    if len(data) > 1:
        yield HEADER.pack(len(data) - 1, RAW) + bytes(data[:-1]), len(data) - 1
    else:
        literal = encode(1) + b"\0" + bytes(data)  # one byte in Snappy: a tag, then the byte
        yield HEADER.pack(len(literal), SNAPPY) + literal, 1
