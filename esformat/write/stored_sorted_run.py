"""Data blocks of an unfinished segment, read back as a sorted run.

Events that arrive in order are written immediately. When a late one arrives, the written blocks become a run like any
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from esformat.format.codec import Decompressor
from esformat.format.data_block import DataBlock, keys_array
from esformat.format.dictionary import ColumnDictionary, context_of
from esformat.format.frame import decode_block
from esformat.format.layout import BlockKind
from esformat.format.node import DecodeContext
from esformat.format.schema import EventSchema
from esformat.io.temp_file import SpillFile
from esformat.write.block_encoder import SortedRows, slice_rows

_ROW_BYTES = 64  # approximate memory of a row's keys and timestamp beyond their stored size


class StoredSortedRun:
    """Rows of data blocks: the blocks are added in order, then read."""

    def __init__(self, blocks: SpillFile, schema: EventSchema, dictionaries: Mapping[int, ColumnDictionary]) -> None:
        """`blocks`: an empty file, which the sorted run closes; `dictionaries`: those of the blocks' columns."""
        self._blocks = blocks
        self._schema = schema
        plain = Decompressor()
        self._context = DecodeContext(plain, plain)
        self._contexts = [
            context_of(dictionaries[place], plain) if place in dictionaries else self._context
            for place in range(len(schema.fields))
        ]
        self._rows: list[tuple[int, int]] = []  # of each block, the rows [first, last) that belong to the run
        self._last: tuple[int, DataBlock] | None = None

    def add(self, stored: bytes, first: int, last: int) -> None:
        """Append rows [first, last) of a block. Raises OSError."""
        self._blocks.append(stored)
        self._rows.append((first, last))

    def _block(self, number: int) -> DataBlock:
        if self._last is None or self._last[0] != number:
            stored = self._blocks.read(number, 0)
            block = decode_block(memoryview(stored).cast("B"), BlockKind.DATA, None, 0)
            self._last = number, DataBlock(block, len(self._schema.fields))
        return self._last[1]

    def __len__(self) -> int:
        return len(self._rows)

    def chunk_bytes(self, chunk: int) -> int:
        """Approximate memory of a chunk: four times its stored size, as blocks usually shrink to a third or less."""
        first, last = self._rows[chunk]
        return 4 * self._blocks.part_bytes(chunk, 0) + _ROW_BYTES * (last - first)

    def head(self, chunk: int) -> SortedRows:
        """Keys and timestamps of a chunk, without columns. Raises OSError."""
        block = self._block(chunk)
        runs = block.runs(self._context)
        edges = np.append(0, np.cumsum(runs.rows))
        spans = zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        times = np.concatenate([block.run_times(first, first, last, self._context.plain) for first, last in spans])
        spaces, groupings = keys_array(runs.spaces), keys_array(runs.groupings)
        return slice_rows(SortedRows(times, edges[:-1], spaces, groupings, (), continues=False), *self._rows[chunk])

    def columns(self, chunk: int) -> Sequence[pa.Array]:
        """The columns of a chunk. Raises OSError."""
        block = self._block(chunk)
        first, last = self._rows[chunk]
        fields = zip(self._schema.fields, self._contexts, strict=True)
        columns = [block.column(place, field.type, context) for place, (field, context) in enumerate(fields)]
        return [column.slice(first, last - first) for column in columns]

    def close(self) -> None:
        """Free the temporary file."""
        self._blocks.close()
