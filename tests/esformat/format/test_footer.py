"""The footer: the offset table is read back, and never points outside the file."""

from __future__ import annotations

import struct

import pytest
from damage import assert_refused_or_read

from esformat.errors import CorruptSegmentError
from esformat.format.footer import decode_footer, encode_footer
from esformat.format.frame import Block, decode_block, encode_block
from esformat.format.layout import BlockHandle, BlockKind

TABLE = {
    (BlockKind.METADATA, 0, 0): BlockHandle(500, 100, 1),
    (BlockKind.METADATA, 0, 1): BlockHandle(16, 90, 2),
    (BlockKind.DIRECTORY_ROOT, 0, 0): BlockHandle(400, 100, 3),
    (BlockKind.INDEX_ROOT, 7, 0): BlockHandle(300, 24, 4),
    (200, 3, 0): BlockHandle(200, 24, 5),
}
AT = 600


def block(body: bytes, count: int) -> Block:
    """A footer at byte AT."""
    return decode_block(encode_block(BlockKind.FOOTER, body, count=count), BlockKind.FOOTER, None, AT)


def entry(kind: int, offset: int, length: int) -> bytes:
    """An entry of the table."""
    return struct.pack("<BBHQII", kind, 0, 0, offset, length, 0)


REQUIRED = entry(1, 16, 24) + entry(4, 40, 24)


def test_footer_comes_back():
    """Every entry is read back, including kinds that only a newer writer knows."""
    stored = encode_footer(TABLE)
    assert decode_footer(decode_block(stored, BlockKind.FOOTER, None, AT)) == TABLE


def test_entries_are_sorted():
    """Entries are sorted by kind, ordinal and copy, whatever the order of the table."""
    assert encode_footer(TABLE) == encode_footer(dict(reversed(TABLE.items())))
    body = decode_block(encode_footer(TABLE), BlockKind.FOOTER, None, AT).body
    keys = [(kind, ordinal, copy) for kind, copy, ordinal in struct.iter_unpack("<BBH16x", body)]
    assert keys == sorted(TABLE)


WRONG_FOOTERS = [
    ("fewer entries than it says", REQUIRED, 3, "length does not fit its count"),
    ("half an entry", REQUIRED[:-1], 2, "length does not fit its count"),
    ("block within the header", REQUIRED + entry(8, 15, 24), 3, "points outside the file"),
    ("block behind the footer", REQUIRED + entry(8, AT - 23, 24), 3, "points outside the file"),
    ("block beyond all offsets", REQUIRED + entry(8, 2**64 - 1, 24), 3, "points outside the file"),
    ("block shorter than a frame", REQUIRED + entry(8, 100, 23), 3, "length 23 is out of bounds"),
    ("block longer than any", REQUIRED + entry(8, 100, 2**31), 3, "out of bounds"),
    ("no metadata", entry(4, 40, 24), 1, "does not name the metadata block"),
    ("no directory", entry(1, 16, 24), 1, "does not name the directory_root block"),
]


@pytest.mark.parametrize(
    ("body", "count", "message"), [c[1:] for c in WRONG_FOOTERS], ids=[c[0] for c in WRONG_FOOTERS]
)
def test_footers_that_no_writer_makes(body, count, message):
    """A footer that no writer makes is refused; the error names the fault and its position."""
    with pytest.raises(CorruptSegmentError, match=message) as caught:
        decode_footer(block(body, count))
    assert caught.value.offset is not None


def test_damaged_footer_body():
    """Damage beneath a valid checksum is refused or yields another table."""
    assert_refused_or_read(REQUIRED, lambda damaged: decode_footer(block(damaged, 2)))
