"""The space filter finds every space of the segment, and rarely reports another one as possible."""

from __future__ import annotations

import struct

import pytest
from effort import ALL, examples
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import Pieces, cut_small

import esformat
from esformat.core.keys import SALTS
from esformat.errors import CorruptSegmentError
from esformat.format import bloom_filter as space_filter
from esformat.format.bloom_filter import bucket_count, build_filter, hash_keys, page_may_contain, page_of
from esformat.format.checksum import checksum64
from esformat.format.frame import Block, decode_block
from esformat.format.layout import BlockKind
from esformat.write import space_hashes
from esformat.write.builder import encode_filter_page
from esformat.write.space_hashes import SpaceHashes


def pages_of(keys: list[bytes]) -> list[Block]:
    """The filter of some keys, as a reader has it."""
    return [
        decode_block(encode_filter_page(body), BlockKind.FILTER, None, 0)
        for body in build_filter([hash_keys(keys)], len(keys))
    ]


def may_contain(pages: list[Block], key: bytes, count: int) -> bool:
    """Whether the filter may contain a key."""
    hashed, buckets = checksum64(key), bucket_count(count)
    return page_may_contain(pages[page_of(hashed, buckets)], hashed, buckets)


@examples(100)
@given(st.sets(st.binary(max_size=8), max_size=60), st.sampled_from([1, 2, 2048]))
def test_no_false_negatives(keys, page_buckets):
    """Every key of the filter is found, whatever its division into pages."""
    with cut_small(Pieces(filter_page_buckets=page_buckets)):
        pages = pages_of(sorted(keys))
        assert all(may_contain(pages, key, len(keys)) for key in keys)


@pytest.mark.parametrize("count", [1, 1000, 60_000])
def test_false_positives_are_about_one_in_a_hundred(count):
    """At ten bits per space about 1 % of absent keys are reported as possible; 60,000 spaces take two pages."""
    keys = [b"space-%d" % n for n in range(count)]
    pages = pages_of(keys)
    assert len(pages) == (2 if count == 60_000 else 1)
    assert all(may_contain(pages, key, count) for key in keys)
    others = 20_000 if ALL else 5_000
    wrong = sum(may_contain(pages, b"absent-%d" % n, count) for n in range(others))
    assert wrong < 0.02 * others
    if count > 1:
        assert wrong > 0.001 * others  # no false positives at all would hint at a mistake


def test_bits_of_one_key():
    """A key sets one bit in each word of one 32-byte bucket, as section 13 of the spec says."""
    hashed = checksum64(b"customer-1")
    (page,) = build_filter([hash_keys([b"customer-1"])], 1)
    words = [1 << (((hashed & 0xFFFFFFFF) * salt & 0xFFFFFFFF) >> 27) for salt in SALTS]
    assert page == struct.pack("<8I", *words)


@pytest.mark.parametrize(("spaces", "buckets"), [(0, 1), (1, 1), (25, 1), (26, 2), (1000, 40), (10**7, 390_625)])
def test_buckets(spaces, buckets):
    """The number of buckets has ten bits for each space, rounded up."""
    assert bucket_count(spaces) == buckets


def test_empty_filter_denies_everything():
    """The filter of a segment without spaces contains no key."""
    assert not any(may_contain(pages_of([]), b"%d" % n, 0) for n in range(100))


def test_filter_page_cut_short():
    """A page that ends before its bucket is refused."""
    hashed = checksum64(b"a")
    short = decode_block(encode_filter_page(bytes(31)), BlockKind.FILTER, None, 0)
    with pytest.raises(CorruptSegmentError, match="filter page is cut short"):
        page_may_contain(short, hashed, 1)


def test_may_contain_of_a_segment(write):
    """`may_contain` reads the filter once and not the directory. Text and bytes are the same key."""
    segment = write([(f"space-{n}", b"", n) for n in range(300)])
    counted = esformat.CountingSource(esformat.FileSource(segment.path))
    with esformat.open(counted) as same:
        before = counted.reads
        assert all(same.may_contain(f"space-{n}") for n in range(300))
        assert same.may_contain(b"space-7")
        assert counted.reads - before <= 301
        assert sum(same.may_contain(f"absent-{n}") for n in range(1000)) < 50


@pytest.mark.parametrize("pages_at_once", [1, 2, 100])
@pytest.mark.parametrize("most_held", [1, 700, 10_000])
def test_filters_of_any_size(tmp_path, monkeypatch, pages_at_once, most_held):
    """The filter does not depend on the number of pages made at a time, nor on hashes in memory or a temporary file."""
    keys = [f"customer-{n}".encode() for n in range(3000)]
    with cut_small(Pieces(filter_page_buckets=30)):
        whole = list(build_filter([hash_keys(keys)], len(keys)))
        assert len(whole) == 4
        monkeypatch.setattr(space_filter, "PAGES_AT_ONCE", pages_at_once)
        monkeypatch.setattr(space_hashes, "MOST_HELD", most_held)
        hashes = SpaceHashes(tmp_path)
        for first in range(0, 3000, 500):
            hashes.add(hash_keys(keys[first : first + 500]))
        assert list(build_filter(hashes, hashes.count)) == whole
        hashes.close()
    assert list(tmp_path.iterdir()) == []
