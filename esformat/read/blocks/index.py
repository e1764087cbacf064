"""A secondary index of an open segment: its values, and where the events with a value are."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from esformat.format.data_block import I64
from esformat.format.layout import BlockKind
from esformat.format.postings import CHUNKED, Chunk, Posting, decode_chunk, decode_chunk_table
from esformat.read.ask.question import can_hold, index_type
from esformat.read.blocks.reader import Reader


class Index:
    """The index on one column. A view of the reader, cheap to create."""

    def __init__(self, reader: Reader, name: str) -> None:
        """Raises UnknownIndexError."""
        self._type = index_type(reader.schema, name, reader.name)
        self._reader = reader
        self.name = name
        self.place = reader.schema.positions[name]

    def holds(self, value: Any) -> bool:
        """Whether the index can contain a value, judging by its type."""
        return can_hold(self._type, value)

    def find(self, value: Any) -> Posting | None:
        """The posting list of a value; None if no event has it."""
        root = self._reader.index_root(self.place)
        number = bisect_right(root.firsts, value) - 1
        if number < 0:
            return None
        page = self._reader.index_page(self.place, number)
        at = bisect_left(page.values, value)
        if at == len(page.values) or page.values[at] != value:
            return None
        return page.posting(at)

    def everywhere(self, value: Any, posting: Posting) -> bool:
        """Whether every data block contains the value. Reads a long list completely unless its table rules that out."""
        if not posting.form & CHUNKED:
            return self._reader.numbers(self.place, value, posting).everywhere
        count = self._reader.root.data_blocks
        firsts = [chunk.first for chunk in self._chunk_table(posting)]
        step = firsts[1] if len(firsts) > 1 else 0
        may_be = step > 0 and firsts == [step * n for n in range(len(firsts))]
        return may_be and sum(map(len, self._chunks(posting, 0, count))) == count

    def numbers(self, value: Any, posting: Posting, low: int, high: int) -> I64:
        """The numbers in [low, high) of a value's posting list: of rows or of data blocks, depending on its form."""
        if posting.form & CHUNKED:
            parts = list(self._chunks(posting, low, high))
            numbers = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        else:
            numbers = self._reader.numbers(self.place, value, posting).numbers
        a, b = np.searchsorted(numbers, (low, high)).tolist()
        return numbers[a:b]

    def _chunks(self, posting: Posting, low: int, high: int) -> Iterator[I64]:
        context, chunks = self._reader.thread_context(), self._chunk_table(posting)
        firsts = [chunk.first for chunk in chunks]
        for chunk in chunks[max(0, bisect_right(firsts, low) - 1) : bisect_left(firsts, high)]:
            block = self._reader.read(chunk.handle, BlockKind.POSTINGS)
            with self._reader.named:
                numbers = decode_chunk(block.body, context)
            yield numbers

    def _chunk_table(self, posting: Posting) -> list[Chunk]:
        with self._reader.named:
            return decode_chunk_table(memoryview(posting.stored), self._reader.thread_context())

    def values(self) -> Iterator[tuple[Any, int]]:
        """Every value in ascending order, with its number of events."""
        root = self._reader.index_root(self.place)
        for number in range(len(root.handles)):
            page = self._reader.index_page(self.place, number)
            yield from zip(page.values, page.counts, strict=True)

    @property
    def value_count(self) -> int:
        """Number of distinct values."""
        count: int = self._reader.index_root(self.place).value_count
        return count

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the values."""
        return self._type
