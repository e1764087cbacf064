"""Header, handle and trailer: their bytes, and what is refused."""

from __future__ import annotations

import struct

import pytest
from damage import REFUSALS, assert_refused, cuts, flips

from esformat.errors import CorruptSegmentError, UnsupportedVersionError
from esformat.format.checksum import checksum64
from esformat.format.layout import (
    HEADER_BYTES,
    TRAILER_BYTES,
    BlockHandle,
    Trailer,
    check_header,
    encode_header,
)

HANDLES = [
    (BlockHandle(4096, 512, 0xDEADBEEF), "00100000 00000000 00020000 efbeadde"),
    (BlockHandle(0, 0, 0), "00" * 16),
    (BlockHandle(2**64 - 1, 2**32 - 1, 1), "ffffffff ffffffff ffffffff 01000000"),
]


@pytest.mark.parametrize(("handle", "stored"), HANDLES)
def test_handle_bytes(handle, stored):
    """A handle has the bytes of the spec."""
    assert handle.encode() == bytes.fromhex(stored)
    assert handle.end == handle.offset + handle.length


def test_header_bytes():
    """The header has the magic, version 1.0 and zeroes."""
    assert encode_header().hex() == "894553 44420d0a1a 0100 0000 00000000".replace(" ", "")
    check_header(encode_header() + b"more")


def test_damaged_header():
    """A damaged header is refused, except for bits of the minor version, which keep newer files readable."""
    for damaged in (*cuts(encode_header()), *flips(encode_header())):
        if damaged[10:12] not in (b"\0\0", b"\0", b""):
            check_header(damaged)
            continue
        with pytest.raises(REFUSALS):
            check_header(damaged)


WRONG_HEADERS = [
    (b"PAR1" + bytes(12), CorruptSegmentError, "not an .esdb file"),
    (encode_header()[:8] + struct.pack("<HHI", 2, 0, 0), UnsupportedVersionError, "version 2, this reader knows 1"),
    (encode_header()[:12] + b"\1\0\0\0", CorruptSegmentError, "reserved header field is 1"),
    (b"", CorruptSegmentError, "0 of 16 bytes"),
]


@pytest.mark.parametrize(("stored", "error", "message"), WRONG_HEADERS)
def test_wrong_headers(stored, error, message):
    """A wrong header is refused; the error distinguishes damage, newer versions and other formats."""
    with pytest.raises(error, match=message):
        check_header(stored)


SIZE = 1000
FOOTER = BlockHandle(SIZE - TRAILER_BYTES - 100, 100, 0x12345678)
TRAILER = Trailer(600, FOOTER)


def sealed(opening=600, footer=FOOTER, major=1, minor=0, reserved=0) -> bytes:
    """A handmade trailer with a valid checksum."""
    head = struct.pack("<Q16sHHI", opening, footer.encode(), major, minor, reserved)
    return head + struct.pack("<Q", checksum64(head)) + b"\x1a\n\rBDSE\x89"


def test_trailer_comes_back():
    """The trailer is found at the end of the bytes that were read."""
    assert TRAILER.encode() == sealed()
    assert len(TRAILER.encode()) == TRAILER_BYTES
    assert Trailer.decode(b"before it" + TRAILER.encode(), SIZE) == TRAILER
    assert Trailer.decode(sealed(minor=7), SIZE) == TRAILER  # a newer minor version only adds things


def test_damaged_trailers():
    """A trailer that is cut or has any bit flipped is refused."""
    assert_refused(TRAILER.encode(), lambda damaged: Trailer.decode(damaged, SIZE))


WRONG_TRAILERS = [
    ("another file size", sealed(), SIZE + 1, CorruptSegmentError, "does not fit the file's size"),
    ("opening before the header's end", sealed(opening=HEADER_BYTES - 1), SIZE, CorruptSegmentError, "does not fit"),
    ("opening behind the footer", sealed(opening=FOOTER.offset + 1), SIZE, CorruptSegmentError, "does not fit"),
    ("newer version", sealed(major=2), SIZE, UnsupportedVersionError, "version 2"),
    ("version of nothing", sealed(major=0), SIZE, UnsupportedVersionError, "version 0"),
    ("reserved field", sealed(reserved=5), SIZE, CorruptSegmentError, "reserved trailer field is 5"),
    ("no trailer", bytes(TRAILER_BYTES), SIZE, CorruptSegmentError, "no segment trailer at the end"),
    (
        "no room for a header",
        sealed(),
        TRAILER_BYTES + HEADER_BYTES - 1,
        CorruptSegmentError,
        "too short for a segment",
    ),
]


@pytest.mark.parametrize(
    ("stored", "size", "error", "message"), [c[1:] for c in WRONG_TRAILERS], ids=[c[0] for c in WRONG_TRAILERS]
)
def test_trailers_that_no_writer_makes(stored, size, error, message):
    """An invalid trailer is refused despite a valid checksum."""
    with pytest.raises(error, match=message):
        Trailer.decode(stored, size)
