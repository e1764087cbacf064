"""Blocks and their chunks agree with a field-by-field reading of the same bytes; broken heads are refused."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.blocks import (
    FIRST_COLUMN_CHUNK,
    LIGHT_BYTES,
    NODE_BYTES,
    Chunks,
    packs_of,
    shapes_of,
    without_values,
)
from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.frame import decode_block, encode_block
from esformat.format.layout import MAX_BLOCK_ROWS, BlockKind
from esformat.format.packing import decode_many, encode_ints

PLAIN = Decompressor()


def chunks_of(chunks: list[bytes], rows: int = 1, base: int = 0, runs: int = 1, lengths: list[int] | None = None):
    """Return an open data block with these column chunks, and empty chunks of keys and timestamps."""
    sizes = [0, 0, *(map(len, chunks) if lengths is None else lengths)]
    head = struct.pack(f"<qII{len(sizes)}I", base, runs, len(sizes), *sizes)
    stored = encode_block(BlockKind.DATA, head + b"".join(chunks), count=rows, dictionary=3)
    return Chunks(decode_block(stored, BlockKind.DATA, None, 64), len(sizes) - 2)


@examples(100)
@given(
    st.lists(st.binary(max_size=9), max_size=6),
    st.integers(1, MAX_BLOCK_ROWS),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, (1 << 32) - 1),
)
def test_where_chunks_lie(chunks, rows, base, runs):
    """Each chunk has the bytes between two edges; the other fields of the head are read, too."""
    block = chunks_of(chunks, rows, base, runs)
    assert [bytes(block.body[a:b]) for a, b in pairwise(block.chunks)] == [b"", b"", *chunks]
    assert (block.row_count, block.base, block.run_count, block.dictionary, block.offset) == (rows, base, runs, 3, 64)


def test_a_block_of_its_own():
    """A detached body is a copy of its own bytes."""
    block = chunks_of([b"abc"])
    read = block.body.obj
    block.detach()
    assert block.body.obj is not read
    assert bytes(block.body[block.chunks[2] :]) == b"abc"


@pytest.mark.parametrize("lengths", [[3, 5], [2, 4], [(1 << 32) - 1, 9]])
def test_lengths_that_do_not_fit(lengths):
    """Chunk lengths that add up to fewer or more bytes than the body are refused."""
    with pytest.raises(CorruptSegmentError, match="does not fit its body") as refused:
        chunks_of([b"abc", b"defg"], lengths=lengths)
    assert refused.value.offset == 64


@pytest.mark.parametrize("rows", [0, MAX_BLOCK_ROWS + 1])
def test_too_many_rows(rows):
    """A data block without rows, or with too many, is refused."""
    with pytest.raises(CorruptSegmentError, match="does not fit its body"):
        chunks_of([b"abc"], rows)


def test_another_number_of_chunks():
    """A head whose number of chunks differs from the schema, or that is cut short, is refused."""
    block = encode_block(BlockKind.DATA, struct.pack("<qIII", 0, 1, 1, 0), count=1)
    with pytest.raises(CorruptSegmentError, match="has 1 chunks, expected 2"):
        Chunks(decode_block(block, BlockKind.DATA, None, 64), 0)
    for body in (bytes(15), struct.pack("<qIII", 0, 1, 2, 0)):
        with pytest.raises(CorruptSegmentError, match="cut short"):
            Chunks(decode_block(encode_block(BlockKind.DATA, body, count=1), BlockKind.DATA, None, 64), 0)


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
