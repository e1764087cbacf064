"""Blocks and their chunks agree with a field-by-field reading of the same bytes; broken heads are refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from data_blocks import data_block
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.blocks import (
    FIRST_COLUMN_CHUNK,
    LIGHT_BYTES,
    NODE_BYTES,
    Chunks,
    open_block,
    packs_of,
    shapes_of,
    without_values,
)
from esformat.errors import ChecksumMismatchError, CorruptSegmentError
from esformat.format.checksum import checksum64
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.frame import decode_block, encode_block
from esformat.format.layout import MAX_BLOCK_ROWS, BlockKind
from esformat.format.packing import decode_many, encode_ints

PLAIN = Decompressor()


def chunks_of(chunks: list[bytes], rows: int = 1, base: int = 0, runs: int = 1, places=None, wanted=None):
    """Return an open data block with these column chunks, and empty chunks of keys and timestamps."""
    stored = data_block([b"", b"", *chunks], base=base, runs=runs, rows=rows, dictionary=3, places=places)
    return Chunks(open_block(stored, checksum64, BlockKind.DATA, None, 64), len(chunks), wanted)


@examples(100)
@given(
    st.lists(st.binary(max_size=9), max_size=6),
    st.integers(1, MAX_BLOCK_ROWS),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, (1 << 32) - 1),
)
def test_where_chunks_lie(chunks, rows, base, runs):
    """Each chunk has the bytes from its start to its end; the other fields of the head are read, too."""
    block = chunks_of(chunks, rows, base, runs)
    numbers = range(2 + len(chunks))
    assert [bytes(block.body[block.start_of(n) : block.end_of(n)]) for n in numbers] == [b"", b"", *chunks]
    assert [block.size_of(n) for n in numbers] == [0, 0, *map(len, chunks)]
    assert (block.row_count, block.base, block.run_count, block.dictionary, block.offset) == (rows, base, runs, 3, 64)


def test_a_block_of_its_own():
    """A detached body is a copy of its own bytes."""
    block = chunks_of([b"abc"])
    read = block.body.obj
    block.detach()
    assert block.body.obj is not read
    assert bytes(block.body[block.start_of(2) :]) == b"abc"


MOST = (1 << 32) - 1


@pytest.mark.parametrize("place", [(0, 8), (7, 1), (MOST, 0), (MOST, MOST), (1, MOST)])
def test_chunks_beyond_the_block(place):
    """A chunk that ends after the block is refused."""
    with pytest.raises(CorruptSegmentError, match="does not fit its body") as refused:
        chunks_of([b"abc", b"defg"], places=[(0, 0), (0, 0), (0, 3), place])
    assert refused.value.offset == 64


@pytest.mark.parametrize("places", [[(0, 3), (3, 3)], [(0, 2), (3, 4)], [(0, 4), (3, 4)], [(1, 2), (3, 4)]])
def test_chunks_with_gaps(places):
    """Chunks that leave gaps or overlap are refused by programs that check a whole block."""
    stored = data_block([b"", b"", b"abc", b"defg"], places=[(0, 0), (0, 0), *places])
    with pytest.raises(CorruptSegmentError, match=r"gaps, or overlap|add up"):
        decode_block(stored, BlockKind.DATA, None, 64)


def test_chunks_in_any_order():
    """Chunks may be stored in any order."""
    block = chunks_of([b"abc", b"defg"], places=[(0, 0), (7, 0), (3, 4), (0, 3)])
    assert [bytes(block.body[block.start_of(n) : block.end_of(n)]) for n in (2, 3)] == [b"defg", b"abc"]


@examples(100)
@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=6), st.data())
def test_some_chunks(chunks, data):
    """Only wanted chunks are verified and may be used, and damage to the others is not noticed; with fewer bytes of
    the block than they need, the block is cut.
    """
    stored = bytearray(data_block([b"", b"", *chunks]))
    wanted = data.draw(st.sets(st.integers(0, 1 + len(chunks))))
    damaged = data.draw(st.integers(0, len(chunks) - 1))
    first = len(stored) - sum(map(len, chunks))
    stored[first + sum(map(len, chunks[:damaged]))] ^= 1
    whole = open_block(bytes(stored), checksum64, BlockKind.DATA, None, 0)
    if FIRST_COLUMN_CHUNK + damaged in wanted:
        with pytest.raises(ChecksumMismatchError, match=f"chunk {FIRST_COLUMN_CHUNK + damaged} of a data block"):
            Chunks(whole, len(chunks), sorted(wanted))
        return
    block = Chunks(whole, len(chunks), sorted(wanted))
    assert not block.is_cut
    for number in range(2 + len(chunks)):
        if number not in wanted:
            with pytest.raises(LookupError, match="not requested"):
                block.start_of(number)
            continue
        found = bytes(block.body[block.start_of(number) : block.end_of(number)])
        assert found == (chunks[number - FIRST_COLUMN_CHUNK] if number >= FIRST_COLUMN_CHUNK else b"")
    given_bytes = data.draw(st.integers(first, len(stored)))
    part = open_block(bytes(stored[:given_bytes]), checksum64, BlockKind.DATA, None, 0, len(stored))
    assert Chunks(part, len(chunks), sorted(wanted)).is_cut == (block.stored_up_to(wanted) > given_bytes)


def test_beginnings_of_blocks():
    """Fewer bytes than the head of a data block, more than the block, and a part of another block are refused."""
    stored = data_block([b"keys", b"times", b"abc"])
    assert not Chunks(open_block(stored, checksum64, BlockKind.DATA, None, 0, len(stored)), 1).is_cut
    for size in range(len(stored) - 12):
        with pytest.raises(CorruptSegmentError, match="cut short"):
            open_block(stored[:size], checksum64, BlockKind.DATA, None, 0, len(stored))
    for size in (len(stored) - 1, len(stored) + 1, 0, 1 << 40):
        with pytest.raises(CorruptSegmentError, match=r"cut short|header"):
            open_block(stored, checksum64, BlockKind.DATA, None, 0, size)
    other = encode_block(BlockKind.INDEX, bytes(40))
    with pytest.raises(CorruptSegmentError, match="cut short"):
        open_block(other[:-1], checksum64, BlockKind.INDEX, None, 0, len(other))
    for count in (MOST, MOST // 16, 4, 2):  # chunks
        with pytest.raises(CorruptSegmentError, match=r"cut short|checksum is"):
            open_block(stored[:28] + struct.pack("<I", count) + stored[32:], checksum64, BlockKind.DATA, None, 0)


@pytest.mark.parametrize("rows", [0, MAX_BLOCK_ROWS + 1])
def test_too_many_rows(rows):
    """A data block without rows, or with too many, is refused."""
    with pytest.raises(CorruptSegmentError, match="does not fit its body"):
        chunks_of([b"abc"], rows)


def test_another_number_of_chunks():
    """A head whose number of chunks differs from the schema, or that is cut short, is refused."""
    for count in (0, 1, 3):
        block = open_block(data_block([b""] * count), checksum64, BlockKind.DATA, None, 64)
        with pytest.raises(CorruptSegmentError, match=f"has {count} chunks, expected 2"):
            Chunks(block, 0)
    for body in (bytes(15), struct.pack("<qII", 0, 1, 2)):
        with pytest.raises(CorruptSegmentError, match="cut short"):
            open_block(encode_block(BlockKind.DATA, body, count=1), checksum64, BlockKind.DATA, None, 64)


nodes = st.tuples(st.integers(0, 255), st.integers(0, 3))


@examples(100)
@given(
    st.lists(
        st.tuples(nodes, st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=9)),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(list(Codec)),
)
def test_heads_of_several_blocks(blocks, codec):
    """The shapes of nodes and the packs after them are read from all blocks."""
    compressor = make_compressor(codec)
    opened = [
        chunks_of([struct.pack("<BBH", *node, 0) + encode_ints(np.array(numbers), compressor)], len(numbers))
        for node, numbers in blocks
    ]
    shapes, with_nulls = shapes_of(opened, FIRST_COLUMN_CHUNK)
    assert shapes == {shape for (shape, _), _ in blocks}
    assert bool(with_nulls) == any(flags & 1 for (_, flags), _ in blocks)
    assert decode_many(packs_of(opened, FIRST_COLUMN_CHUNK, NODE_BYTES), PLAIN).tolist() == [
        n for _, some in blocks for n in some
    ]


def test_broken_nodes():
    """Unknown flags, a head that is cut short and a missing chunk are refused."""
    with pytest.raises(CorruptSegmentError, match="unknown flags 0x4"):
        shapes_of([chunks_of([b"\x01\x04\x00\x00"])], 2)
    with pytest.raises(CorruptSegmentError, match="cut short"):
        shapes_of([chunks_of([b"\x01\x00\x00"])], 2)
    with pytest.raises(CorruptSegmentError, match="packed numbers"):
        packs_of([chunks_of([b"\x01"])], 2, 4)
    for chunk in (-1, 3, 1 << 40):
        with pytest.raises(IndexError):
            shapes_of([chunks_of([b"\x01\x00\x00\x00"])], chunk)


@examples(100)
@given(st.lists(st.tuples(st.sampled_from([1, 3, 4, 8]), st.sampled_from([4, 40, LIGHT_BYTES + 1])), max_size=5))
def test_light_pieces(columns):
    """Codes, and short chunks of numbers, are copied; other chunks are not."""
    stored = [bytes([shape, 0, 0, 0]) + bytes(size - 4) for shape, size in columns]
    block = chunks_of(stored)
    chunks = [FIRST_COLUMN_CHUNK + n for n in range(len(columns))]
    model = [
        piece if shape == 3 or (size <= LIGHT_BYTES and shape == 1) else None
        for piece, (shape, size) in zip(stored, columns, strict=True)
    ]
    assert block.light_pieces(chunks) == model
    assert block.light_pieces([99]) is block.light_pieces([])


@pytest.mark.parametrize("chunk", [b"", b"\1\0\0", b"\1\4\0\0"])
def test_pieces_that_are_no_nodes(chunk):
    """A head that is cut short, and unknown flags, are refused."""
    with pytest.raises(CorruptSegmentError, match="head of a column node"):
        chunks_of([chunk]).light_pieces([FIRST_COLUMN_CHUNK])
    for place in (-1, 3, 1 << 62):
        with pytest.raises(IndexError):
            chunks_of([b"\1\0\0\0"]).light_pieces([place])


@examples(100)
@given(
    st.lists(
        st.tuples(st.integers(0, 255), st.integers(0, 3), st.lists(st.integers(0, 1), min_size=1, max_size=9)),
        max_size=5,
    ),
    st.sampled_from(list(Codec)),
)
def test_blocks_without_values(blocks, codec):
    """A block has no values if it stores a validity without a 1; without a validity it has values."""
    compressor = make_compressor(codec)
    opened = [
        chunks_of([struct.pack("<BBH", shape, flags, 0) + encode_ints(np.array(valid), compressor)], len(valid))
        for shape, flags, valid in blocks
    ]
    model = [bool(flags & 1) and not any(valid) for _, flags, valid in blocks]
    assert list(without_values(opened, FIRST_COLUMN_CHUNK)) == model


def test_blocks_cut_short():
    """A block that ends before the head of the validity is not reported as without values."""
    for size in range(12):
        assert without_values([chunks_of([(b"\x05\x01\x00\x00" + bytes(8))[:size]])], 2) == b"\0", size
    assert without_values([chunks_of([b"\x05\x01\x00\x00" + bytes(8)])], 2) == b"\1"
    for chunk in (-1, 0, 1, 3, 1 << 40):
        with pytest.raises(IndexError):
            without_values([chunks_of([b"\x05\x01\x00\x00" + bytes(8)])], chunk)
    with pytest.raises(TypeError, match="missing"):
        without_values([None], 2)
