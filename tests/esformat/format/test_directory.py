"""The directory: leaves and root are read back and locate each key and row; no damage makes them inconsistent."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from damage import assert_refused_or_read
from data_blocks import data_block
from effort import examples
from event_strategies import HIGHEST, LOWEST
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.leaves import BlockSlice, open_data_blocks, row_starts, run_starts
from esformat.core.roots import Root
from esformat.errors import CorruptSegmentError
from esformat.format.checksum import checksum64
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.data_block import DataBlock, Runs
from esformat.format.directory import (
    BlockSpan,
    Leaf,
    LeafEntry,
    block_handle,
    encode_leaf,
    encode_page,
    encode_root,
    entry_of_page,
    open_leaf,
    open_page,
    open_root,
    pages_of,
)
from esformat.format.encoding import encode_node
from esformat.format.frame import check_of, decode_block, encode_block
from esformat.format.layout import BlockHandle, BlockKind
from esformat.format.node import DecodeContext, EncodeContext
from esformat.format.packing import encode_planes

PLAIN = Decompressor()
READ = DecodeContext(PLAIN, PLAIN)
WRITE = EncodeContext(make_compressor(Codec.ZSTD), make_compressor(Codec.ZSTD))
CHECK = (1 << 32) - 1

moments = st.one_of(st.integers(-9, 9), st.integers(LOWEST, HIGHEST), st.sampled_from([LOWEST, HIGHEST]))
spans = st.tuples(moments, moments).map(sorted)


def runs_of(keys: list[tuple[bytes, bytes]], rows: list[int]) -> Runs:
    """Runs with these keys."""
    spaces, groupings = zip(*keys, strict=True)
    return Runs(pa.array(spaces, pa.binary()), pa.array(groupings, pa.binary()), np.array(rows, np.int64))


def leaf_of(stored: bytes, first_row: int = 0, first_block: int = 0, offset: int = 16) -> Leaf:
    """A stored leaf as a reader opens it."""
    return open_leaf(decode_block(stored, BlockKind.DIRECTORY, None, 99), first_row, first_block, offset, READ)


@examples(100)
@given(st.data())
def test_leaf_comes_back(data):
    """Keys, rows, blocks and time spans are read back; lookups agree with a search of the list."""
    key = st.binary(max_size=3)
    keys = sorted(data.draw(st.sets(st.tuples(key, key), min_size=1, max_size=20)))
    rows = data.draw(st.lists(st.integers(1, 9), min_size=len(keys), max_size=len(keys)))
    cuts = {0, sum(rows), *data.draw(st.lists(st.integers(0, sum(rows)), max_size=5))}
    edges = sorted(cuts)
    blocks = []
    for first, last in pairwise(edges):
        low, high = data.draw(spans)
        blocks.append(
            BlockSpan(last - first, data.draw(st.integers(24, 9999)), data.draw(st.integers(0, CHECK)), low, high)
        )
    leaf = leaf_of(encode_leaf(runs_of(keys, rows), blocks, WRITE), 1000, 50, 4096)

    assert list(zip(leaf.spaces, leaf.groupings, strict=True)) == keys
    assert leaf.has_groupings == any(grouping for _, grouping in keys)
    assert list(leaf.run_rows) == list(accumulate(rows, initial=1000))
    assert (leaf.first_row, leaf.last_row, leaf.first_block, leaf.block_count) == (
        1000,
        1000 + sum(rows),
        50,
        len(blocks),
    )
    assert list(leaf.block_rows) == [1000 + edge for edge in edges]
    assert list(zip(leaf.block_min, leaf.block_max, strict=True)) == [
        (b.min_timestamp, b.max_timestamp) for b in blocks
    ]
    offsets = list(accumulate((block.length for block in blocks), initial=4096))
    expected = [BlockHandle(at, b.length, b.check) for at, b in zip(offsets, blocks, strict=False)]
    assert [block_handle(leaf, number) for number in range(len(blocks))] == expected
    for space in {*leaf.spaces, b"", b"\xff\xff\xff\xff"}:
        first, last = leaf.runs_of(space)
        assert [n for n, (s, _) in enumerate(keys) if s == space] == list(range(first, last))
    for row in range(1000, leaf.last_row):
        assert leaf.block_of(row) == bisect_right(leaf.block_rows, row) - 1


def block_of(rows: int, base: int, runs: int = 1) -> bytes:
    """A stored data block of a schema without columns."""
    return data_block([b"keys", b"times"], rows=rows, base=base, runs=runs)


def leaf_of_blocks(stored: list[bytes], rows: list[int], bases: list[int]) -> Leaf:
    """A leaf of these blocks; the first is at byte 16."""
    spans = [
        BlockSpan(count, len(block), check_of(block), base, base)
        for block, count, base in zip(stored, rows, bases, strict=True)
    ]
    return leaf_of(encode_leaf(runs_of([(b"a", b"")], [sum(rows)]), spans, WRITE))


@examples(50)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(-9, 9), st.booleans()), min_size=1, max_size=6))
def test_data_blocks_of_slices(facts):
    """Each wanted block is the same as if opened alone, whichever blocks were read together."""
    rows, bases, wanted = zip(*facts, strict=True)
    stored = [block_of(count, base) for count, base in zip(rows, bases, strict=True)]
    leaf = leaf_of_blocks(stored, rows, bases)
    edges = leaf.block_rows
    parts = [BlockSlice(leaf, n, edges[n], edges[n + 1], None, -1) for n, want in enumerate(wanted) if want]
    read = memoryview(b"".join(stored))
    for opened, part in zip(open_data_blocks(parts, read, 16, checksum64, DataBlock, 0), parts, strict=True):
        alone = decode_block(stored[part.block], BlockKind.DATA, None, part.offset)
        assert (opened.row_count, opened.base, opened.offset) == (rows[part.block], bases[part.block], part.offset)
        assert opened.body == alone.chunks
        assert type(opened) is DataBlock


@pytest.mark.parametrize(
    ("rows", "base", "flipped", "error"),
    [
        (3, 5, None, "disagree about its rows"),
        (2, 4, None, "disagree about its time"),
        (2, 5, 20, "checksum is"),
        (2, 5, -1, "checksum of chunk 1 of"),
    ],
)
def test_a_data_block_that_its_leaf_does_not_describe(rows, base, flipped, error):
    """A block that its leaf does not describe is refused, alone and among others, with its position in the file."""
    good, bad = block_of(1, 0), bytearray(block_of(rows, base))
    leaf = leaf_of_blocks([good, bytes(bad)], [1, 2], [0, 5])
    if flipped is not None:
        bad[flipped] ^= 1
    parts = [BlockSlice(leaf, n, leaf.block_rows[n], leaf.block_rows[n + 1], None, -1) for n in (0, 1)]
    with pytest.raises(CorruptSegmentError, match=error) as refused:
        open_data_blocks(parts, memoryview(good + bad), 16, checksum64, DataBlock, 0)
    assert refused.value.offset == 16 + len(good)
    with pytest.raises(CorruptSegmentError, match=error):
        leaf.open_data_block(1, memoryview(bytes(bad)), checksum64, DataBlock, 0)


def test_another_data_block_with_a_right_checksum():
    """A valid block in the position of another is detected by the leaf's copy of the checksum."""
    block, other = block_of(2, 5), block_of(2, 5, runs=9)
    leaf = leaf_of_blocks([block], [2], [5])
    with pytest.raises(CorruptSegmentError, match="another block lies here"):
        leaf.open_data_block(0, memoryview(other), checksum64, DataBlock, 0)


