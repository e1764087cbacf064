"""Objects of a catalog in a store, as bytes and names."""

from __future__ import annotations

import dataclasses
import json
import struct

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from aggregator.errors import CorruptLogError, UnknownVersionError
from aggregator.storage.files.checksum import checksum64
from aggregator.storage.store.shipped import (
    MAGIC,
    PIECES_BYTES,
    Announced,
    LogObject,
    log_name,
    manifest_name,
    manifest_sequence,
)

ANNOUNCED = Announced("manifest/x.zst", 100, "0123456789abcdef", 7, 3, 40)
FULL = LogObject(2, 5, "run", 1_000_000, 120, True, [(40, b"some bytes"), (100, b"\x00" * 20)], ANNOUNCED)
FENCE = LogObject(3, 6, "another run", 1_000_001, 120)


@pytest.mark.parametrize("one", [FULL, FENCE, dataclasses.replace(FULL, manifest=None)])
def test_it_is_read_as_it_was_written(one: LogObject):
    """An object decodes to itself, with pieces, a manifest or neither."""
    assert LogObject.decode(one.encode(), one.sequence) == dataclasses.replace(one, pieces=list(one.pieces))


@given(st.lists(st.tuples(st.integers(0, 2**63), st.binary(max_size=50)), max_size=4))
def test_any_pieces(pieces: list[tuple[int, bytes]]):
    """Pieces may contain anything."""
    one = dataclasses.replace(FULL, pieces=pieces)
    assert LogObject.decode(one.encode(), 5).pieces == pieces


def test_an_object_cut_short():
    """An object cut at any byte is refused."""
    stored = FULL.encode()
    for length in range(len(stored)):
        with pytest.raises(CorruptLogError):
            LogObject.decode(stored[:length], 5)


def test_an_object_with_a_byte_flipped():
    """An object with any flipped byte is refused, except in the version, which then names another reader."""
    stored = FULL.encode()
    for at in range(len(stored)):
        flipped = stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :]
        with pytest.raises(UnknownVersionError if at in (8, 9) else CorruptLogError):
            LogObject.decode(flipped, 5)


def forged(pieces: list[list[int]], frames: bytes) -> bytes:
    """An object whose head describes these pieces, with a correct checksum."""
    facts = json.loads(FENCE.encode()[16:-8]) | {"pieces": pieces}
    head = json.dumps(facts).encode()
    stored = struct.pack("<8sHHI", MAGIC, 1, 0, len(head)) + head + frames
    return stored + struct.pack("<Q", checksum64(stored))


FRAME = zstandard.ZstdCompressor().compress(b"bytes")
UNSIZED = zstandard.ZstdCompressor(write_content_size=False).compress(b"bytes")
ZEROS = zstandard.ZstdCompressor().compress(bytes(PIECES_BYTES))


@pytest.mark.parametrize(
    ("pieces", "frames"),
    [
        ([[0, 5]], FRAME),
        ([[0, 4, len(FRAME)]], FRAME),
        ([[0, 6, len(FRAME)]], FRAME),
        ([[0, -1, len(UNSIZED)]], UNSIZED),
        ([[0, 5, len(UNSIZED)]], UNSIZED),
        ([[0, 5, len(FRAME) - 1]], FRAME),
        ([[0, 5, len(FRAME) - 1]], FRAME[:-1]),
        ([[0, 5, len(FRAME) + 1]], FRAME),
        ([[0, 5, len(FRAME) + 1]], FRAME + b"?"),
        ([[0, 5, -1], [0, 5, len(FRAME) + 1]], FRAME),
        ([[0, 5, len(FRAME)]], FRAME + b"?"),
        ([[0, 5, "13"]], FRAME),
        ([[0, 5, len(FRAME)]], b"?" * len(FRAME)),
        ([[0, PIECES_BYTES, len(ZEROS)], [PIECES_BYTES, 5, len(FRAME)]], ZEROS + FRAME),
    ],
)
def test_pieces_that_cannot_be(pieces: list[list[int]], frames: bytes):
    """Impossible pieces are refused, and no more memory is allocated than an object may have."""
    assert LogObject.decode(forged([[7, 5, len(FRAME)]], FRAME), 6).pieces == [(7, b"bytes")]
    with pytest.raises(CorruptLogError, match="the head of the object cannot be read"):
        LogObject.decode(forged(pieces, frames), 6)


def test_what_repeats_itself_is_small():
    """The log is compressed in the store."""
    one = dataclasses.replace(FULL, pieces=[(0, b"the same again. " * 10_000)])
    assert len(one.encode()) < 2000


def test_an_object_under_another_name():
    """An object under another name is refused."""
    with pytest.raises(CorruptLogError, match="number 5"):
        LogObject.decode(FULL.encode(), 6)


def test_names():
    """Names sort as their numbers do; each manifest copy has another name."""
    assert sorted(map(log_name, [10, 9, 100])) == [log_name(9), log_name(10), log_name(100)]
    names = [manifest_name(12, 3) for _ in range(2)]
    assert names[0] != names[1]
    assert [manifest_sequence(name) for name in (*names, "manifest/x", log_name(1))] == [12, 12, None, None]
