"""Assemble a new segment from blocks of others and from re-encoded rows.

It tracks where every row and block of the originals went, so that indexes are converted without decoding.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import local
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow.compute as pc

from esformat.format.dictionary import ColumnDictionary
from esformat.format.frame import Block, check_of, with_dictionary
from esformat.format.metadata import Metadata
from esformat.tools.column_indexes import ColumnIndexes
from esformat.tools.interleave import Copied, CopiedLeaf, Merged, Piece
from esformat.tools.number_map import NumberMap
from esformat.tools.original import BlockRef, Original, open_data_block
from esformat.tools.rows import Key, Rows, join, sorted_rows
from esformat.tools.selection import KeptLeaf
from esformat.write.block_encoder import (
    BLOCK_ROWS,
    NULL,
    BlockEncoder,
    BlockFormat,
    Coded,
    Column,
    EncodedBlock,
    choose_raw,
    choose_raws,
    cut_blocks,
    row_bytes,
)
from esformat.write.builder import SegmentBuilder, Sink

TASK_BLOCKS = 8
"""Blocks that are encoded as one task."""
COPIED_TOGETHER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class AssemblyPlan:
    """How the new segment is stored.

    form: of re-encoded blocks. dictionaries: all of the segment, numbered from 1. encoded_number: the dictionary that
    re-encoded blocks use, 0 for none. numbers: for each original, the new number of each of its dictionaries.
    """

    metadata: Metadata
    form: BlockFormat
    dictionaries: list[list[ColumnDictionary]]
    encoded_number: int
    numbers: list[dict[int, int]]


class Assembly:
    """Takes the pieces of `interleave`, in order. After `finish_blocks`, the builder is ready for indexes."""

    def __init__(
        self,
        sink: Sink,
        plan: AssemblyPlan,
        originals: Sequence[Original],
        indexes: ColumnIndexes,
        threads: int | None = None,
    ) -> None:
        """Write what precedes the blocks. indexes: receive the values of their columns as rows are added."""
        self.builder = SegmentBuilder(sink, plan.metadata, plan.form, plan.dictionaries)
        self.builder.start()
        self.rows = [NumberMap() for _ in originals]
        """For each original, the new numbers of its rows."""
        self.blocks = [NumberMap() for _ in originals]
        """For each original, the new numbers of its copied blocks."""
        self.row_count = self.block_count = 0
        self.copied_blocks = self.encoded_blocks = 0
        self._plan = plan
        self._originals = originals
        self._indexes = indexes
        self._last_key: Key | None = None
        self._copies: list[BlockRef] = []
        self._copies_of = 0
        self._copied_bytes = 0
        self._pending: list[Rows] = []
        self._pending_rows = 0
        self._pending_key: Key | None = None
        self._form = plan.form
        self._mine = local()
        threads = threads or min(os.cpu_count() or 1, 8)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="esformat-encode")
        self._most_tasks = 2 * threads
        self._tasks: deque[Future[list[EncodedBlock]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def add(self, piece: Piece) -> None:
        """Take the next piece of `interleave`."""
        if isinstance(piece, CopiedLeaf):
            numbers = self._plan.numbers[piece.origin]
            if self._indexes.places or any(old != new for old, new in numbers.items()):
                for kept in piece.kept.blocks():
                    self.add(Copied(piece.origin, kept))
                return
            self._encode_pending(whole_blocks_only=False)
            self._write_copies()
            self._copy_leaf(piece.origin, piece.kept)
            return
        if isinstance(piece, Copied):
            self._encode_pending(whole_blocks_only=False)
            self._copy(piece.origin, piece.kept.ref)
            return
        self._write_copies()
        self._add_rows(piece)

    # ------------------------------------------------------------ copied blocks

    def _copy(self, origin: int, ref: BlockRef) -> None:
        if self._copies and (origin != self._copies_of or self._copied_bytes >= COPIED_TOGETHER_BYTES):
            self._write_copies()
        self._copies_of = origin
        self._copies.append(ref)
        self._copied_bytes += ref.handle.length

    def _write_copies(self) -> None:
        refs, origin = self._copies, self._copies_of
        if not refs:
            return
        numbers = self._plan.numbers[origin]
        for ref, (piece, block) in zip(refs, self._originals[origin].read(refs), strict=True):
            self._index_block(origin, ref, block)
            number = numbers.get(block.dictionary, 0)
            stored, check = bytes(piece), ref.handle.check
            if number != block.dictionary:
                stored = with_dictionary(stored, number)
                check = check_of(stored)
            self.rows[origin].add_range(ref.first_row, self.row_count, ref.rows)
            self.blocks[origin].add_range(ref.number, self.block_count, 1)
            self._add_block(EncodedBlock(stored, ref.span(check), ref.runs, ref.first_key == self._last_key))
            self._last_key = ref.last_key
            self.row_count += ref.rows
            self.copied_blocks += 1
        self._copies, self._copied_bytes = [], 0

    def _index_block(self, origin: int, ref: BlockRef, block: Block) -> None:
        if not self._indexes.places:
            return
        original, fields = self._originals[origin], self._plan.metadata.schema.fields
        data, contexts = open_data_block(original, ref, block), original.contexts(block.dictionary)
        self._indexes.add(
            {place: data.column(place, fields[place].type, contexts[place]) for place in self._indexes.places}
        )

    def _copy_leaf(self, origin: int, kept: KeptLeaf) -> None:
        original, number = kept.original, kept.number
        leaf = original.reader.leaf(number)
        first, last = leaf.first_row, leaf.last_row
        self.rows[origin].add_range(first, self.row_count, last - first)
        self.blocks[origin].add_range(leaf.first_block, self.block_count, leaf.block_count)
        first_key = leaf.spaces[0], leaf.groupings[0]
        self.builder.add_leaf(
            original.leaf_entry(number),
            [b - a for a, b in pairwise(leaf.block_rows)],
            leaf.spaces.as_list(),
            original.stored_leaf(number),
            continues=first_key == self._last_key,
        )
        self._last_key = leaf.spaces[-1], leaf.groupings[-1]
        self.row_count += last - first
        self.block_count += leaf.block_count
        self.copied_blocks += leaf.block_count

    def _add_block(self, block: EncodedBlock) -> None:
        self.builder.add_block(block)
        self.block_count += 1

    # ------------------------------------------------------------ rows

    def _add_rows(self, piece: Merged) -> None:
        rows = piece.rows
        new = np.arange(self.row_count, self.row_count + len(rows))
        for origin in np.unique(piece.origins).tolist():
            chosen = piece.origins == origin
            self.rows[origin].add(rows.numbers[chosen], new[chosen])
        self.row_count += len(rows)
        self._indexes.add({place: rows.columns[place] for place in self._indexes.places})
        if not self._pending:
            self._pending_key = self._last_key
        self._pending.append(rows)
        self._pending_rows += len(rows)
        self._last_key = rows.keys[-1]
        if self._pending_rows >= TASK_BLOCKS * BLOCK_ROWS:
            self._encode_pending(whole_blocks_only=True)

    def _encode_pending(self, *, whole_blocks_only: bool) -> None:
        """Encode the pending rows. whole_blocks_only: keep the rows of a last block that more rows may fill; otherwise,
        wait until all blocks are encoded and written.
        """
        if self._pending:
            rows = join(self._pending)
            self._pending, self._pending_rows = [], 0
            sizes = row_bytes(rows.columns, len(rows)) if rows.columns else None
            edges = cut_blocks(sizes, len(rows))
            if whole_blocks_only and len(edges) > 2:
                edges.pop()
            last = edges[-1]
            self._submit(rows if last == len(rows) else rows.slice(0, last), edges)
            if last < len(rows):
                rest = rows.slice(last, len(rows))
                before = rows.slice(last - 1, last)
                self._pending, self._pending_rows, self._pending_key = [rest], len(rest), before.keys[0]
        if not whole_blocks_only:
            self._drain(0)

    def _submit(self, rows: Rows, edges: list[int]) -> None:
        if self._form is self._plan.form:
            first = sorted_rows(rows, self._stored_columns(rows), self._pending_key)
            raw = choose_raw(first, self._form.schema, self._form.codec, self._form.level)
            self._form = replace(self._form, raw=raw, raws=choose_raws(first, self._form))
        before = self._pending_key
        self._tasks.append(self._pool.submit(self._encode, rows, edges, before))
        self._drain(self._most_tasks)

    def _encode(self, rows: Rows, edges: list[int], before: Key | None) -> list[EncodedBlock]:
        if not hasattr(self._mine, "encoder"):
            self._mine.encoder = BlockEncoder(self._form)
        ordered = sorted_rows(rows, self._stored_columns(rows), before)
        blocks: list[EncodedBlock] = self._mine.encoder.encode(ordered, edges)
        number = self._plan.encoded_number
        if number == self._form.dictionary_number:
            return blocks
        return [_encoded_as(block, number) for block in blocks]

    def _stored_columns(self, rows: Rows) -> list[Column]:
        """The columns as they are stored: as codes if they have a dictionary of values."""
        columns: list[Column] = []
        for place, column in enumerate(rows.columns):
            dictionary = self._form.dictionaries.get(place)
            if dictionary is None or dictionary.values is None:
                columns.append(column)
                continue
            codes = pc.index_in(column, value_set=dictionary.values)
            known = codes.null_count == column.null_count  # blocks without a dictionary may have had other values
            numbers = np.asarray(codes.fill_null(NULL).to_numpy()).astype(np.int64)
            columns.append(Coded(numbers) if known else column)
        return columns

    def _drain(self, most: int) -> None:
        while len(self._tasks) > most:
            for block in self._tasks.popleft().result():
                self._add_block(block)
                self.encoded_blocks += 1

    def finish_blocks(self) -> None:
        """Write the remaining blocks."""
        self._write_copies()
        self._encode_pending(whole_blocks_only=False)


def _encoded_as(block: EncodedBlock, number: int) -> EncodedBlock:
    stored = with_dictionary(block.stored, number)
    return replace(block, stored=stored, span=replace(block.span, check=check_of(stored)))