@pytest.mark.parametrize("number", [-1, 1])
def test_a_block_that_a_leaf_does_not_have(number):
    """A block number out of range is a ValueError, whatever the bytes."""
    block = block_of(2, 5)
    with pytest.raises(ValueError, match="fewer blocks"):
        leaf_of_blocks([block], [2], [5]).open_data_block(number, memoryview(block), checksum64, DataBlock, 0)


def root_of(entries: list[LeafEntry], pages: list[Sequence[LeafEntry]] | None = None, name: str | None = None) -> Root:
    """The root of some leaves, or of pages of them, as a reader opens it; each page can be read once."""
    stored = [encode_page(page, WRITE) for page in pages or ()]
    named = [entry_of_page(page, BlockHandle(9 + n, 24, 0)) for n, page in enumerate(pages or ())]

    def read(places: Sequence[tuple[BlockHandle, int, int]]) -> list[Any]:
        found = []
        for handle, row, block in places:
            page = decode_block(stored[handle.offset - 9], BlockKind.DIRECTORY_PAGE, None, 9)
            stored[handle.offset - 9] = b""
            found.append(open_page(page, row, block, READ, name))
        return found

    top = encode_root(named or entries, len(entries), WRITE)
    return open_root(decode_block(top, BlockKind.DIRECTORY_ROOT, None, 77), READ, read, name)


