"""Decode the rows of one run in one data block to an Arrow batch: the fast path for a history, which has a few rows in
a few blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from esformat.event import to_key
from esformat.format.arrays import TextForm, bitmap, chosen_keys, numbers_array, repeated_key
from esformat.format.data_block import I64, DataBlock
from esformat.format.node import Shape, shape_of
from esformat.format.packing import decode_ints, read_pack
from esformat.format.schema import TIMESTAMP_TYPE
from esformat.read.blocks.reader import Reader
from esformat.read.decode.block_events import RunPart, rows_of


class BatchMaker:
    """Creates the batches of one scan, of a single run or of all runs of a space."""

    def __init__(
        self,
        reader: Reader,
        space: str | bytes,
        grouping: str | bytes = "",
        reverse: bool = False,
        columns: Sequence[str] | None = None,
        texts: TextForm = TextForm.PLAIN,
    ) -> None:
        """grouping: of a single run. texts: the form of text that is stored as codes, if producing it is less work."""
        self._reader, self._reverse = reader, reverse
        self._space, self._grouping = to_key(space), to_key(grouping)
        self._schema = reader.schema.select(columns)
        self._texts = texts

    def consecutive(self, block: DataBlock, run_start: int, low: int, high: int) -> pa.RecordBatch:
        """Rows [low, high) of a block; their run begins at its row `run_start`."""
        batch = self._of_run(block, run_start, low, high)
        return batch.take(pa.array(np.arange(high - low - 1, -1, -1))) if self._reverse else batch

    def picked(self, block: DataBlock, run_start: int, places: list[int]) -> pa.RecordBatch:
        """Some rows of a block, all of one run."""
        batch = self._of_run(block, run_start, places[0], places[-1] + 1)
        chosen = np.array(places[::-1] if self._reverse else places) - places[0]
        return batch.take(pa.array(chosen))

    def several(self, block: DataBlock, parts: Sequence[RunPart], order: I64 | None = None) -> pa.RecordBatch:
        """Rows of several runs in one block. order: the positions of the rows in the result; None: as in the file."""
        rows = np.array(rows_of(parts))
        low, high = int(rows[0]), int(rows[-1]) + 1
        numbers = np.repeat(np.arange(len(parts)), [len(part.times) for part in parts])
        times = np.concatenate([part.times for part in parts])
        if order is not None:
            rows, numbers, times = rows[order], numbers[order], times[order]
        groupings = chosen_keys([to_key(part.grouping) for part in parts], self._reader.schema.key_type, numbers)
        places = None if order is None and len(rows) == high - low else pa.array(rows - low)
        arrays = []
        with self._reader.named:
            for name in self._schema.names:
                array = self._array(name, block, times, low, high, groupings)
                of_block = name not in ("space", "grouping", "timestamp")
                arrays.append(array.take(places) if of_block and places is not None else array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _of_run(self, block: DataBlock, run_start: int, low: int, high: int) -> pa.RecordBatch:
        with self._reader.named:
            times = np.asarray(block.run_times(run_start, low, high, self._reader.thread_context().plain))
            arrays = [self._array(name, block, times, low, high) for name in self._schema.names]
        if self._texts is TextForm.PLAIN:
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return pa.RecordBatch.from_arrays(arrays, names=self._schema.names)

    def _array(
        self, name: str, block: DataBlock, times: I64, low: int, high: int, groupings: pa.Array | None = None
    ) -> pa.Array:
        """A column of rows [low, high). groupings: of each row; None: all rows have the run's grouping."""
        if name == "space":
            return repeated_key(self._space, self._reader.schema.key_type, len(times))
        if name == "grouping":
            kind = self._reader.schema.key_type
            return repeated_key(self._grouping, kind, len(times)) if groupings is None else groupings
        if name == "timestamp":
            return numbers_array(times, TIMESTAMP_TYPE)
        return self._column(block, self._reader.schema.positions[name], low, high)

    def _column(self, block: DataBlock, place: int, low: int, high: int) -> pa.Array:
        """Values [low, high) of a payload or index column."""
        reader = self._reader
        kind, context = reader.fields[place].type, reader.contexts(block.dictionary)[place]
        head = block.head(place, context.plain)
        if head.shape == Shape.CODES and context.values is not None:
            short = block.short_codes(place, context.plain)
            if short is not None and not short[0]:
                return context.values.taken(np.frombuffer(short[1], np.uint8, high - low, low), self._texts)
        elif head.shape in (Shape.BYTES, Shape.TEMPLATES) and (pt.is_string(kind) or pt.is_binary(kind)):
            node = block.bytes_node(place, context)
            offsets, data = node.offsets_and_bytes(low, high, context, reader.frames)
            valid = bitmap(node.validity(low, high))
            array = pa.Array.from_buffers(kind, high - low, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])
            if pt.is_string(kind):
                array.validate(full=True)
            return array
        elif head.shape == Shape.INTS and shape_of(kind) is Shape.INTS:
            numbers = decode_ints(block.body, read_pack(block.body, head.at, block.row_count), context.plain, low, high)
            return numbers_array(numbers, kind, None if head.valid is None else head.valid[low:high])
        column = block.column(place, kind, context).slice(low, high - low)
        return pa.concat_arrays([column])  # a copy, see `slices_mislead`
