"""Lay out a segment: data blocks and directory leaves in order, then indexes, filter, and the blocks read on opening.

    header, metadata, dictionary | (data blocks, leaf)* | indexes, filter, directory pages |
    dictionary, roots, metadata, footer, trailer

It writes to anything with `write`, and knows nothing of files, threads or the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Protocol

import numpy as np
import pyarrow as pa

from esformat.format.bloom_filter import build_filter, hash_keys
from esformat.format.codec import make_compressor
from esformat.format.data_block import Runs, key_bytes
from esformat.format.dictionary import ColumnDictionary, dictionary_context, encode_dictionary
from esformat.format.directory import (
    BlockSpan,
    LeafEntry,
    encode_leaf,
    encode_page,
    encode_root,
    entry_of_page,
    leaf_is_full,
    pages_of,
)
from esformat.format.footer import Key, encode_footer
from esformat.format.frame import encode_block, handle_of
from esformat.format.layout import BlockHandle, BlockKind, Trailer, encode_header
from esformat.format.metadata import Metadata, Statistics
from esformat.format.node import EncodeContext
from esformat.format.order import I64, Ranked
from esformat.format.postings import choose_postings, value_counts
from esformat.write.block_encoder import BlockFormat, EncodedBlock
from esformat.write.index_builder import IndexBuilder, IndexRows, PostingList, list_rows
from esformat.write.space_hashes import SpaceHashes

LEAF_KEY_BYTES = 16 << 20
"""A leaf ends at the block that brings its keys above this size: a single key may have 64 KiB."""
OPENING_ROOT_BYTES = 8 << 10
"""Larger index roots are read when the index is first used, not when the segment is opened."""


class Sink(Protocol):
    """Takes the segment's bytes, in order."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Append bytes."""
        ...