@examples(100)
@given(st.data())
def test_root_comes_back(data):
    """Counts, positions and time spans are read back, and every space, row and block is found in the right leaves."""
    count = data.draw(st.integers(0, 12))
    firsts = sorted(data.draw(st.lists(st.binary(max_size=2), min_size=count, max_size=count)))
    numbers = st.integers(1, 2**20)
    entries = []
    for space in firsts:
        low, high = data.draw(spans)
        handle = BlockHandle(data.draw(numbers), 23 + data.draw(numbers), data.draw(st.integers(0, CHECK)))
        entries.append(LeafEntry(space, *data.draw(st.tuples(*[numbers] * 4)), handle, low, high))
    paged = count > 1 and data.draw(st.booleans())
    if paged and data.draw(st.booleans()):  # several pages, the first of which differ only in their numbers
        again = data.draw(st.integers(256, 600))
        alike = [replace(entries[0], handle=BlockHandle(16 + 30 * n, 30, n)) for n in range(again)]
        entries = [*alike, *entries[1:]]
        firsts, count = [entry.first_space for entry in entries], len(entries)
    pages = [entries[first : first + 256] for first in range(0, count, 256)] if paged else None
    if data.draw(st.booleans()):
        _check_leaves(root_of(entries, pages), entries)
    root = root_of(entries, pages)

    assert len(root) == count
    assert root.first_spaces == firsts
    assert list(root.rows) == list(accumulate((entry.rows for entry in entries), initial=0))
    assert list(root.blocks) == list(accumulate((entry.blocks for entry in entries), initial=0))
    for number in data.draw(st.permutations(range(count))):
        assert root.place(number) == (entries[number].handle, entries[number].data_offset)
    assert list(root.data_offsets) == [entry.data_offset for entry in entries]
    assert list(zip(root.min_timestamps, root.max_timestamps, strict=True)) == [
        (e.min_timestamp, e.max_timestamp) for e in entries
    ]
    _check_leaves(root, entries)


def _check_leaves(root: Root, entries: list[LeafEntry]) -> None:
    """Look up leaves in no particular order, as queries of spaces do."""
    firsts = [entry.first_space for entry in entries]
    for space in {*firsts, b"", b"a", b"\xff\xff\xff"}:
        before = [n for n, first in enumerate(firsts) if first < space]
        named = [n for n, first in enumerate(firsts) if first == space]
        assert list(root.leaves_of(space)) == [*before[-1:], *named]
        assert root.leaves_before(space) == len(before)
        assert root.has_pages_for(space)
    some = sorted({*firsts[::3], *firsts[1:2], b"", b"a", b"\xff\xff\xff"})
    assert root.leaves_of_each(some) == sorted({number for space in some for number in root.leaves_of(space)})
    rows = list(accumulate((entry.rows for entry in entries), initial=0))
    blocks = list(accumulate((entry.blocks for entry in entries), initial=0))
    assert (root.events, root.data_blocks) == (rows[-1], blocks[-1])
    for number in sorted(range(len(entries)), key=lambda n: n * 7919 % 1009):
        entry = entries[number]
        assert root.rows_of(number) == (rows[number], rows[number + 1])
        assert root.blocks_of(number) == (blocks[number], blocks[number + 1])
        assert root.times_of(number) == (entry.min_timestamp, entry.max_timestamp)
        assert root.first_space_of(number) == entry.first_space
        assert root.leaf_of_row(rows[number]) == root.leaf_of_row(rows[number + 1] - 1) == number
    assert (root.leaf_of_row(-1), root.leaf_of_row(rows[-1])) == (-1, len(entries))


LEAVES = [LeafEntry(b"%03d" % n, 2, 3, 1, 16 + 99 * n, BlockHandle(90 + 99 * n, 25, n), n, n + 5) for n in range(600)]


