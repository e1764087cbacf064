"""The fixed structures of a segment: header, block handle, trailer, kinds of blocks, limits.

`spec/format.md` describes them byte by byte; tests compare the two.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple, Self

from esformat.core import blocks, bytes_nodes, footers, leaves
from esformat.errors import CorruptSegmentError
from esformat.format.checksum import checksum64

HEADER_MAGIC = b"\x89ESDB\r\n\x1a"  # like PNG's: reveals text-mode and 7-bit damage in the first bytes
TRAILER_MAGIC = footers.TRAILER_MAGIC
BLOCK_MAGIC = b"ESBK"
MAJOR_VERSION = footers.MAJOR_VERSION
MINOR_VERSION = 0

MAX_BLOCK_BYTES = blocks.MOST_BLOCK_BYTES
MAX_FRAME_BYTES = bytes_nodes.MAX_FRAME_BYTES  # uncompressed, of one frame: an event's payload, or many small ones
LEAST_FRAME_BYTES, MOST_FRAME_BYTES = 512, 1 << 20  # bounds of the frame size that a caller may choose
MAX_ELEMENTS = (1 << 28) - 1  # of all lists of a node: as numbers they fill one frame of the largest size
MAX_BLOCK_ROWS = blocks.MOST_ROWS
MAX_PAGE_ENTRIES = leaves.MOST_RUNS  # runs of a directory leaf, values of an index page
MAX_KEY_BYTES = 1 << 16  # one space or grouping
MAX_COLUMNS = 4096


class BlockKind(enum.IntEnum):
    """What a block holds."""

    METADATA = 1
    DATA = 2
    DIRECTORY = 3
    DIRECTORY_ROOT = 4
    INDEX = 5
    INDEX_ROOT = 6
    POSTINGS = 7
    FILTER = 8
    DICTIONARY = 9
    FOOTER = 10
    DIRECTORY_PAGE = 11


_HEADER = struct.Struct(
    "<"  # little-endian without padding, here and everywhere
    "8s"  # magic
    "H"  # major version
    "H"  # minor version
    "I"  # reserved, zero
)
HEADER_BYTES = _HEADER.size


def encode_header() -> bytes:
    """Encode the first bytes of every segment."""
    return _HEADER.pack(HEADER_MAGIC, MAJOR_VERSION, MINOR_VERSION, 0)


def check_header(buf: bytes) -> None:
    """Check the first bytes of a file. Raises CorruptSegmentError or UnsupportedVersionError."""
    if len(buf) < HEADER_BYTES:
        raise CorruptSegmentError(f"header is cut short: {len(buf)} of {HEADER_BYTES} bytes", offset=0)
    magic, major, _minor, reserved = _HEADER.unpack_from(buf)
    if magic != HEADER_MAGIC:
        raise CorruptSegmentError("not an .esdb file: its first 8 bytes are not the format's magic", offset=0)
    footers.check_version(major)
    if reserved:
        raise CorruptSegmentError(f"reserved header field is {reserved}, not 0", offset=12)


_HANDLE = struct.Struct(
    "<"
    "Q"  # offset: first byte of the block
    "I"  # length: stored bytes, frame included
    "I"  # check: low 32 bits of the block's checksum
)


class BlockHandle(NamedTuple):
    """The location of a block, bytes [offset, offset + length), and the low 32 bits of its checksum."""

    offset: int
    length: int
    check: int

    @property
    def end(self) -> int:
        """The first byte after the block."""
        return self.offset + self.length

    def encode(self) -> bytes:
        """Encode the handle."""
        return _HANDLE.pack(self.offset, self.length, self.check)


_TRAILER = struct.Struct(
    "<"
    "Q"  # opening offset: first byte of the blocks that are read on opening
    "16s"  # handle of the footer
    "H"  # major version
    "H"  # minor version
    "I"  # reserved, zero
    "Q"  # xxh3-64 of the 32 bytes before
    "8s"  # magic
)
TRAILER_BYTES = _TRAILER.size
_TRAILER_CHECKED = 32


class Trailer(NamedTuple):
    """The fixed end of a segment: the location of its footer, and where the blocks that are read on opening begin."""

    opening_offset: int
    footer: BlockHandle

    def encode(self) -> bytes:
        """Encode the trailer."""
        head = _TRAILER.pack(
            self.opening_offset, self.footer.encode(), MAJOR_VERSION, MINOR_VERSION, 0, 0, TRAILER_MAGIC
        )[:_TRAILER_CHECKED]
        return head + struct.pack("<Q8s", checksum64(head), TRAILER_MAGIC)

    @classmethod
    def decode(cls, buf: bytes | memoryview, file_size: int) -> Self:
        """Decode the trailer from the last `TRAILER_BYTES` bytes of a file of `file_size` bytes.

        Raises CorruptSegmentError (not the end of a segment, or damaged) or UnsupportedVersionError.
        """
        return cls(*footers.read_trailer(buf, file_size, checksum64, BlockHandle))
