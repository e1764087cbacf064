"""Secondary indexes: for each value of an indexed column, the location of its events.

An index is a sorted list of values cut into pages, with a root that lists each page's first value. A value's posting
list is stored in one of two forms, by density:

    rows     the row numbers, for values rarer than one event per data block
    blocks   the numbers of the data blocks that contain the value, for the others; within a block, the rows follow from
             the column itself, which a reader needs anyway

Both are ascending numbers stored as differences. Lists longer than a chunk are stored in postings blocks of their own,
named by a chunk table in the page, so that a reader reads only the part that covers its rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, make_compressor
from esformat.format.encoding import decode_node, encode_node
from esformat.format.frame import Block, check_length, encode_block
from esformat.format.layout import MAX_PAGE_ENTRIES, BlockHandle, BlockKind
from esformat.format.node import DecodeContext, EncodeContext
from esformat.format.packing import decode_columns, decode_ints, encode_ints, read_pack

ROWS, BLOCKS, CHUNKED = 0, 1, 2  # form of a posting list; CHUNKED is added if it has a chunk table
CHUNK_ENTRIES = 4096
PAGE_VALUES = 256
PAGE_BYTES = 16 << 10

_CHUNK = struct.Struct(
    "<"
    "I"  # entries
    "Q"  # first entry
)

I64 = npt.NDArray[np.int64]
_NO_NUMBERS = encode_ints(np.zeros(0, np.int64), make_compressor(Codec.NONE))


def encode_chunk(numbers: I64, context: EncodeContext) -> bytes:
    """Encode ascending numbers as their count, the first number and packed differences."""
    if len(numbers) == 1:  # most values of many indexes
        return _CHUNK.pack(1, int(numbers[0])) + _NO_NUMBERS
    return _CHUNK.pack(len(numbers), int(numbers[0])) + encode_ints(np.diff(numbers), context.plain)


def decode_chunk(body: memoryview, context: DecodeContext) -> I64:
    """Decode what `encode_chunk` wrote. Raises CorruptSegmentError unless the numbers ascend."""
    if len(body) < _CHUNK.size:
        raise CorruptSegmentError("a posting list is cut short")
    count, first = _CHUNK.unpack_from(body)
    if not 0 < count <= CHUNK_ENTRIES or first >= 1 << 62:
        raise CorruptSegmentError(f"a chunk of {count} postings is out of bounds")
    pack = read_pack(body, _CHUNK.size, count - 1)
    steps = decode_ints(body, pack, context.plain)
    if pack.end != len(body) or (count > 1 and int(steps.min()) < 1):
        raise CorruptSegmentError("the numbers of a posting list do not ascend")
    numbers = np.empty(count, dtype=np.int64)
    numbers[0] = first
    np.cumsum(steps, out=numbers[1:])
    numbers[1:] += first
    return numbers


@dataclass(frozen=True, slots=True)
class Posting:
    """One value of an index: its number of events, and its encoded posting list."""

    count: int
    form: int
    stored: bytes | memoryview

    @property
    def names_blocks(self) -> bool:
        """Whether the list contains block numbers rather than row numbers."""
        return bool(self.form & BLOCKS)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a posting list, stored in its own block: its first number and its location."""

    first: int
    handle: BlockHandle


def encode_chunk_table(chunks: Sequence[Chunk], context: EncodeContext) -> bytes:
    """Encode the table that a CHUNKED posting list stores."""
    parts = (
        [chunk.first for chunk in chunks],
        [chunk.handle.offset for chunk in chunks],
        [chunk.handle.length for chunk in chunks],
        [chunk.handle.check for chunk in chunks],
    )
    table = b"".join(encode_ints(np.array(part, dtype=np.int64), context.plain) for part in parts)
    return struct.pack("<I", len(chunks)) + table


def decode_chunk_table(stored: memoryview, context: DecodeContext) -> list[Chunk]:
    """Decode what `encode_chunk_table` wrote. Raises CorruptSegmentError."""
    if len(stored) < 4:
        raise CorruptSegmentError("a chunk table is cut short")
    (count,) = struct.unpack_from("<I", stored)
    if count > MAX_PAGE_ENTRIES:
        raise CorruptSegmentError(f"a chunk table of {count} chunks is out of bounds")
    columns = [column.tolist() for column in decode_columns(stored, 4, count, 4, context.plain)[0]]
    chunks = [
        Chunk(first, BlockHandle(offset, length, check)) for first, offset, length, check in zip(*columns, strict=True)
    ]
    for chunk in chunks:
        if chunk.handle.offset < 0:
            raise CorruptSegmentError("a chunk table points before the file")
        check_length(chunk.handle.length, chunk.handle.offset)
    return chunks


# ---------------------------------------------------------------- choosing the form


def value_counts(codes: I64, value_count: int) -> I64:
    """The number of occurrences of each value 0…value_count-1 in `codes`; -1 is null and not counted."""
    return np.bincount(codes + 1, minlength=value_count + 1)[1:]