def test_pages_are_read_when_they_are_needed():
    """A page is read when first needed: one for a leaf, two for a space that may be in both, all for totals."""
    assert pages_of(LEAVES[:512]) == []
    assert [len(page) for page in pages_of(LEAVES)] == [256, 256, 88]
    root = root_of(LEAVES, pages_of(LEAVES))
    assert (len(root), root.page_count, root.has_pages_for(b"300")) == (600, 3, False)
    assert [root.first_space_of(leaf) for leaf in (0, 256, 512)] == [b"000", b"256", b"512"]
    assert not root.has_pages_for(b"300")
    assert root.leaves_of(b"300") == range(299, 301)
    assert (root.has_pages_for(b"300"), root.has_pages_for(b"512"), root.has_pages_for(b"513")) == (True, False, False)
    assert root.leaves_of(b"512") == range(511, 513)
    assert (root.has_pages_for(b"513"), root.has_pages_for(b"1"), root.has_pages_for(b"")) == (True, False, True)
    assert root.leaves_of(b"") == range(0)
    assert root.rows_of(599) == (1797, 1800)
    assert list(root.rows) == list(range(0, 1801, 3))
    assert [root.page_place(n)[1:] for n in range(3)] == [(0, 0), (768, 256), (1536, 512)]
    for number in (-1, 3):
        with pytest.raises(IndexError):
            root.page_place(number)
    with pytest.raises(IndexError):
        root_of(LEAVES[:2]).page_place(0)


@pytest.mark.parametrize("change", [
    {"first_space": b"255"}, {"rows": 4}, {"blocks": 2}, {"min_timestamp": 900}, {"handle": BlockHandle(0, 25, 1)},
])  # fmt: skip
def test_pages_that_the_root_does_not_describe(change):
    """A page must agree with the root, which has its first space, leaves, rows and blocks."""
    pages = pages_of(LEAVES)
    wrong = [*pages[:1], [replace(pages[1][0], **change), *pages[1][1:]], *pages[2:]]
    top = encode_root([entry_of_page(page, BlockHandle(9, 24, 0)) for page in pages], 600, WRITE)

    def read(places: Sequence[tuple[BlockHandle, int, int]]) -> list[Any]:
        ((_, row, block),) = places
        page = decode_block(encode_page(wrong[block // 256], WRITE), BlockKind.DIRECTORY_PAGE, None, 55)
        return [open_page(page, row, block, READ, "a file")]

    root = open_root(decode_block(top, BlockKind.DIRECTORY_ROOT, None, 77), READ, read, "a file")
    assert root.rows_of(0) == (0, 3)
    with pytest.raises(CorruptSegmentError) as caught:
        assert root.place(256) + root.times_of(256)
    assert (caught.value.offset, caught.value.path) == (55, "a file")


def test_other_pages_than_were_asked_for():
    """Too few pages from the reader are a ValueError, whatever the bytes."""
    top = encode_root([entry_of_page(page, BlockHandle(9, 24, 0)) for page in pages_of(LEAVES)], 600, WRITE)
    root = open_root(decode_block(top, BlockKind.DIRECTORY_ROOT, None, 77), READ, lambda _: [])
    with pytest.raises(ValueError, match="different pages"):
        root.rows_of(0)


@pytest.mark.parametrize(("pages", "leaves"), [(3, 512), (3, 769), (3, 2), (1, 257), (1, 0), (2, 1), (3, 1 << 31)])
def test_as_many_pages_as_leaves_take(pages, leaves):
    """A root names all its leaves, or exactly as many pages as they need."""
    with pytest.raises(CorruptSegmentError):
        open_root(decode_block(encode_root(LEAVES[:pages], leaves, WRITE), BlockKind.DIRECTORY_ROOT, None, 77), READ)


@examples(60)
@given(
    st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=1)), min_size=1, max_size=12, unique=True), st.data()
)
def test_first_and_later_looks_for_a_space_agree(keys, data):
    """The first lookup in a leaf finds the same runs as later ones, which use its list of keys."""
    keys = sorted(keys)
    spaces = [space for space, _ in keys]
    wanted = data.draw(st.sampled_from([*spaces, b"", b"\x80", b"\xff\xff\xff"]))
    stored = encode_leaf(runs_of(keys, [1] * len(keys)), [BlockSpan(len(keys), 100, 1, 0, 0)], WRITE)
    leaf = leaf_of(stored)
    expected = [run for run, space in enumerate(spaces) if space == wanted]
    for _ in range(4):
        assert list(range(*leaf.runs_of(wanted))) == expected


