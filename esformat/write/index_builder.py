"""Write one secondary index: values in ascending order with their posting lists, page by page, then the root.

Posting lists are passed whole or, for indexes larger than memory, as chunks of rows by value (`list_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.format.arrays import is_bytes
from esformat.format.frame import encode_block
from esformat.format.layout import BlockHandle, BlockKind
from esformat.format.node import EncodeContext
from esformat.format.order import I64
from esformat.format.postings import (
    BLOCKS,
    CHUNK_ENTRIES,
    CHUNKED,
    ROWS,
    Chunk,
    PageEntry,
    Posting,
    encode_chunk,
    encode_chunk_table,
    encode_index_root,
    encode_page,
    page_is_full,
)

PostingList = tuple[int, int, I64]
"""The number of events of a value, the form of its list, and the list: ascending row or block numbers."""


@dataclass(frozen=True, slots=True)
class IndexRows:
    """A part of an index: distinct ascending `values` without null, and the rows that have them.

    `counts`: the number of rows of each value, at least 1; `rows`: those of the first value, ascending, then those of
    the second …
    """

    values: pa.Array
    counts: I64
    rows: I64


class IndexBuilder:
    """Takes the values of one index in ascending order. `write` stores a block and returns its handle."""

    def __init__(self, write: Callable[[bytes], BlockHandle], kind: pa.DataType, context: EncodeContext) -> None:
        self._write = write
        self._kind = kind
        self._context = context
        self._values: list[pa.Array] = []  # of the page that is being filled
        self._postings: list[Posting] = []
        self._page_bytes = 0
        self._entries: list[PageEntry] = []
        self._firsts: list[pa.Array] = []
        self.value_count = 0
        self.event_count = 0

    def add(self, values: pa.Array, lists: Iterable[PostingList]) -> None:
        """Add the next values, each with its list."""
        value_bytes = pc.binary_length(values).to_pylist() if is_bytes(values.type) else [8] * len(values)
        first = 0
        for place, (count, form, numbers) in enumerate(lists):
            posting = self._posting(count, form, numbers)
            self._postings.append(posting)
            self.event_count += count
            self._page_bytes += len(posting.stored) + value_bytes[place]
            if page_is_full(len(self._postings), self._page_bytes):
                self._values.append(values.slice(first, place + 1 - first))
                first = place + 1
                self._end_page()
        self._values.append(values.slice(first))
        self.value_count += len(values)

    def _posting(self, count: int, form: int, numbers: I64) -> Posting:
        pieces = [numbers[at : at + CHUNK_ENTRIES] for at in range(0, len(numbers), CHUNK_ENTRIES)]
        if len(pieces) == 1:
            return Posting(count, form, encode_chunk(numbers, self._context))
        chunks = []
        for piece in pieces:
            body = encode_chunk(piece, self._context)
            chunks.append(Chunk(int(piece[0]), self._write(encode_postings_block(body, len(piece)))))
        return Posting(count, form | CHUNKED, encode_chunk_table(chunks, self._context))

    def _end_page(self) -> None:
        if self._postings:
            page = pa.concat_arrays(self._values)
            handle = self._write(encode_page(page, self._postings, self._context))
            self._entries.append(PageEntry(len(self._postings), handle))
            self._firsts.append(pa.concat_arrays([page.slice(0, 1)]))  # a copy: a slice would keep the whole page alive
        self._values, self._postings, self._page_bytes = [], [], 0

    def finish(self) -> bytes:
        """Write the last page. Returns the framed root, which the caller writes at its place."""
        self._end_page()
        firsts = pa.concat_arrays(self._firsts) if self._firsts else pa.array([], self._kind)
        return encode_index_root(firsts, self._entries, self._context)


def encode_postings_block(body: bytes, count: int) -> bytes:
    """Encode one framed postings block."""
    return encode_block(BlockKind.POSTINGS, body, count=count)


# ---------------------------------------------------------------- lists from chunks of rows


def list_rows(chunks: Iterable[IndexRows], block_starts: I64) -> Iterator[tuple[pa.Array, Iterable[PostingList]]]:
    """Yield values with their lists, ascending, from chunks whose values ascend from one chunk to the next.

    The first value of a chunk may be the last one of the chunk before and add more rows to it. Memory is bounded by one
    chunk plus, for a value that may continue, one number per data block. `block_starts`: their first rows.
    """
    last = _OpenList(block_starts)
    for chunk in chunks:
        if not len(chunk.values):
            continue
        edges = np.cumsum(np.append(0, chunk.counts))
        first = int(last.value is not None and last.value.equals(chunk.values.slice(0, 1)))
        if first:
            last.extend(chunk.rows[: edges[1]])
        if first == len(chunk.values):
            continue
        if last.value is not None:
            yield last.value, [last.close()]
        end = len(chunk.values) - 1
        if end > first:
            rows = chunk.rows[edges[first] : edges[end]]
            yield chunk.values.slice(first, end - first), _choose(rows, chunk.counts[first:end], block_starts)
        last.value = chunk.values.slice(end)
        last.extend(chunk.rows[edges[end] :])
    if last.value is not None:
        yield last.value, [last.close()]


def _choose(rows: I64, counts: I64, block_starts: I64) -> Iterator[PostingList]:
    dense = counts >= len(block_starts)
    at = 0
    for count, names_blocks in zip(counts.tolist(), dense.tolist(), strict=True):
        numbers = rows[at : at + count]
        yield (count, BLOCKS, blocks_of(numbers, block_starts)) if names_blocks else (count, ROWS, numbers)
        at += count


def blocks_of(rows: I64, block_starts: I64) -> I64:
    """The numbers of the data blocks that contain the ascending rows, each once."""
    blocks: I64 = np.searchsorted(block_starts, rows, side="right") - 1
    fresh = np.append(True, blocks[1:] != blocks[:-1])
    distinct: I64 = blocks[fresh]
    return distinct


class _OpenList:
    """The list of a value that may get more rows: of rows at first, of blocks once there are enough rows."""

    def __init__(self, block_starts: I64) -> None:
        self._block_starts = block_starts
        self.value: pa.Array | None = None
        self._parts: list[I64] = []
        self._count = 0
        self._names_blocks = False

    def extend(self, rows: I64) -> None:
        """Add more rows of the value."""
        self._count += len(rows)
        if self._names_blocks:
            self._add_blocks(rows)
        else:
            self._parts.append(rows.copy())  # a copy, because a view would keep its chunk in memory
            if self._count >= len(self._block_starts):
                self._names_blocks = True
                rows = np.concatenate(self._parts)
                self._parts = []
                self._add_blocks(rows)

    def _add_blocks(self, rows: I64) -> None:
        blocks = blocks_of(rows, self._block_starts)
        if self._parts and self._parts[-1][-1] == blocks[0]:
            blocks = blocks[1:]
        if len(blocks):
            self._parts.append(blocks)

    def close(self) -> PostingList:
        """Return the complete list and start the next one."""
        made = self._count, BLOCKS if self._names_blocks else ROWS, np.concatenate(self._parts)
        self.value, self._parts, self._count, self._names_blocks = None, [], 0, False
        return made
