"""A segment that a tool rewrites: its data blocks in order, copied unchanged or decoded.

There are two kinds: an open segment, whose directory describes each block, and (in `repair.py`) blocks saved from a
damaged file, which describe themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol, TypeVar

import numpy as np

from esformat.core.leaves import Leaf, open_data_blocks
from esformat.errors import CorruptSegmentError, EsdbError
from esformat.format.checksum import checksum64
from esformat.format.data_block import I64, DataBlock, Runs, keys_array
from esformat.format.dictionary import ColumnDictionary
from esformat.format.directory import BlockSpan, LeafEntry, block_handle
from esformat.format.frame import Block, decode_block
from esformat.format.layout import BlockHandle, BlockKind
from esformat.format.metadata import Metadata
from esformat.format.node import DecodeContext
from esformat.io.source import view_of
from esformat.read.blocks.index import Index
from esformat.read.blocks.reader import Reader
from esformat.tools.rows import Bound, Key, Rows, decode_rows

T = TypeVar("T")

READ_BYTES = 8 << 20
"""Adjacent blocks are read together, up to this many bytes."""


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A data block of an original: its place in the file, its number and first row, its runs and its times."""

    handle: BlockHandle
    number: int
    first_row: int
    rows: int
    runs: Runs
    min_timestamp: int
    max_timestamp: int

    @property
    def first_key(self) -> Key:
        """The key of its first row."""
        return self.runs.spaces[0].as_py(), self.runs.groupings[0].as_py()

    @property
    def last_key(self) -> Key:
        """The key of its last row."""
        return self.runs.spaces[-1].as_py(), self.runs.groupings[-1].as_py()

    @property
    def low(self) -> Bound:
        """A lower bound of the block's rows."""
        return (*self.first_key, self.min_timestamp)

    @property
    def high(self) -> Bound:
        """An upper bound of the block's rows."""
        return (*self.last_key, self.max_timestamp)

    def span(self, check: int) -> BlockSpan:
        """The block's entry in a directory leaf."""
        return BlockSpan(self.rows, self.handle.length, check, self.min_timestamp, self.max_timestamp)


class Original(Protocol):
    """The interface that tools need of a segment that they read."""

    name: str
    size: int
    metadata: Metadata

    def blocks(self) -> Iterator[BlockRef]:
        """Its data blocks, in order."""
        ...

    def read(self, refs: Sequence[BlockRef]) -> Iterator[tuple[memoryview, Block]]:
        """Read some blocks, in ascending order: the stored bytes and the verified block. Raises CorruptSegmentError."""
        ...

    def contexts(self, dictionary: int) -> list[DecodeContext]:
        """For each column, the decode context in blocks that use a dictionary."""
        ...

    def dictionaries(self) -> dict[int, list[ColumnDictionary]]:
        """The dictionaries by number."""
        ...


def decode_block_rows(original: Original, ref: BlockRef, block: Block) -> Rows:
    """Decode the rows of a block that was read. Raises CorruptSegmentError."""
    fields = original.metadata.schema.fields
    data = open_data_block(original, ref, block)
    return decode_rows(data, ref.runs, ref.first_row, fields, original.contexts(block.dictionary))


def open_data_block(original: Original, ref: BlockRef, block: Block) -> DataBlock:
    """Open a block that was read. Raises CorruptSegmentError if it is not the one that the directory describes."""
    if block.count != ref.rows:
        raise CorruptSegmentError("a data block and its directory leaf disagree about its rows", offset=block.offset)
    return DataBlock(block, len(original.metadata.schema.fields))