@examples(60)
@given(
    st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=1)), min_size=1, max_size=12, unique=True),
    st.sets(st.binary(max_size=2)).map(sorted),
    st.data(),
)
def test_runs_of_many_spaces(keys, others, data):
    """They are the runs of each, in order, without those of spaces that the leaf lacks."""
    keys = sorted(keys)
    wanted = sorted({*others, *data.draw(st.sets(st.sampled_from([space for space, _ in keys])))})
    stored = encode_leaf(runs_of(keys, [1] * len(keys)), [BlockSpan(len(keys), 100, 1, 0, 0)], WRITE)
    leaf = leaf_of(stored)
    each = [leaf.runs_of(space) for space in wanted]
    assert leaf.runs_of_each(wanted) == [(first, last) for first, last in each if first < last]


def test_runs_of_many_spaces_need_keys():
    """A leaf whose keys are not decoded refuses to look for spaces."""
    stored = encode_leaf(runs_of([(b"a", b"")], [1]), [BlockSpan(1, 100, 1, 0, 0)], WRITE)
    leaf = open_leaf(decode_block(stored, BlockKind.DIRECTORY, None, 99), 0, 0, 16, READ, keys=False)
    with pytest.raises(ValueError, match="not decoded"):
        leaf.runs_of_each([b"a"])


@examples(150)
@given(st.data())
def test_slices_of_blocks(data):
    """Slices contain the blocks that a check of every block selects: by number, by listed rows and by time."""
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=12))
    times = [data.draw(spans) for _ in sizes]
    blocks = [BlockSpan(rows, 30 + n, 7, *times[n]) for n, rows in enumerate(sizes)]
    leaf = leaf_of(encode_leaf(runs_of([(b"a", b"")], [sum(sizes)]), blocks, WRITE), 1000, 50, 4096)
    edges = list(accumulate(sizes, initial=1000))
    first = data.draw(st.integers(1000, edges[-1] - 1))
    last = data.draw(st.integers(first + 1, edges[-1]))
    wanted = data.draw(st.none() | st.sets(st.integers(40, 70)).map(sorted))
    listed = data.draw(st.none() | st.sets(st.integers(first - 3, last + 3)).map(sorted))
    start, end = (data.draw(st.none() | moments) for _ in range(2))

    expected = []
    for n, (low, high) in enumerate(times):
        a, b = max(first, edges[n]), min(last, edges[n + 1])
        rows = None if listed is None else [row for row in listed if a <= row < b]
        timely = (start is None or high >= start) and (end is None or low < end)
        if a < b and timely and rows != [] and (wanted is None or 50 + n in wanted):
            expected.append((n, 50 + n, a, b, rows, edges[n], max(0, first - edges[n])))
    arrays = (None if some is None else np.array(some, np.int64) for some in (wanted, listed))
    found = leaf.slices(first, last, first, *arrays, start, end)
    assert [
        (one.block, one.number, one.first, one.last, None if one.rows is None else one.rows.tolist(), one.origin,
         one.run_row)
        for one in found
    ] == expected  # fmt: skip
    for one in found:
        assert (one.block_rows, one.end - one.offset) == (sizes[one.block], 30 + one.block)
        assert [one.min_timestamp, one.max_timestamp] == list(times[one.block])


@examples(100)
@given(st.data())
def test_runs_in_blocks(data):
    """The starts of runs in blocks of two leaves, some left out, agree with a check of every row."""
    parts, facts, row, block = [], [], 10, 3
    for number in range(2):
        rows = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
        cuts = data.draw(st.sets(st.integers(1, sum(rows) - 1), max_size=6)) if sum(rows) > 1 else set()
        edges = [0, *sorted(cuts), sum(rows)]
        spans = [BlockSpan(b - a, 30, 7, 100 * number + n, 999) for n, (a, b) in enumerate(pairwise(edges))]
        keys = [(b"%d%02d" % (number, n), b"") for n in range(len(rows))]
        leaf = leaf_of(encode_leaf(runs_of(keys, rows), spans, WRITE), row, block)
        for part in leaf.slices(row, row + sum(rows), -1):
            if data.draw(st.booleans()):
                parts.append(part)
                facts += [(leaf.spaces[bisect_right(leaf.run_rows, r) - 1], part.number, part.min_timestamp)
                          for r in range(part.origin, part.origin + part.block_rows)]  # fmt: skip
        row, block = row + sum(rows), block + len(spans)

    starts, runs, bases = run_starts(parts)
    begins = [n for n, fact in enumerate(facts) if n == 0 or fact != facts[n - 1]]
    leaves = {part.leaf.first_row: part.leaf for part in parts}.values()
    spaces = [space for leaf in leaves for space in leaf.spaces]
    assert list(starts) == begins
    assert [(spaces[run], base) for run, base in zip(runs, bases, strict=True)] == [facts[n][::2] for n in begins]
    counts, firsts = row_starts(parts)
    assert list(counts) == [part.block_rows for part in parts]
    assert [*firsts, len(facts)] == list(accumulate(counts, initial=0))


