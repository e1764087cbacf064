"""A split-block Bloom filter over the spaces of a segment, stored in pages so that a test reads one page.

The filter and its constants are those of Parquet's bloom filters (apache/parquet-format, BloomFilter.md), over xxh3-64
of the key: buckets of eight 32-bit words, one bit set in each. It has no false negatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from esformat.core.keys import SALTS, add_to_filter
from esformat.errors import CorruptSegmentError
from esformat.format.checksum import checksum64
from esformat.format.frame import Block

BUCKET_BYTES = 32
BITS_PER_SPACE = 10  # false positives: about 1 in 100 absent spaces
PAGE_BUCKETS = 2048  # 64 KiB
PAGES_AT_ONCE = 256  # 16 MiB: memory does not grow with the number of spaces

U64 = npt.NDArray[np.uint64]


def bucket_count(space_count: int) -> int:
    """The number of buckets in the filter of a segment with this many spaces."""
    return max(1, -(-space_count * BITS_PER_SPACE // (8 * BUCKET_BYTES)))


def hash_keys(keys: Iterable[bytes]) -> U64:
    """The hashes from which the filter is built."""
    return np.fromiter(map(checksum64, keys), dtype=np.uint64)


def _bucket_of(hashed: int, buckets: int) -> int:
    return ((hashed >> 32) * buckets) >> 32


def build_filter(hashes: Iterable[U64], space_count: int) -> Iterator[bytes]:
    """Yield the filter's pages, the bodies of filter blocks.

    hashes: yields the hashes of all spaces in chunks. It is iterated over once for every PAGES_AT_ONCE pages.
    """
    buckets = bucket_count(space_count)
    step = PAGES_AT_ONCE * PAGE_BUCKETS
    for first in range(0, buckets, step):
        words = np.zeros(8 * min(step, buckets - first), np.uint32)
        for chunk in hashes:
            add_to_filter(words, chunk, buckets, first)
        for at in range(0, len(words), 8 * PAGE_BUCKETS):
            yield words[at : at + 8 * PAGE_BUCKETS].astype("<u4", copy=False).tobytes()


def page_of(hashed: int, buckets: int) -> int:
    """The number of the page that covers a key."""
    return _bucket_of(hashed, buckets) // PAGE_BUCKETS


def page_may_contain(block: Block, hashed: int, buckets: int) -> bool:
    """Whether the segment may contain a key, by its page. Raises CorruptSegmentError if the page is cut short."""
    at = _bucket_of(hashed, buckets) % PAGE_BUCKETS * BUCKET_BYTES
    if len(block.body) < at + BUCKET_BYTES:
        raise CorruptSegmentError("a filter page is cut short", offset=block.offset)
    words = np.frombuffer(block.body, "<u4", 8, at)
    low = hashed & 0xFFFF_FFFF
    return all(int(words[i]) >> (((low * salt) & 0xFFFF_FFFF) >> 27) & 1 for i, salt in enumerate(SALTS))