def choose_postings(codes: I64, counts: I64, block_starts: I64) -> Iterator[tuple[int, int, I64]]:
    """For each value that occurs in `codes` (-1: null), yield its number of events, its form and its ascending numbers.

    `codes` are in row order; `counts` is the result of `value_counts`; `block_starts` contains the first row of each
    data block.
    """
    if not len(codes):
        return
    block_count = len(block_starts)
    dense = counts >= block_count
    dense_values = np.nonzero(dense)[0]
    place = np.full(len(counts) + 1, len(dense_values))  # the last slot is for code -1
    place[dense_values] = np.arange(len(dense_values))
    dense_of_row = place[codes]
    block_of_row = np.repeat(np.arange(block_count), np.diff(block_starts, append=len(codes)))
    present = np.zeros((len(dense_values) + 1, block_count), np.bool_)  # the last row is for all other values
    present.reshape(-1)[dense_of_row * block_count + block_of_row] = True

    sparse_counts = np.where(dense, 0, counts)
    sparse_rows = (
        np.nonzero((codes >= 0) & (dense_of_row == len(dense_values)))[0] if sparse_counts.any() else codes[:0]
    )
    sparse_rows = sparse_rows[np.argsort(codes[sparse_rows], kind="stable")]
    ends = np.cumsum(sparse_counts)
    for value in np.nonzero(counts)[0].tolist():
        if dense[value]:
            yield int(counts[value]), BLOCKS, np.nonzero(present[place[value]])[0]
        else:
            yield int(counts[value]), ROWS, sparse_rows[ends[value] - sparse_counts[value] : ends[value]]


# ---------------------------------------------------------------- pages and root


def page_is_full(value_count: int, byte_count: int) -> bool:
    """Whether an index page with this many values and bytes is full."""
    return value_count >= PAGE_VALUES or byte_count >= PAGE_BYTES


def encode_page(values: pa.Array, postings: Sequence[Posting], context: EncodeContext) -> bytes:
    """Encode one framed index page: sorted values, events of each, form and length of each list, the lists."""

    def column(numbers: list[int]) -> bytes:
        return encode_ints(np.array(numbers, dtype=np.int64), context.plain)

    body = b"".join(
        [
            encode_node(values, context),
            column([posting.count for posting in postings]),
            column([posting.form for posting in postings]),
            column([len(posting.stored) for posting in postings]),
            *(posting.stored for posting in postings),
        ]
    )
    return encode_block(BlockKind.INDEX, body, count=len(postings))


class Page:
    """A decoded index page: `values` (Python values, ascending), the number of events of each, their posting lists."""

    __slots__ = ("_body", "_edges", "_forms", "counts", "size_bytes", "values")

    def __init__(self, block: Block, kind: pa.DataType, context: DecodeContext) -> None:
        """Raises CorruptSegmentError if the page contradicts itself."""
        body, count = block.body, block.count
        if not 0 < count <= MAX_PAGE_ENTRIES:
            raise CorruptSegmentError("an index page's count is out of bounds", offset=block.offset)
        values, at = decode_node(body, 0, count, kind, context)
        columns, at = decode_columns(body, at, count, 3, context.plain)
        counts, forms, lengths = (column.tolist() for column in columns)
        self.counts: list[int] = counts
        if values.null_count or min(counts) < 1 or min(lengths) < 0 or at + sum(lengths) != len(body):
            raise CorruptSegmentError("an index page contradicts itself", offset=block.offset)
        if not set(forms) <= {ROWS, BLOCKS, ROWS | CHUNKED, BLOCKS | CHUNKED}:
            raise CorruptSegmentError("an index page has posting lists of unknown form", offset=block.offset)
        self.values: list[object] = values.to_pylist()
        self._body, self._forms = body, forms
        self._edges = list(accumulate(lengths, initial=at))
        self.size_bytes = 150 * count + 2 * len(body)

    def posting(self, place: int) -> Posting:
        """The posting list of one value."""
        stored = self._body[self._edges[place] : self._edges[place + 1]]
        return Posting(self.counts[place], self._forms[place], stored)

    @property
    def postings(self) -> list[Posting]:
        """The posting lists of all values."""
        return list(map(self.posting, range(len(self.counts))))


@dataclass(frozen=True, slots=True)
class PageEntry:
    """The description of one index page in the index root."""

    values: int
    handle: BlockHandle


def encode_index_root(firsts: pa.Array, entries: Sequence[PageEntry], context: EncodeContext) -> bytes:
    """Encode the framed root of an index: each page's first value, number of values and location."""

    def column(numbers: list[int]) -> bytes:
        return encode_ints(np.array(numbers, dtype=np.int64), context.plain)

    body = b"".join(
        [
            encode_node(firsts, context),
            column([entry.values for entry in entries]),
            column([entry.handle.offset for entry in entries]),
            column([entry.handle.length for entry in entries]),
            column([entry.handle.check for entry in entries]),
        ]
    )
    return encode_block(BlockKind.INDEX_ROOT, body, count=len(entries))


class IndexRoot:
    """The decoded root of one index: `firsts`, the first value of each page, and `handles`, the handle of each page."""

    __slots__ = ("firsts", "handles", "value_count")

    def __init__(self, block: Block, kind: pa.DataType, context: DecodeContext) -> None:
        """Raises CorruptSegmentError if the root contradicts itself."""
        body, count = block.body, block.count
        if count > len(body):
            raise CorruptSegmentError("an index root's count is out of bounds", offset=block.offset)
        firsts, at = decode_node(body, 0, count, kind, context)
        columns, at = decode_columns(body, at, count, 4, context.plain)
        values, offsets, lengths, checks = (column.tolist() for column in columns)
        if at != len(body) or firsts.null_count or min([*values, *offsets], default=1) < 1:
            raise CorruptSegmentError("an index root contradicts itself", offset=block.offset)
        self.firsts: list[object] = firsts.to_pylist()
        self.value_count = sum(values)
        self.handles = [BlockHandle(*parts) for parts in zip(offsets, lengths, checks, strict=True)]
