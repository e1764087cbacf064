"""Check a secondary index against its column: values ascend, and every posting list matches the column exactly.

Memory hardly grows with the file. The pages are read twice. First, before the data blocks, for the first value of each
page and for the values with lists of blocks (at most as many as a block has rows on average). While the data blocks are
read, the column's contents are summed up: a fingerprint for each page, of the rows of its values, and one for each
value with a list of blocks. Afterwards the posting lists are read, one at a time, and summed up in the same way; the
sums must be equal.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esformat.errors import CorruptSegmentError
from esformat.format.frame import Block
from esformat.format.layout import MAX_PAGE_ENTRIES, BlockHandle, BlockKind
from esformat.format.node import DecodeContext
from esformat.format.postings import BLOCKS, CHUNKED
from esformat.tools.verification.blocks import BAD_BYTES, Blocks
from esformat.tools.verification.fingerprint import hash_pairs, hash_value, sum_of
from esformat.tools.verification.parts import Parts, check_range
from esformat.tools.verification.postings import numbers_of

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
_MASK = (1 << 64) - 1


@dataclass(slots=True)
class PageContents:
    """An index page: parallel lists of values, and of their numbers of events, forms and stored posting lists."""

    values: list[Any]
    events: list[int]
    forms: list[int]
    lists: list[memoryview]


def read_page(block: Block, kind: pa.DataType, context: DecodeContext) -> PageContents:
    """Decode an index page. Raises CorruptSegmentError."""
    count = check_range(1, block.count, MAX_PAGE_ENTRIES, "the number of values of an index page")
    parts = Parts(block.body, context)
    values = parts.values(count, kind).to_pylist()
    events = parts.counts(count, least=1).tolist()
    forms = parts.counts(count).tolist()
    lengths = parts.counts(count).tolist()
    if parts.at + sum(lengths) != len(block.body):
        raise CorruptSegmentError("the posting lists of an index page do not add up to its body")
    if max(forms) > BLOCKS | CHUNKED:
        raise CorruptSegmentError(f"a posting list has the unknown form {max(forms)}")
    if any(a >= b for a, b in pairwise(values)):
        raise CorruptSegmentError("the values of an index page do not ascend")
    lists = []
    at = parts.at
    for length in lengths:
        lists.append(block.body[at : at + length])
        at += length
    return PageContents(values, events, forms, lists)


@dataclass(slots=True)
class _Dense:
    """A value with a list of blocks: what its page states, and what the column contains."""

    stated_events: int
    events: int = 0
    blocks: int = 0  # fingerprint of the blocks that contain it


class IndexCheck:
    """Checks one index: `open`, then `add_column` or `lose` for every data block in file order, then `compare`."""

    def __init__(
        self, name: str, kind: pa.DataType, blocks: Blocks, context: DecodeContext, row_count: int, block_count: int
    ) -> None:
        """row_count, block_count: numbers of rows and data blocks of the file."""
        self.name = name
        self._kind = kind
        self._blocks = blocks
        self._context = context
        self._row_count, self._block_count = row_count, block_count
        self._offset = 0
        self._handles: list[BlockHandle] = []
        self._firsts: list[Any] = []
        self._sound: list[bool] = []
        self._dense: dict[Any, _Dense] = {}
        self._lost: list[tuple[int, int, int, int]] = []
        self.complete = True
        """Whether every page could be read."""
        self.value_count = 0
        self.event_count = 0

    # ------------------------------------------------------------ before the data blocks

    def open(self, root: Block) -> None:
        """Read the root and the values of all pages. Raises CorruptSegmentError if the root breaks the format."""
        self._offset = root.offset
        count = check_range(0, root.count, self._blocks.end, "the number of pages of an index")
        parts = Parts(root.body, self._context)
        firsts = parts.values(count, self._kind).to_pylist()
        counts = parts.counts(count, least=1).tolist()
        handles = parts.handles(count)
        parts.end()
        self._firsts, self._handles = firsts, handles
        last: list[Any] = []
        for first, value_count, handle in zip(firsts, counts, handles, strict=True):
            block = self._blocks.read(handle, BlockKind.INDEX)
            self._sound.append(block is not None)
            if block is None:
                continue
            try:
                last = self._open_page(block, first, value_count, last)
            except BAD_BYTES as error:
                self._sound[-1] = False
                self._blocks.lose(BlockKind.INDEX, error, handle.offset)
        self.complete = all(self._sound)
        self._page_sums = np.zeros(len(handles) + 1, dtype=np.uint64)  # slot 0: values below the first page
        self._page_events = np.zeros(len(handles) + 1, dtype=np.int64)

    def _open_page(self, block: Block, first: Any, value_count: int, last: list[Any]) -> list[Any]:
        """Check the values of a page, which must follow `last`. Returns its last value, in a list."""
        page = read_page(block, self._kind, self._context)
        if page.values[0] != first or len(page.values) != value_count or (last and page.values[0] <= last[0]):
            raise CorruptSegmentError(f"a page of index {self.name!r} does not match the root")
        for events, form in zip(page.events, page.forms, strict=True):
            if bool(form & BLOCKS) != (events >= self._block_count):
                raise CorruptSegmentError(f"a posting list of index {self.name!r} has the form for another density")
        self.value_count += len(page.values)
        self.event_count += sum(page.events)
        if self.event_count > self._row_count:
            raise CorruptSegmentError(f"index {self.name!r} has more events than the file")
        for value, events, form in zip(page.values, page.events, page.forms, strict=True):
            if form & BLOCKS:
                self._dense[value] = _Dense(events)
        return page.values[-1:]

    # ------------------------------------------------------------ for each data block

    def add_column(self, column: pa.Array, first_row: int, block: int) -> None:
        """Sum up the values of a data block. first_row: the number of its first row. block: its number in the file."""
        encoded = column.dictionary_encode()
        values = encoded.dictionary.to_pylist()
        if not values:
            return
        hashes = np.array([hash_value(value) for value in values], dtype=np.uint64)
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
        rows = np.nonzero(valid)[0]
        codes = encoded.indices.drop_null().to_numpy(zero_copy_only=False)
        counts = np.bincount(codes, minlength=len(values)).tolist()
        listed = np.ones(len(values), dtype=np.bool_)
        for place, value in enumerate(values):
            dense = self._dense.get(value)
            if dense is not None:
                listed[place] = False
                dense.events += counts[place]
                dense.blocks = (dense.blocks + sum_of(int(hashes[place]), np.array([block]))) & _MASK
        pages = np.array([bisect_right(self._firsts, value) for value in values])
        chosen = listed[codes]
        rows, codes = rows[chosen] + first_row, codes[chosen]
        np.add.at(self._page_sums, pages[codes], hash_pairs(hashes[codes], rows))
        np.add.at(self._page_events, pages[codes], 1)

    def lose(self, first_row: int, end_row: int, first_block: int, end_block: int) -> None:
        """Exclude rows [first_row, end_row), which are all rows of some data blocks whose column cannot be read."""
        self._lost.append((first_row, end_row, first_block, end_block))

    # ------------------------------------------------------------ after the data blocks

    def compare(self) -> None:
        """Read all posting lists, and report those that contradict the column."""
        if self._page_events[0]:
            self._blocks.findings.add(self._offset, f"index {self.name!r} lacks values that its column holds")
        self._lost.sort()
        for number, handle in enumerate(self._handles):
            block = self._blocks.read_again(handle, BlockKind.INDEX) if self._sound[number] else None
            if block is None:
                continue
            try:
                self._compare_page(read_page(block, self._kind, self._context), number, handle.offset)
            except BAD_BYTES as error:
                self._blocks.lose(BlockKind.INDEX, error, handle.offset)

    def _compare_page(self, page: PageContents, number: int, offset: int) -> None:
        """Compare one page. Raises CorruptSegmentError at the first wrong list."""
        total, whole = 0, True
        for value, events, form, stored in zip(page.values, page.events, page.forms, page.lists, strict=True):
            limit = self._block_count if form & BLOCKS else self._row_count
            count, found, readable = 0, 0, True
            for numbers in numbers_of(form, stored, self._blocks, self._context, limit):
                if numbers is None:
                    readable = False
                    continue
                count += len(numbers)
                kept = self._known(numbers, names_blocks=bool(form & BLOCKS))
                found = (found + sum_of(hash_value(value), kept)) & _MASK
            if not form & BLOCKS:
                total = (total + found) & _MASK
                whole = whole and readable
                if readable and count != events:
                    raise CorruptSegmentError(
                        f"index {self.name!r} lists {count} rows for {value!r}, but {events} events"
                    )
            elif readable:
                self._compare_dense(value, found)
        if whole and total != int(self._page_sums[number + 1]):
            values = f"{page.values[0]!r} to {page.values[-1]!r}"
            raise CorruptSegmentError(
                f"posting lists of index {self.name!r}, values {values}, contradict the column", offset=offset
            )

    def _compare_dense(self, value: Any, found: int) -> None:
        dense = self._dense[value]
        missing = dense.stated_events - dense.events
        if found != dense.blocks or missing < 0 or (missing and not self._lost):
            raise CorruptSegmentError(f"the posting list of {value!r} in index {self.name!r} contradicts the column")

    def _known(self, numbers: I64, *, names_blocks: bool) -> I64:
        """The numbers of those rows or blocks whose column was read."""
        if not self._lost:
            return numbers
        first, end = (2, 3) if names_blocks else (0, 1)
        starts = np.array([lost[first] for lost in self._lost])
        ends = np.array([lost[end] for lost in self._lost])
        place = np.searchsorted(starts, numbers, side="right") - 1
        known: I64 = numbers[(place < 0) | (numbers >= ends[place])]
        return known
