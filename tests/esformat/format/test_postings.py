"""Posting lists: the form that fits, lists of any length, pages and root; invalid bytes are refused."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from damage import assert_refused_or_read
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.frame import decode_block, encode_block
from esformat.format.layout import BlockHandle, BlockKind
from esformat.format.node import DecodeContext, EncodeContext
from esformat.format.packing import encode_ints
from esformat.format.postings import (
    BLOCKS,
    CHUNKED,
    ROWS,
    Chunk,
    IndexRoot,
    Page,
    PageEntry,
    Posting,
    choose_postings,
    decode_chunk,
    decode_chunk_table,
    encode_chunk,
    encode_chunk_table,
    encode_index_root,
    encode_page,
    value_counts,
)

PLAIN = Decompressor()
TEXT = pa.string()
READ = DecodeContext(PLAIN, PLAIN)
WRITE = EncodeContext(make_compressor(Codec.ZSTD), make_compressor(Codec.ZSTD))


@examples(150)
@given(st.lists(st.integers(-1, 6), max_size=80), st.sets(st.integers(1, 79), max_size=12))
def test_lists_of_every_value(codes, edges):
    """A value that averages at least one event per block lists blocks, a rarer one rows; nulls are in no list."""
    starts = sorted({0, *(edge for edge in edges if edge < len(codes))}) if codes else []
    array = np.array(codes, np.int64)
    found = list(choose_postings(array, value_counts(array, 8), np.array(starts, np.int64)))
    expected = []
    for value in range(8):
        rows = [row for row, code in enumerate(codes) if code == value]
        if not rows:
            continue
        blocks = sorted({sum(start <= row for start in starts) - 1 for row in rows})
        dense = len(rows) >= len(starts)
        expected.append((len(rows), BLOCKS if dense else ROWS, blocks if dense else rows))
    assert [(count, form, numbers.tolist()) for count, form, numbers in found] == expected


@examples(80)
@given(st.sets(st.integers(0, 2**61), min_size=1, max_size=50).map(sorted))
def test_list_comes_back(numbers):
    """Ascending numbers are read back from the first number and the differences."""
    stored = encode_chunk(np.array(numbers, np.int64), WRITE)
    assert decode_chunk(memoryview(stored), READ).tolist() == numbers


def listed(count: int, first: int, steps: list[int]) -> bytes:
    """A handmade list."""
    return struct.pack("<IQ", count, first) + encode_ints(np.array(steps, np.int64), WRITE.plain)


WRONG_LISTS = [
    ("cut short", bytes(11), "cut short"),
    ("no numbers", listed(0, 5, []), "0 postings is out of bounds"),
    ("more than a list holds", listed(4097, 0, [1] * 4096), "4097 postings is out of bounds"),
    ("numbers beyond any file", listed(1, 2**62, []), "out of bounds"),
    ("the same number twice", listed(3, 5, [1, 0]), "do not ascend"),
    ("descending numbers", listed(3, 5, [2, -1]), "do not ascend"),
    ("more bytes than the list", listed(1, 5, []) + b"\0", "do not ascend"),
]


@pytest.mark.parametrize(("stored", "message"), [c[1:] for c in WRONG_LISTS], ids=[c[0] for c in WRONG_LISTS])
def test_lists_that_no_writer_makes(stored, message):
    """A list that no writer makes is refused; the error names the fault."""
    with pytest.raises(CorruptSegmentError, match=message):
        decode_chunk(memoryview(stored), READ)


CHUNKS = [
    Chunk(0, BlockHandle(100, 200, 7)),
    Chunk(4096, BlockHandle(300, 150, 8)),
    Chunk(9000, BlockHandle(450, 60, 9)),
]


def test_chunk_table_comes_back():
    """The first number and position of each chunk are read back."""
    assert decode_chunk_table(memoryview(encode_chunk_table(CHUNKS, WRITE)), READ) == CHUNKS


def test_damaged_lists():
    """Lists and chunk tables that are cut or flipped are refused or read as others."""
    stored = encode_chunk(np.array([1, 5, 6, 300, 70000]), WRITE)
    assert_refused_or_read(stored, lambda damaged: decode_chunk(memoryview(damaged), READ))
    table = encode_chunk_table(CHUNKS, WRITE)
    assert_refused_or_read(table, lambda damaged: decode_chunk_table(memoryview(damaged), READ))


def page_of(stored: bytes, kind: pa.DataType = TEXT) -> Page:
    """A stored page as a reader opens it."""
    return Page(decode_block(stored, BlockKind.INDEX, None, 0), kind, READ)


POSTINGS = [Posting(3, ROWS, b"one"), Posting(70000, BLOCKS | CHUNKED, b""), Posting(1, BLOCKS, b"three")]
VALUES = [
    pa.array(["", "page", "é"]),
    pa.array([-(2**63), 0, 2**63 - 1]),
    pa.array([0, 5, 2**64 - 1], pa.uint64()),
    pa.array(["a", "b", "c"], pa.large_string()),
]


@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.type))
def test_page_comes_back(values):
    """Values and their lists are read back."""
    page = page_of(encode_page(values, POSTINGS, WRITE), values.type)
    assert page.values == values.to_pylist()
    assert [(p.count, p.form, bytes(p.stored)) for p in page.postings] == [
        (p.count, p.form, p.stored) for p in POSTINGS
    ]
    assert [posting.names_blocks for posting in page.postings] == [False, True, True]


def test_index_root_comes_back():
    """Each page's first value, number of values and position are read back."""
    entries = [PageEntry(256, BlockHandle(16, 100, 1)), PageEntry(3, BlockHandle(116, 50, 2))]
    block = decode_block(encode_index_root(pa.array(["a", "x"]), entries, WRITE), BlockKind.INDEX_ROOT, None, 0)
    root = IndexRoot(block, pa.string(), READ)
    assert (root.firsts, root.handles, root.value_count) == (["a", "x"], [entry.handle for entry in entries], 259)


