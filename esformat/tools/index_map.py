"""Derive a new segment's indexes from the originals' posting lists: numbers change, but hardly anything is decoded.

Lists of rows are renumbered. Lists of blocks are renumbered for the blocks that were copied. For the other blocks, and
if a value is too rare in the new segment for a list of blocks, the column is decoded to find the rows with the value.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esformat.format.data_block import I64
from esformat.format.postings import BLOCKS, ROWS, Posting
from esformat.read.blocks.index import Index
from esformat.tools.number_map import NumberMap
from esformat.tools.original import BlockRef, OpenOriginal, leaf_blocks, open_data_block
from esformat.write.index_builder import PostingList, blocks_of

VALUES_AT_ONCE = 256
SPILL_NUMBERS = 4 << 20
"""Maximum number of found numbers (32 MiB) kept in memory before they go to a temporary file."""
_ALL = 1 << 62  # more than any row or block number


@dataclass(frozen=True, slots=True)
class IndexSource:
    """An original with one of its indexes, and the new numbers of its rows and copied blocks."""

    original: OpenOriginal
    index: Index
    rows: NumberMap
    blocks: NumberMap


@dataclass(frozen=True, slots=True)
class _Part:
    """An original's share of a value: its events, and their new row numbers, or block numbers if rows are unknown."""

    value: Any
    count: int
    numbers: I64
    names_blocks: bool


def mapped_lists(
    sources: Sequence[IndexSource], kind: pa.DataType, block_starts: I64
) -> Iterator[tuple[pa.Array, list[PostingList]]]:
    """Values of the new index, ascending, with their posting lists. block_starts: first rows of the new blocks."""
    streams = [_parts(source, block_starts) for source in sources]
    ordered = streams[0] if len(streams) == 1 else heapq.merge(*streams, key=attrgetter("value"))
    values: list[Any] = []
    lists: list[PostingList] = []
    for value, members in groupby(ordered, key=attrgetter("value")):
        values.append(value)
        lists.append(_one_list(list(members), block_starts))
        if len(values) >= VALUES_AT_ONCE:
            yield pa.array(values, kind), lists
            values, lists = [], []
    yield pa.array(values, kind), lists


def _one_list(parts: list[_Part], block_starts: I64) -> PostingList:
    count = sum(part.count for part in parts)
    if count < len(block_starts):
        return count, ROWS, _union([part.numbers for part in parts])
    blocks = [part.numbers if part.names_blocks else blocks_of(part.numbers, block_starts) for part in parts]
    return count, BLOCKS, _union(blocks)


def _union(parts: list[I64]) -> I64:
    """The numbers of some parts, each of which ascends."""
    filled = [part for part in parts if len(part)]
    return filled[0] if len(filled) == 1 else np.unique(np.concatenate([np.zeros(0, np.int64), *filled]))


def _parts(source: IndexSource, block_starts: I64) -> Iterator[_Part]:
    """An original's shares, value by value."""
    common = _CommonValues(source, block_starts)
    reader, place = source.original.reader, source.index.place
    for number in range(len(reader.index_root(place).handles)):
        page = reader.index_page(place, number)
        lists = [_numbers(source.index, v, p) for v, p in zip(page.values, page.postings, strict=True)]
        rare = [numbers for numbers, p in zip(lists, page.postings, strict=True) if not p.names_blocks]
        new = source.rows.find(np.concatenate(rare)) if rare else np.zeros(0, dtype=np.int64)
        at = 0
        for value, posting, numbers in zip(page.values, page.postings, lists, strict=True):
            if posting.names_blocks:
                part = common.part(value, numbers)
            else:
                found = new[at : at + len(numbers)]
                at += len(numbers)
                found = found[found >= 0]
                part = _Part(value, len(found), found, names_blocks=False)
            if part.count:
                yield part


def _numbers(index: Index, value: Any, posting: Posting) -> I64:
    return index.numbers(value, posting, 0, _ALL)