class SegmentBuilder:
    """Writes one segment to a sink: `start`, `add_block` in row order, `add_index` for each index, `finish`."""

    def __init__(
        self,
        sink: Sink,
        metadata: Metadata,
        form: BlockFormat,
        dictionaries: Sequence[Sequence[ColumnDictionary]] | None = None,
        hashes: SpaceHashes | None = None,
    ) -> None:
        """`dictionaries`: those to which the blocks refer, numbered from 1; by default those of `form`, if it has any.

        `hashes`: stores the hashes of the spaces; by default in memory.
        """
        self._sink = sink
        self._offset = 0
        self._metadata = metadata
        self._form = form
        plain = make_compressor(form.codec, form.level)
        self._context = EncodeContext(plain, plain)
        own = [list(form.dictionaries.values())] if form.dictionaries else []
        self._dictionaries = own if dictionaries is None else dictionaries
        self._table: dict[Key, BlockHandle] = {}
        self._leaves: list[LeafEntry] = []
        self._data_offset = 0
        self._blocks: list[EncodedBlock] = []  # of the leaf that is being filled
        self._leaf_runs = 0
        self._leaf_key_bytes = 0
        self._runs = 0
        self._spaces = 0
        self._last_space: bytes | None = None
        self._hashes = SpaceHashes() if hashes is None else hashes
        self._block_starts: list[int] = []
        self._rows = 0
        self._index_facts: dict[str, dict[str, int]] = {}
        self._index_roots: list[tuple[Key, bytes]] = []

    def _write(self, stored: bytes) -> BlockHandle:
        handle = handle_of(stored, self._offset)
        self._sink.write(stored)
        self._offset += len(stored)
        return handle

    @property
    def offset(self) -> int:
        """Bytes written so far: the offset of the next block."""
        return self._offset

    def start(self) -> None:
        """Write everything that precedes the events."""
        header = encode_header()
        self._sink.write(header)
        self._offset += len(header)
        self._table[BlockKind.METADATA, 0, 1] = self._write(self._metadata.encode())
        self._write_dictionaries(copy=1)
        self._data_offset = self._offset

    def _write_dictionaries(self, *, copy: int) -> None:
        for number, columns in enumerate(self._dictionaries, start=1):
            self._table[BlockKind.DICTIONARY, number, copy] = self._write(self._dictionary(columns))

    def _dictionary(self, columns: Sequence[ColumnDictionary]) -> bytes:
        return encode_dictionary(columns, dictionary_context(self._form.codec, self._form.level))

    def add_block(self, block: EncodedBlock) -> None:
        """Write the next data block."""
        self._sink.write(block.stored)
        self._offset += len(block.stored)
        self._block_starts.append(self._rows)
        self._rows += block.span.rows
        self._blocks.append(replace(block, stored=b""))  # without its bytes: a leaf's blocks can be larger than memory
        self._leaf_runs += len(block.runs.rows) - block.continues
        self._leaf_key_bytes += block.runs.spaces.nbytes + block.runs.groupings.nbytes
        full = leaf_is_full(self._leaf_runs, len(self._blocks))
        if full or self._leaf_key_bytes > LEAF_KEY_BYTES:
            self._end_leaf()

    def _end_leaf(self) -> None:
        if not self._blocks:
            return
        runs = _join_runs(self._blocks)
        spans = [block.span for block in self._blocks]
        handle = self._write(encode_leaf(runs, spans, self._context))
        self._count_spaces(key_bytes(runs.spaces), continues=self._blocks[0].continues)
        self._leaves.append(_leaf_entry(runs, spans, self._data_offset, handle))
        self._data_offset = self._offset
        self._blocks = []
        self._leaf_runs = self._leaf_key_bytes = 0

    def add_leaf(
        self,
        entry: LeafEntry,
        block_rows: Sequence[int],
        spaces: list[bytes],
        pieces: Iterable[memoryview],
        *,
        continues: bool,
    ) -> None:
        """Copy a leaf from another segment. `pieces` are its data blocks and the leaf itself, as stored there.

        entry: the leaf's entry in the other segment's root. block_rows: rows of each block. spaces: the space of each
        run. continues: whether its first run began before it.
        """
        self._end_leaf()
        for piece in pieces:
            self._sink.write(piece)
            self._offset += len(piece)
        self._block_starts += accumulate(block_rows[:-1], initial=self._rows)
        self._rows += entry.rows
        handle = entry.handle._replace(offset=self._offset - entry.handle.length)
        self._leaves.append(replace(entry, data_offset=self._data_offset, handle=handle))
        self._data_offset = self._offset
        self._count_spaces(spaces, continues=continues)

    def _count_spaces(self, keys: list[bytes], *, continues: bool) -> None:
        distinct = list(dict.fromkeys(keys))  # ascending
        fresh = distinct[1:] if distinct[0] == self._last_space else distinct
        self._hashes.add(hash_keys(fresh))
        self._spaces += len(fresh)
        self._runs += len(keys) - continues
        self._last_space = distinct[-1]

    def add_index(self, column: int, ranked: Ranked) -> None:
        """Write the index of a column; `ranked` contains its values in row order. Call it after the last block."""
        counts = value_counts(ranked.ranks, len(ranked.values))
        lists = choose_postings(ranked.ranks, counts, self.block_starts())
        self.add_lists(column, [(ranked.values.take(pa.array(np.flatnonzero(counts))), lists)])

    def add_index_stream(self, column: int, chunks: Iterable[IndexRows]) -> None:
        """Write the index of a column from chunks of its values and rows, values ascending. Call it after the last
        block.

        The first value of a chunk may be the last of the chunk before. Writes the same bytes as `add_index`.
        """
        self.add_lists(column, list_rows(chunks, self.block_starts()))

    def add_lists(self, column: int, parts: Iterable[tuple[pa.Array, Iterable[PostingList]]]) -> None:
        """Write the index of a column from ascending values and their posting lists. Call it after the last block."""
        self._end_leaf()
        field = self._form.schema.fields[column]
        index = IndexBuilder(self._write, field.type, self._context)
        for values, lists in parts:
            index.add(values, lists)
        self._index_roots.append(((BlockKind.INDEX_ROOT, column, 0), index.finish()))
        self._index_facts[field.name] = {"values": index.value_count, "events": index.event_count}

    def block_starts(self) -> I64:
        """The first row of each data block so far."""
        return np.array(self._block_starts, dtype=np.int64)

    def finish(self) -> Statistics:
        """Write everything that follows the events. The sink then contains a complete segment."""
        self._end_leaf()
        for page, body in enumerate(build_filter(self._hashes, self._hashes.count)):
            self._table[BlockKind.FILTER, page, 0] = self._write(encode_filter_page(body))
        large = [(key, root) for key, root in self._index_roots if len(root) > OPENING_ROOT_BYTES]
        small = [(key, root) for key, root in self._index_roots if len(root) <= OPENING_ROOT_BYTES]
        for key, index_root in large:
            self._table[key] = self._write(index_root)
        pages = pages_of(self._leaves)
        entries = [entry_of_page(page, self._write(encode_page(page, self._context))) for page in pages]
        statistics = self._statistics()
        opening = self._offset
        self._write_dictionaries(copy=0)
        for key, index_root in small:
            self._table[key] = self._write(index_root)
        root = encode_root(entries or self._leaves, len(self._leaves), self._context)
        self._table[BlockKind.DIRECTORY_ROOT, 0, 0] = self._write(root)
        complete = replace(self._metadata, statistics=statistics)
        self._table[BlockKind.METADATA, 0, 0] = self._write(complete.encode())
        footer = self._write(encode_footer(self._table))
        self._sink.write(Trailer(opening, footer).encode())
        return statistics

    def _statistics(self) -> Statistics:
        return Statistics(
            events=self._rows,
            spaces=self._spaces,
            runs=self._runs,
            data_blocks=len(self._block_starts),
            min_timestamp=min((leaf.min_timestamp for leaf in self._leaves), default=None),
            max_timestamp=max((leaf.max_timestamp for leaf in self._leaves), default=None),
            indexes=self._index_facts,
        )


def encode_filter_page(body: bytes) -> bytes:
    """Encode one framed page of the space filter."""
    return encode_block(BlockKind.FILTER, body)


def _join_runs(blocks: Iterable[EncodedBlock]) -> Runs:
    """Join the runs of adjacent blocks. A run that continues into the next block becomes one run."""
    spaces: list[pa.Array] = []
    groupings: list[pa.Array] = []
    rows: list[I64] = []
    for block in blocks:
        skip = int(block.continues and bool(rows))
        if skip:
            rows[-1] = rows[-1].copy()
            rows[-1][-1] += block.runs.rows[0]
        count = len(block.runs.rows) - skip
        if count:
            spaces.append(block.runs.spaces.slice(skip, count))
            groupings.append(block.runs.groupings.slice(skip, count))
            rows.append(block.runs.rows[skip:])
    return Runs(pa.concat_arrays(spaces), pa.concat_arrays(groupings), np.concatenate(rows))


def _leaf_entry(runs: Runs, spans: list[BlockSpan], data_offset: int, handle: BlockHandle) -> LeafEntry:
    return LeafEntry(
        first_space=key_bytes(runs.spaces.slice(0, 1))[0],
        runs=len(runs.rows),
        rows=sum(span.rows for span in spans),
        blocks=len(spans),
        data_offset=data_offset,
        handle=handle,
        min_timestamp=min(span.min_timestamp for span in spans),
        max_timestamp=max(span.max_timestamp for span in spans),
    )
