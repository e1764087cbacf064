"""Check the space filter: its pages, and that it rejects no space of the file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from esformat.core.keys import SALTS
from esformat.errors import CorruptSegmentError
from esformat.format.bloom_filter import BUCKET_BYTES, PAGE_BUCKETS, U64, bucket_count, hash_keys
from esformat.format.layout import BlockHandle, BlockKind
from esformat.tools.verification.blocks import Blocks

HASHES_AT_ONCE = 1 << 20
"""Number of spaces that are looked up together, so that each page is read once for all of them."""


class FilterCheck:
    """Checks the space filter: `add` all spaces, some at a time, then call `finish`."""

    def __init__(self, blocks: Blocks, handles: Sequence[BlockHandle]) -> None:
        """Read all pages for their sizes. handles: of the pages, in order."""
        self._blocks = blocks
        self._handles = handles
        self._hashes: list[U64] = []
        self._held = 0
        sizes: list[int] = []
        self._usable = bool(handles)
        for number, handle in enumerate(handles):
            block = blocks.read(handle, BlockKind.FILTER)
            if block is None:
                self._usable = False
                continue
            sizes.append(len(block.body) // BUCKET_BYTES)
            least = PAGE_BUCKETS if number < len(handles) - 1 else 1
            if len(block.body) % BUCKET_BYTES or not least <= sizes[-1] <= PAGE_BUCKETS:
                blocks.findings.add(handle.offset, f"a page of the space filter has {len(block.body)} bytes")
                self._usable = False
            if block.count:
                blocks.findings.add(handle.offset, f"a page of the space filter has a count of {block.count}")
        self._buckets = sum(sizes)

    def add(self, spaces: Sequence[bytes]) -> None:
        """Add some of the distinct spaces of the file."""
        if self._usable:
            self._hashes.append(hash_keys(spaces))
            self._held += len(spaces)
            if self._held >= HASHES_AT_ONCE:
                self._look_up()

    def finish(self, space_count: int | None) -> None:
        """Report problems. space_count: number of distinct spaces of the file; None if part of it is lost."""
        self._look_up()
        if self._usable and space_count is not None and self._buckets != bucket_count(space_count):
            expected = bucket_count(space_count)
            self._blocks.findings.add(
                self._handles[0].offset, f"the space filter has {self._buckets} buckets, expected {expected}"
            )

    def _look_up(self) -> None:
        hashes = np.concatenate([np.zeros(0, np.uint64), *self._hashes])
        self._hashes, self._held = [], 0
        buckets = (((hashes >> np.uint64(32)) * np.uint64(self._buckets)) >> np.uint64(32)).astype(np.int64)
        pages = buckets // PAGE_BUCKETS
        for page in np.unique(pages).tolist():
            handle = self._handles[page]
            block = self._blocks.read_again(handle, BlockKind.FILTER)
            if block is None:
                continue
            mine = pages == page
            words = np.frombuffer(block.body, "<u4").reshape(-1, len(SALTS))[buckets[mine] % PAGE_BUCKETS]
            low = hashes[mine].astype(np.uint32)[:, np.newaxis]
            wanted = np.uint32(1) << ((low * np.array(SALTS, dtype=np.uint32)) >> np.uint32(27))
            refused = int(((words & wanted) != wanted).any(axis=1).sum())
            if refused:
                error = CorruptSegmentError(f"the space filter rejects {refused} spaces that are in the file")
                self._blocks.lose(BlockKind.FILTER, error, handle.offset)