@pytest.mark.parametrize(("first", "last"), [(9, 12), (12, 16), (12, 12), (14, 12)])
def test_slices_outside(first, last):
    """Slices of rows outside the leaf, and a block after its last, are refused."""
    leaf = leaf_of(encode_leaf(runs_of([(b"a", b"")], [5]), [BlockSpan(5, 30, 7, 0, 9)], WRITE), 10)
    with pytest.raises(ValueError, match="does not have the requested rows"):
        leaf.slices(first, last, -1)
    with pytest.raises(ValueError, match="fewer blocks"):
        BlockSlice(leaf, 1, 12, 13, None, -1)


KEYS = [(b"a", b""), (b"a", b"web"), (b"b", b"")]
BLOCKS = [BlockSpan(4, 100, 1, -5, 5), BlockSpan(3, 90, 2, 0, 70000)]
ENTRIES = [
    LeafEntry(b"a", 3, 7, 2, 16, BlockHandle(206, 80, 5), -5, 70000),
    LeafEntry(b"b", 1, 9, 1, 286, BlockHandle(386, 70, 6), 3, 4),
]


def entry_of(**facts: Any) -> LeafEntry:
    """A leaf's entry, valid apart from these changes."""
    return replace(ENTRIES[0], **facts)


def test_damaged_leaf():
    """Damage beneath a valid checksum is refused or yields another leaf, never another error."""
    stored = encode_leaf(runs_of(KEYS, [3, 2, 2]), BLOCKS, WRITE)
    body = bytes(decode_block(stored, BlockKind.DIRECTORY, None, 0).body)
    assert_refused_or_read(body, lambda damaged: leaf_of(encode_block(BlockKind.DIRECTORY, damaged, count=3)))
    for count in (0, 2, 4, 1 << 17, (1 << 32) - 1):
        with pytest.raises(CorruptSegmentError) as caught:
            leaf_of(encode_block(BlockKind.DIRECTORY, body, count=count))
        assert caught.value.offset == 99


def asked(root: Root) -> Root:
    """The root, after every value of it was read."""
    for number in range(len(root)):
        root.handle(number)
    assert len(root.data_offsets) == len(root.min_timestamps) == len(root.max_timestamps) == len(root)
    return root


def test_damaged_root():
    """The same is true of the root, including values that are read later."""
    body = bytes(decode_block(encode_root(ENTRIES, 2, WRITE), BlockKind.DIRECTORY_ROOT, None, 0).body)

    def read(damaged: bytes, count: int = 2) -> Root:
        stored = encode_block(BlockKind.DIRECTORY_ROOT, damaged, count=count)
        return asked(open_root(decode_block(stored, BlockKind.DIRECTORY_ROOT, None, 0), READ, lambda p: pages * len(p)))

    pages = [open_page(decode_block(encode_page(LEAVES[:256], WRITE), BlockKind.DIRECTORY_PAGE, None, 0), 0, 0, READ)]
    assert_refused_or_read(body, read)
    for count in (0, 1, 3, (1 << 32) - 1):
        with pytest.raises(CorruptSegmentError):
            read(body, count)


@pytest.mark.parametrize("number", [-1, 2])
def test_a_leaf_that_a_root_does_not_have(number):
    """A leaf number out of range is an IndexError, whatever the bytes."""
    root = open_root(decode_block(encode_root(ENTRIES, 2, WRITE), BlockKind.DIRECTORY_ROOT, None, 0), READ)
    with pytest.raises(IndexError):
        root.place(number)
    leaf = leaf_of(encode_leaf(runs_of(KEYS, [3, 2, 2]), BLOCKS, WRITE))
    with pytest.raises(IndexError):
        root.describes(number, leaf)