class OpenOriginal:
    """An open segment as an original."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.name = reader.name
        self.size = reader.size
        self.metadata = reader.metadata

    def leaves(self) -> Iterator[Leaf]:
        """The directory's leaves, in order."""
        return (self.reader.leaf(number) for number in range(len(self.reader.root)))

    def blocks(self) -> Iterator[BlockRef]:
        """The data blocks, in order."""
        for leaf in self.leaves():
            yield from leaf_blocks(leaf)

    def read(self, refs: Sequence[BlockRef]) -> Iterator[tuple[memoryview, Block]]:
        """Read some blocks, in ascending order, and verify them; adjacent ones with one read."""
        try:
            for group in side_by_side([(ref.handle, ref) for ref in refs]):
                start, end = group[0][0].offset, group[-1][0].end
                stored = view_of(self.reader.source, start, end - start)
                for _, ref in group:
                    at = ref.handle.offset - start
                    piece = stored[at : at + ref.handle.length]
                    yield piece, decode_block(piece, BlockKind.DATA, ref.handle.check, ref.handle.offset)
        except EsdbError as error:
            error.path = error.path or self.name
            raise

    def leaf_entry(self, number: int) -> LeafEntry:
        """A leaf's entry in the root."""
        root, leaf = self.reader.root, self.reader.leaf(number)
        handle, data_offset = root.place(number)
        earliest, latest = root.times_of(number)
        return LeafEntry(
            first_space=root.first_space_of(number),
            runs=len(leaf.spaces),
            rows=leaf.last_row - leaf.first_row,
            blocks=leaf.block_count,
            data_offset=data_offset,
            handle=handle,
            min_timestamp=earliest,
            max_timestamp=latest,
        )

    def stored_leaf(self, number: int) -> Iterator[memoryview]:
        """The stored bytes of a leaf's data blocks and of the leaf itself, verified. Raises CorruptSegmentError."""
        return (stored for stored, _ in self._read_leaf(number))

    def leaf_data(self, number: int) -> Iterator[DataBlock]:
        """A leaf's data blocks. Raises CorruptSegmentError."""
        return chain.from_iterable(blocks for _, blocks in self._read_leaf(number))

    def _read_leaf(self, number: int) -> Iterator[tuple[memoryview, list[DataBlock]]]:
        """The stored bytes of a leaf's data blocks and of the leaf itself in pieces, with each piece's verified blocks.

        Raises CorruptSegmentError.
        """
        leaf, handle = self.reader.leaf(number), self.reader.root.handle(number)
        parts = leaf.slices(leaf.first_row, leaf.last_row, -1)
        if parts[-1].end != handle.offset:
            raise CorruptSegmentError("a leaf does not follow its data blocks", path=self.name, offset=handle.offset)
        columns = len(self.metadata.schema.fields)
        for group in side_by_side([*((part, part) for part in parts), (handle, None)]):
            start, end = group[0][0].offset, group[-1][0].end
            stored = view_of(self.reader.source, start, end - start)
            slices = [part for _, part in group if part is not None]
            try:
                blocks = open_data_blocks(slices, stored, start, checksum64, DataBlock, columns)
                if len(slices) < len(group):
                    decode_block(stored[handle.offset - start :], BlockKind.DIRECTORY, handle.check, handle.offset)
            except EsdbError as error:
                error.path = error.path or self.name
                raise
            yield stored, blocks

    def contexts(self, dictionary: int) -> list[DecodeContext]:
        """For each column, the decode context in blocks that use a dictionary."""
        found: list[DecodeContext] = self.reader.contexts(dictionary)
        return found

    def dictionaries(self) -> dict[int, list[ColumnDictionary]]:
        """The dictionaries by number."""
        numbers = sorted(number for kind, number, _ in self.reader.table if kind == BlockKind.DICTIONARY)
        return {number: self.reader.dictionary(number) for number in numbers}

    def index(self, name: str) -> Index:
        """One of its indexes."""
        return Index(self.reader, name)

    @property
    def block_count(self) -> int:
        """Number of data blocks."""
        return int(self.reader.root.data_blocks)

    @property
    def row_count(self) -> int:
        """Number of events."""
        return int(self.reader.root.events)


def leaf_blocks(leaf: Leaf) -> Iterator[BlockRef]:
    """The data blocks of a leaf."""
    spaces, groupings = keys_array(leaf.spaces), keys_array(leaf.groupings)
    edges, run_edges = np.asarray(leaf.block_rows), np.asarray(leaf.run_rows)
    firsts = (np.searchsorted(run_edges, edges[:-1], side="right") - 1).tolist()
    lasts = np.searchsorted(run_edges, edges[1:], side="left").tolist()
    whole = Runs(spaces, groupings, np.diff(run_edges))
    for place in range(leaf.block_count):
        a, b, first, last = firsts[place], lasts[place], leaf.block_rows[place], leaf.block_rows[place + 1]
        cut = np.clip(run_edges[a : b + 1], first, last)
        rows: I64 = cut[1:] - cut[:-1]
        yield BlockRef(
            block_handle(leaf, place),
            leaf.first_block + place,
            first,
            last - first,
            whole.slice(a, b, rows),
            leaf.block_min[place],
            leaf.block_max[place],
        )


class Stored(Protocol):
    """Bytes [offset, end) of a file."""

    @property
    def offset(self) -> int:
        """The first byte."""
        ...

    @property
    def end(self) -> int:
        """The byte after the last."""
        ...


def side_by_side(places: Sequence[tuple[Stored, T]]) -> Iterator[list[tuple[Stored, T]]]:
    """Group blocks, each with a value that belongs to it, into groups that are read with one read each."""
    group: list[tuple[Stored, T]] = []
    for place in places:
        block = place[0]
        if group and (block.offset != group[-1][0].end or block.end - group[0][0].offset > READ_BYTES):
            yield group
            group = []
        group.append(place)
    if group:
        yield group