class _CommonValues:
    """The values of an original's index with lists of blocks. Decodes the column where the lists do not suffice."""

    def __init__(self, source: IndexSource, block_starts: I64) -> None:
        self._source = source
        self._block_starts = block_starts
        found = [(v, p) for v, p in _all_postings(source) if p.names_blocks]
        self._codes = {value: code for code, (value, _) in enumerate(found)}
        self._stated = np.array([posting.count for _, posting in found], dtype=np.int64)
        self._removed = np.zeros(len(found), dtype=np.int64)
        removed_rows = source.original.row_count - source.rows.count
        self._surely_common = self._stated - removed_rows >= len(block_starts)
        self._found = _Found(max(source.original.row_count, 1 << 32))
        if found:
            self._decode(self._blocks_to_decode(found))

    def _blocks_to_decode(self, found: list[tuple[Any, Posting]]) -> npt.NDArray[np.bool_]:
        needed = np.zeros(self._source.original.block_count, dtype=np.bool_)
        needed[self._source.blocks.missing(len(needed))] = True
        for (value, posting), common in zip(found, self._surely_common.tolist(), strict=True):
            if not common:
                needed[_numbers(self._source.index, value, posting)] = True
        return needed

    def _decode(self, needed: npt.NDArray[np.bool_]) -> None:
        source = self._source
        original, place = source.original, source.index.place
        kind = source.index.type
        values = pa.array(list(self._codes), kind)
        copied = source.blocks.find(np.arange(len(needed))) >= 0
        for ref in _refs(original, needed):
            ((_, block),) = original.read([ref])
            column = open_data_block(original, ref, block).column(
                place, kind, original.contexts(block.dictionary)[place]
            )
            codes = pc.index_in(column, value_set=values, skip_nulls=True).fill_null(-1).to_numpy()
            rows = np.nonzero(codes >= 0)[0]
            self._add(codes[rows], source.rows.find(rows + ref.first_row), copied=bool(copied[ref.number]))

    def _add(self, codes: npt.NDArray[Any], rows: I64, *, copied: bool) -> None:
        removed = rows < 0
        if removed.any():
            self._removed += np.bincount(codes[removed], minlength=len(self._removed))
            codes, rows = codes[~removed], rows[~removed]
        common = self._surely_common[codes]
        self._found.add(codes[~common], rows[~common])
        if not copied:  # for a copied block, the list already says that it contains the value
            blocks = np.searchsorted(self._block_starts, rows[common], side="right") - 1
            self._found.add(codes[common], blocks)

    def part(self, value: Any, blocks: I64) -> _Part:
        """The original's share of one of these values. blocks: the value's list."""
        code = self._codes[value]
        count = int(self._stated[code] - self._removed[code])
        found = self._found.of(code)
        if not self._surely_common[code]:
            return _Part(value, count, found, names_blocks=False)
        new = self._source.blocks.find(blocks)
        return _Part(value, count, _union([new[new >= 0], found]), names_blocks=True)


def _refs(original: OpenOriginal, needed: npt.NDArray[np.bool_]) -> Iterator[BlockRef]:
    """The needed blocks; leaves without any of them are not read."""
    edges = original.reader.root.blocks
    for number in np.unique(np.searchsorted(edges, np.nonzero(needed)[0], side="right") - 1).tolist():
        yield from (ref for ref in leaf_blocks(original.reader.leaf(number)) if needed[ref.number])


def _all_postings(source: IndexSource) -> Iterable[tuple[Any, Posting]]:
    reader, place = source.original.reader, source.index.place
    for number in range(len(reader.index_root(place).handles)):
        page = reader.index_page(place, number)
        yield from zip(page.values, page.postings, strict=True)


class _Found:
    """Numbers by code, each once: sorted runs of code × span + number, in memory or in a temporary file."""

    def __init__(self, span: int) -> None:
        self._span = span
        self._held: list[I64] = []
        self._held_count = 0
        self._file: BinaryIO | None = None
        self._spill_lengths: list[int] = []
        self._spills: list[I64] | None = None

    def add(self, codes: npt.NDArray[Any], numbers: I64) -> None:
        """Add a number for each code."""
        if not len(codes):
            return
        self._held.append(np.unique(codes.astype(np.int64) * self._span + numbers))
        self._held_count += len(self._held[-1])
        if self._held_count >= SPILL_NUMBERS:
            self._file = self._file or tempfile.TemporaryFile(prefix="esformat-")  # noqa: SIM115 - closed with the object
            spill = np.unique(np.concatenate(self._held))
            self._file.write(spill.tobytes())
            self._spill_lengths.append(len(spill))
            self._held, self._held_count = [], 0

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def of(self, code: int) -> I64:
        """The numbers of a code, ascending."""
        if self._spills is None:
            self._spills = [*self._spilled(), _union(self._held)]
            self._held = []
        parts = []
        for spill in self._spills:
            a, b = np.searchsorted(spill, (code * self._span, (code + 1) * self._span)).tolist()
            parts.append(np.asarray(spill[a:b]))
        return _union(parts) - code * self._span

    def _spilled(self) -> Iterator[I64]:
        if self._file is None:
            return
        self._file.flush()
        whole = np.memmap(self._file, np.int64, "r")
        self._file.close()  # the mapping stays
        at = 0
        for length in self._spill_lengths:
            yield whole[at : at + length]
            at += length
