"""The frame around every block detects every change."""

from __future__ import annotations

import struct

import pytest
from damage import assert_refused
from data_blocks import data_block
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.errors import ChecksumMismatchError, CorruptSegmentError
from esformat.format.checksum import checksum64
from esformat.format.frame import (
    FRAME_BYTES,
    check_length,
    check_of,
    decode_block,
    encode_block,
    handle_of,
    with_dictionary,
)
from esformat.format.layout import BlockKind


@examples(50)
@given(
    st.sampled_from(sorted({*BlockKind} - {BlockKind.DATA})),
    st.binary(max_size=50),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**16 - 1),
)
def test_what_is_framed_comes_back(kind, body, count, dictionary):
    """Kind, body, count and dictionary number are read back, and the handle matches."""
    stored = encode_block(kind, body, count=count, dictionary=dictionary)
    handle = handle_of(stored, 4096)
    assert (handle.offset, handle.length, handle.end) == (4096, len(stored), 4096 + len(stored))
    block = decode_block(stored, kind, handle.check, 4096)
    assert (block.kind, bytes(block.body), block.count, block.dictionary, block.offset) == (
        kind,
        body,
        count,
        dictionary,
        4096,
    )


def framed(magic=b"ESBK", kind=7, reserved=0, dictionary=0, length=3, count=1, body=b"abc") -> bytes:
    """A handmade block with a valid checksum."""
    head = struct.pack("<4sBBHII", magic, kind, reserved, dictionary, length, count) + body
    return head + struct.pack("<Q", checksum64(head))


def test_bytes_of_a_block():
    """A block consists of magic, kind, zero, dictionary, body length, count, body and checksum."""
    stored = encode_block(BlockKind.POSTINGS, b"abc", count=1)
    assert stored == framed()
    assert stored[:19].hex(" ") == "45 53 42 4b 07 00 00 00 03 00 00 00 01 00 00 00 61 62 63"
    assert len(stored) == FRAME_BYTES + 3


def test_damaged_blocks():
    """A block that is cut or has any bit flipped is refused."""
    for kind, stored in (
        (BlockKind.INDEX, encode_block(BlockKind.INDEX, b"some body of a block", count=3)),
        (BlockKind.DATA, data_block([b"keys", b"times", b"column"], rows=3, dictionary=1)),
    ):
        check = handle_of(stored, 0).check
        assert_refused(stored, lambda damaged, kind=kind, check=check: decode_block(damaged, kind, check, 0))
        assert_refused(stored, lambda damaged, kind=kind: decode_block(damaged, kind, None, 0))


def test_another_dictionary():
    """A data block with another dictionary number is otherwise the same; its checksum follows its head."""
    stored = data_block([b"keys", b"times", b"column"], rows=3, dictionary=1)
    changed = with_dictionary(stored, 77)
    assert changed == data_block([b"keys", b"times", b"column"], rows=3, dictionary=77)
    assert check_of(changed) == int.from_bytes(changed[80:84], "little") == checksum64(changed[:80]) & 0xFFFF_FFFF


WRONG_FRAMES = [
    ("other magic", framed(magic=b"ESBX"), "header"),
    ("reserved byte", framed(reserved=1), "header"),
    ("body length", framed(length=4), "header"),
    ("kind", framed(kind=3), "of kind 3, expected 7"),
]


@pytest.mark.parametrize(("stored", "message"), [c[1:] for c in WRONG_FRAMES], ids=[c[0] for c in WRONG_FRAMES])
def test_frames_that_no_writer_makes(stored, message):
    """An invalid frame is refused despite a valid checksum."""
    with pytest.raises(CorruptSegmentError, match=message) as caught:
        decode_block(stored, BlockKind.POSTINGS, None, 77)
    assert caught.value.offset == 77
    assert not isinstance(caught.value, ChecksumMismatchError)


def test_a_block_that_lies_where_another_should():
    """A valid block of the right kind is refused if it is not the one that the handle describes."""
    one, other = (encode_block(BlockKind.INDEX, body, count=1) for body in (b"abc", b"abd"))
    with pytest.raises(ChecksumMismatchError, match="another block lies here"):
        decode_block(other, BlockKind.INDEX, handle_of(one, 0).check, 0)


def test_checksum_error_says_both_sums():
    """The error has both checksums, the position and a fix."""
    stored = bytearray(framed())
    stored[17] ^= 1
    with pytest.raises(ChecksumMismatchError) as caught:
        decode_block(bytes(stored), BlockKind.POSTINGS, None, 1234)
    message = str(caught.value)
    assert f"{checksum64(bytes(stored[:-8])):016x}" in message
    assert stored[-8:][::-1].hex() in message
    assert "at byte 1234" in message
    assert "esdb verify" in message


@pytest.mark.parametrize("length", [0, FRAME_BYTES - 1, (1 << 30) + 1, 0xFFFF_FFFF])
def test_lengths_out_of_bounds(length):
    """A length that no writer makes is refused before anything is read."""
    with pytest.raises(CorruptSegmentError, match=f"{length} is out of bounds"):
        check_length(length, 0)


@pytest.mark.parametrize("length", [FRAME_BYTES, 1 << 30])
def test_lengths_within_bounds(length):
    """The shortest and the longest block are accepted."""
    check_length(length, 0)


def test_checksum_is_xxh3():
    """The checksum of no bytes is the one in the xxHash specification."""
    assert checksum64(b"") == 0x2D06800538D394C2