def test_root_of_an_index_without_values():
    """The root of an index without values has no pages."""
    block = decode_block(encode_index_root(pa.array([], pa.int8()), [], WRITE), BlockKind.INDEX_ROOT, None, 0)
    root = IndexRoot(block, pa.int8(), READ)
    assert (root.firsts, root.handles, root.value_count) == ([], [], 0)


def test_damaged_pages_and_roots():
    """Damage beneath a valid checksum is refused or yields another page, never another error."""
    page = bytes(decode_block(encode_page(pa.array(["a", "b", "c"]), POSTINGS, WRITE), BlockKind.INDEX, None, 0).body)
    assert_refused_or_read(page, lambda damaged: page_of(encode_block(BlockKind.INDEX, damaged, count=3)))
    for count in (0, 2, 4, 2**32 - 1):
        with pytest.raises(CorruptSegmentError):
            page_of(encode_block(BlockKind.INDEX, page, count=count))
    entries = [PageEntry(2, BlockHandle(16, 100, 1)), PageEntry(3, BlockHandle(116, 50, 2))]
    stored = encode_index_root(pa.array(["a", "x"]), entries, WRITE)
    root = bytes(decode_block(stored, BlockKind.INDEX_ROOT, None, 0).body)

    def read(damaged: bytes, count: int = 2) -> IndexRoot:
        again = encode_block(BlockKind.INDEX_ROOT, damaged, count=count)
        return IndexRoot(decode_block(again, BlockKind.INDEX_ROOT, None, 0), pa.string(), READ)

    assert_refused_or_read(root, read)
    for count in (0, 1, 3, 2**32 - 1):
        with pytest.raises(CorruptSegmentError):
            read(root, count)


WRONG_PAGES = [
    ("null among the values", pa.array(["a", None, "c"]), POSTINGS),
    ("value without events", pa.array(["a", "b", "c"]), [Posting(0, ROWS, b""), *POSTINGS[1:]]),
    ("unknown form", pa.array(["a", "b", "c"]), [Posting(1, 4, b""), *POSTINGS[1:]]),
]


@pytest.mark.parametrize(("values", "postings"), [c[1:] for c in WRONG_PAGES], ids=[c[0] for c in WRONG_PAGES])
def test_pages_that_no_writer_makes(values, postings):
    """A page whose parts disagree is refused."""
    with pytest.raises(CorruptSegmentError):
        page_of(encode_page(values, postings, WRITE))
