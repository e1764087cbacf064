"""The quick way from one data block to `Event` objects: no Arrow in between, only the frames that are needed.

For segments whose payload is `data` and perhaps some numbers; these and the indexed columns stay compressed until
somebody asks an event for them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esformat.event import Event
from esformat.format.data_block import FIRST_COLUMN_CHUNK, I64, DataBlock
from esformat.format.encoding import decode_node
from esformat.format.node import Shape, read_head
from esformat.format.packing import decode_ints, read_pack
from esformat.read.plan import Narrowed, Portion, Query
from esformat.read.reader import Reader

MANY_ROWS = 64


def find_rows(reader: Reader, query: Query, portion: Portion, block: DataBlock, narrowed: Narrowed) -> list[int] | None:
    """Rows of the block, all within one run, that answer the query; None for all of the portion."""
    leaf, number, first, last, listed, run_start = portion
    origin = leaf.block_rows[number]
    low, high = first - origin, last - origin
    rows: list[int] | None = None if listed is None else (listed - origin).tolist()
    for name, value in narrowed.unmet:
        equal = _rows_equal(reader, block, name, value, low, high)
        rows = equal if rows is None else sorted(set(rows) & set(equal))
        if not rows:
            return rows
    if query.timed and not query.covers(leaf.block_min[number], leaf.block_max[number]):
        times = block.run_timestamps(max(run_start - origin, 0), low, high, reader.own().plain)
        a = 0 if query.start is None else bisect_left(times, query.start)
        b = len(times) if query.end is None else bisect_left(times, query.end)
        rows = list(range(low + a, low + b)) if rows is None else [row for row in rows if low + a <= row < low + b]
    return rows


def _rows_equal(reader: Reader, block: DataBlock, name: str, value: Any, low: int, high: int) -> list[int]:
    """Rows [low, high) of a block that have `value` in an indexed column."""
    place = reader.schema.positions[name]
    plain = reader.own().plain
    short = block.short_codes(place, plain)
    if short is not None:
        base, stored = short
        return _find_byte(stored, reader.value_codes(block.dictionary, place).get(value, -1) - base, low, high)
    body = block.body
    head = read_head(body, block.chunks[FIRST_COLUMN_CHUNK + place], block.row_count, plain)
    equal: npt.NDArray[np.bool_]
    if head.shape == Shape.CODES:
        code = reader.value_codes(block.dictionary, place).get(value, -1)
        equal = decode_ints(body, read_pack(body, head.at, block.row_count), plain, low, high) == code
    else:
        context = reader.contexts(block.dictionary)[place]
        column = block.column(place, reader.fields[place].type, context).slice(low, high - low)
        same = pc.equal(column, pa.scalar(value, column.type)).fill_null(False)
        equal = np.asarray(same.to_numpy(zero_copy_only=False)).astype(np.bool_)
    rows: list[int] = (equal.nonzero()[0] + low).tolist()
    return rows


def _find_byte(stored: bytes, byte: int, low: int, high: int) -> list[int]:
    """Where a byte value stands in stored[low:high]."""
    if not 0 <= byte <= 255:
        return []
    rows: list[int] = []
    if high - low > MANY_ROWS:
        found = np.frombuffer(stored, np.uint8, high - low, low) == byte
        rows += (found.nonzero()[0] + low).tolist()
        return rows
    at = stored.find(byte, low, high)
    while at >= 0:
        rows.append(at)
        at = stored.find(byte, at + 1, high)
    return rows


class BlockAttributes:
    """The columns of the events of one block besides `data`, decoded when first asked for.

    Holds copies of the compressed chunks, some hundred bytes each, so that events neither pin blocks nor need the file;
    all events of a block share them.
    """

    __slots__ = ("_chunks", "_columns", "_dictionary", "_reader", "_row_count", "_shown")

    def __init__(self, reader: Reader, block: DataBlock, shown: frozenset[str] | None = None) -> None:
        """`shown`: names of the columns to give; None for all."""
        self._reader = reader
        self._shown = shown
        self._row_count = block.row_count
        self._dictionary = block.dictionary
        self._chunks = block.pieces(reader.attribute_chunks)
        self._columns: list[tuple[str, bool, pa.Array]] | None = None

    def indexes(self, row: int) -> dict[str, Any]:
        """Indexed columns of a row that are not null."""
        shown = ((name, column[row].as_py()) for name, indexed, column in self._decoded() if indexed)
        return {name: value for name, value in shown if value is not None}

    def columns(self, row: int) -> dict[str, Any]:
        """Payload columns of a row besides `data`."""
        return {name: column[row].as_py() for name, indexed, column in self._decoded() if not indexed}

    def _decoded(self) -> list[tuple[str, bool, pa.Array]]:
        if self._columns is None:
            contexts = self._reader.contexts(self._dictionary)
            columns = []
            for chunk, stored in zip(self._reader.attribute_chunks, self._chunks, strict=True):
                place = chunk - FIRST_COLUMN_CHUNK
                field = self._reader.fields[place]
                if self._shown is not None and field.name not in self._shown:
                    continue
                array = decode_node(memoryview(stored), 0, self._row_count, field.type, contexts[place])[0]
                columns.append((field.name, field.indexed, array))
            self._columns = columns
        return self._columns


class GroupAttributes:
    """The same for the events of several blocks: `starts` are their first rows, `places` the rows that were taken."""

    __slots__ = ("_blocks", "_places", "_starts")

    def __init__(self, blocks: list[BlockAttributes], starts: list[int], places: I64 | None) -> None:
        self._blocks, self._starts, self._places = blocks, starts, places

    def indexes(self, row: int) -> dict[str, Any]:
        """Indexed columns of a row that are not null."""
        block, place = self._find(row)
        return block.indexes(place)

    def columns(self, row: int) -> dict[str, Any]:
        """Payload columns of a row besides `data`."""
        block, place = self._find(row)
        return block.columns(place)

    def _find(self, row: int) -> tuple[BlockAttributes, int]:
        place = row if self._places is None else int(self._places[row])
        block = bisect_right(self._starts, place) - 1
        return self._blocks[block], place - self._starts[block]


class EventMaker:
    """Makes the events of one scan of a single run of rows."""

    def __init__(
        self,
        reader: Reader,
        space: str | bytes,
        grouping: str | bytes,
        *,
        reverse: bool,
        shown: frozenset[str] | None = None,
    ) -> None:
        """`shown`: names of the columns that events have besides `data`; None for all."""
        self._reader = reader
        self._shown = shown
        self._space, self._grouping, self._reverse = space, grouping, reverse
        self._place = reader.data_place
        self._plain = reader.own().plain

    def stretch(self, block: DataBlock, run_start: int, low: int, high: int) -> Iterator[Event]:
        """Events of rows [low, high) of a block; their run begins at row `run_start` of it."""
        times = block.run_timestamps(run_start, low, high, self._plain)
        return self._make(block, times, self._data(block, low, high), range(low, high))

    def picked(self, block: DataBlock, run_start: int, places: list[int]) -> Iterator[Event]:
        """Events of some rows of a block, all of one run."""
        low, high = places[0], places[-1] + 1
        if high - run_start > MANY_ROWS:
            times = block.run_times(run_start, high, self._plain)
            chosen = times[np.array(places) - run_start].tolist()
        else:
            near = block.run_timestamps(run_start, low, high, self._plain)
            chosen = [near[row - low] for row in places]
        return self._make(block, chosen, self._chosen_data(block, places), places)

    def _make(self, block: DataBlock, times: list[int], data: list[Any], rows: Any) -> Iterator[Event]:
        if self._reverse:
            times.reverse()
            data.reverse()
            rows = rows[::-1]
        attributes = BlockAttributes(self._reader, block, self._shown)
        return map(Event, zip(repeat(self._space), repeat(self._grouping), times, data, rows, repeat(attributes)))

    def _data(self, block: DataBlock, low: int, high: int) -> list[Any]:
        if self._place is None:
            return [None] * (high - low)
        context = self._reader.contexts(block.dictionary)[self._place]
        return block.bytes_node(self._place, context).values(low, high, context, self._reader.frames)

    def _chosen_data(self, block: DataBlock, places: list[int]) -> list[Any]:
        if self._place is None:
            return [None] * len(places)
        context = self._reader.contexts(block.dictionary)[self._place]
        return block.bytes_node(self._place, context).chosen_values(places, context, self._reader.frames)