def test_a_root_whose_numbers_are_compressed():
    """A root with compressed numbers, which the format allows but our writer never makes, is read."""
    entries = [LeafEntry(b"%03d" % n, 1, 1, 1, 16 + n, BlockHandle(99 + n, 24, n), 0, 9) for n in range(300)]
    columns = [[getattr(entry, name) for entry in entries] for name in ("runs", "rows", "blocks", "data_offset")]
    columns += [list(column) for column in zip(*(entry.handle for entry in entries), strict=True)]
    columns += [[0] * 300, [9] * 300]
    packs = [encode_planes(np.array(column, np.int64), WRITE.plain) for column in columns]
    assert any(pack[3] == Codec.ZSTD for pack in packs)
    body = b"".join(
        [b"\x2c\1\0\0", encode_node(pa.array([e.first_space for e in entries], pa.binary()), WRITE), *packs]
    )
    stored = encode_block(BlockKind.DIRECTORY_ROOT, body, count=300)
    root = asked(open_root(decode_block(stored, BlockKind.DIRECTORY_ROOT, None, 0), READ))
    assert [root.place(n) for n in range(300)] == [(entry.handle, entry.data_offset) for entry in entries]
    assert list(root.data_offsets) == columns[3]


CONTRADICTIONS = [
    ("rows of runs and blocks differ", [3, 2, 3], BLOCKS),
    ("a run without rows", [7, 0, 0], BLOCKS),
    ("a block without rows", [3, 2, 2], [BlockSpan(7, 100, 1, 0, 0), BlockSpan(0, 90, 2, 0, 0)]),
    ("time runs backwards", [3, 2, 2], [BlockSpan(4, 100, 1, 5, -5), BLOCKS[1]]),
    ("a block shorter than its frame", [3, 2, 2], [BlockSpan(4, 23, 1, 0, 0), BLOCKS[1]]),
    ("a block longer than any", [3, 2, 2], [BlockSpan(4, 2**31, 1, 0, 0), BLOCKS[1]]),
    ("no blocks", [3, 2, 2], []),
    ("more blocks than a leaf covers", [100, 100, 57], [BlockSpan(1, 30, 0, 0, 0)] * 257),
]


@pytest.mark.parametrize(("rows", "blocks"), [c[1:] for c in CONTRADICTIONS], ids=[c[0] for c in CONTRADICTIONS])
def test_leaves_that_contradict_themselves(rows, blocks):
    """A leaf whose parts disagree is refused."""
    with pytest.raises(CorruptSegmentError):
        leaf_of(encode_leaf(runs_of(KEYS, rows), blocks, WRITE))


def test_runs_of_a_segment_cover_all_rows(write):
    """Over all leaves, the runs are those of the sorted events, each once, in order."""
    rows = [(f"s{n % 40:02}", b"", n, f"g{n % 3}") for n in range(500)]
    segment = write(rows)
    found = [(e.space, e.grouping) for e in segment.scan()]
    expected = sorted((space, grouping) for space, _, _, grouping in rows)
    assert found == expected
    assert segment.info()["groupings"] == len(list(groupby(expected)))


WRONG_ROOTS = [
    ("a leaf before the file", entry_of(data_offset=0), lambda root: root.handle(0)),
    ("a block before the file", entry_of(handle=BlockHandle(0, 80, 5)), lambda root: root.handle(0)),
    ("a leaf shorter than its frame", entry_of(handle=BlockHandle(206, 23, 5)), lambda root: root.place(0)),
    ("time runs backwards", entry_of(min_timestamp=6, max_timestamp=5), lambda root: root.max_timestamps),
    ("no rows", entry_of(rows=0), len),
    ("no blocks", entry_of(blocks=0), len),
]


@pytest.mark.parametrize(("entry", "ask"), [c[1:] for c in WRONG_ROOTS], ids=[c[0] for c in WRONG_ROOTS])
def test_roots_that_contradict_themselves(entry, ask):
    """A root that contradicts itself is refused with the position, even if a later query notices it."""
    with pytest.raises(CorruptSegmentError) as caught:
        ask(root_of([entry], name="a file"))
    assert (caught.value.offset in (77, 206), caught.value.path) == (True, "a file")
