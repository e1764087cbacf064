"""The fast path from one data block to `Event` objects: without Arrow, and decompressing only the frames needed.

Numbers, and text that is stored as codes, stay compressed until an event's value is accessed; other columns are decoded
for the rows of the events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from esformat.core.blocks import FIRST_COLUMN_CHUNK
from esformat.core.events import Column, Columns, Event, RowEvents, run_events
from esformat.core.leaves import BlockSlice
from esformat.errors import CorruptSegmentError
from esformat.format.data_block import I64, DataBlock
from esformat.format.encoding import decode_node
from esformat.format.node import DecodeContext, Shape, read_head
from esformat.format.packing import decode_ints, plane_bytes, read_pack
from esformat.format.schema import Field
from esformat.read.ask.question import Query
from esformat.read.blocks.plan import IndexMatches
from esformat.read.blocks.reader import Reader
from esformat.read.decode.event_rows import python_values


def find_rows(
    reader: Reader, query: Query, part: BlockSlice, block: DataBlock, index_matches: IndexMatches
) -> list[int] | None:
    """Rows of a block slice within one run that match the query; None for all of the slice."""
    low, high = part.first - part.origin, part.last - part.origin
    rows: list[int] | None = None if part.rows is None else (part.rows - part.origin).tolist()
    for name, value in index_matches.unmet:
        equal: list[int] | None = reader.rows_with(block, name, value, low, high)
        if equal is None:
            equal = _rows_equal(reader, block, name, value, low, high)
        rows = equal if rows is None else sorted(set(rows) & set(equal))
        if not rows:
            return rows
    if query.timed and not query.covers(part.min_timestamp, part.max_timestamp):
        times = block.run_times(part.run_row, low, high, reader.thread_context().plain)
        a = 0 if query.start is None else bisect_left(times, query.start)
        b = len(times) if query.end is None else bisect_left(times, query.end)
        rows = list(range(low + a, low + b)) if rows is None else [row for row in rows if low + a <= row < low + b]
    return rows


def _rows_equal(reader: Reader, block: DataBlock, name: str, value: Any, low: int, high: int) -> list[int]:
    """The rows among [low, high) of a block that have `value` in an indexed column."""
    place, plain = reader.positions[name], reader.thread_context().plain
    if block.short_codes(place, plain) is not None:
        return reader.rows_with(block, name, value, low, high) or []
    body = block.body
    head = read_head(body, block.start_of(FIRST_COLUMN_CHUNK + place), block.row_count, plain)
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


NO_COLUMNS = Columns(list)


def block_columns(reader: Reader, block: DataBlock) -> Columns:
    """The columns of a whole block's events besides `data`, decoded on first access.

    They contain copies of the compressed chunks, so that events neither pin blocks nor need the file.
    """
    if not reader.attribute_chunks:
        return NO_COLUMNS
    stored = block.pieces(reader.attribute_chunks)
    return Columns(_load, reader, stored, block.dictionary, block.row_count, 0, None, None)


def _shown(reader: Reader, shown: Sequence[str] | None) -> list[bool]:
    """For each column chunk besides `data`, whether events show it."""
    if shown is None:
        return [True] * len(reader.attribute_chunks)
    names = frozenset(shown)
    return [reader.fields[chunk - FIRST_COLUMN_CHUNK].name in names for chunk in reader.attribute_chunks]


def _values(reader: Reader, block: DataBlock, place: int, low: int, high: int) -> Any:
    """Rows [low, high) of a column as Python values."""
    field = reader.fields[place]
    context = reader.contexts(block.dictionary)[place]
    if block.head(place, context.plain).shape not in (Shape.BYTES, Shape.TEMPLATES):
        return python_values(block.column(place, field.type, context).slice(low, high - low))
    values = block.bytes_node(place, context).values(low, high, context, reader.frames)
    if not (pt.is_string(field.type) or pt.is_large_string(field.type)):
        return values
    try:
        return [None if value is None else value.decode() for value in values]
    except UnicodeDecodeError as error:
        raise CorruptSegmentError(f"stored text is broken: {error}", offset=block.offset) from None


def _load(
    reader: Reader,
    stored: list[Any],
    dictionary: int,
    row_count: int,
    low: int,
    high: int | None,
    shown: Sequence[str] | None,
) -> list[Column]:
    columns = []
    with reader.named:
        contexts = reader.contexts(dictionary)
        for chunk, piece in compress(zip(reader.attribute_chunks, stored, strict=True), _shown(reader, shown)):
            place = chunk - FIRST_COLUMN_CHUNK
            field = reader.fields[place]
            if isinstance(piece, bytes):
                body = memoryview(piece)
                columns.append(_column(field, body, row_count, low, high, contexts[place], reader.name))
            else:
                columns.append(Column(field.name, field.indexed, piece, first=low))
    return columns


def _column(
    field: Field, body: memoryview, row_count: int, low: int, high: int | None, context: DecodeContext, path: str
) -> Column:
    head = read_head(body, 0, row_count, context.plain)
    if head.shape == Shape.CODES and context.values is not None:
        pack = read_pack(body, head.at, row_count)
        if pack.width == 1 and not pack.base and not pack.bits:
            codes = plane_bytes(body, pack, context.plain)
            return Column(field.name, field.indexed, context.values.listed, codes=codes, path=path)
        if pack.width == 1 and pack.base >= 0:
            numbers = decode_ints(body, pack, context.plain, low, high)
            return Column(field.name, field.indexed, context.values.listed_for(numbers), first=low)
    array = decode_node(body, 0, row_count, field.type, context)[0]
    return Column(field.name, field.indexed, python_values(array[low:high]), first=low)


class RunPart(NamedTuple):
    """Some rows of one grouping within one block, and their timestamps, µs.

    rows: the rows, ascending, of which `first` is the first; None if they are consecutive.
    """

    block: DataBlock
    grouping: str | bytes
    first: int
    rows: list[int] | None
    times: I64


def rows_of(parts: Sequence[RunPart]) -> Sequence[int]:
    """The rows of parts of one block, ascending."""
    first, last = parts[0].first, parts[-1]
    count = sum(len(part.times) for part in parts)
    end = last.first + len(last.times) if last.rows is None else last.rows[-1] + 1
    if end - first == count:
        return range(first, end)
    return [
        row
        for part in parts
        for row in (range(part.first, part.first + len(part.times)) if part.rows is None else part.rows)
    ]


class EventMaker(RowEvents):
    """Creates the events of one scan, of a single run or of all runs of a space."""

    __slots__ = ()
    load = staticmethod(_load)

    def several(self, block: DataBlock, parts: Sequence[RunPart]) -> list[Event]:
        """Events of several runs in one block, in the order of their rows."""
        rows = rows_of(parts)
        low, high = rows[0], rows[-1] + 1
        made: list[Event] = []
        with self.reader.named:
            data = self.data(block, low, high, None if len(rows) == high - low else list(rows))
            columns = self.columns(block, low, high)
            for part in parts:
                few = None if data is None else data[len(made) : len(made) + len(part.times)]
                made += run_events(self.space, part.grouping, part.times, few, part.first, part.rows, columns, False)
        return made

    def pieces(self, block: DataBlock, low: int, high: int) -> list[Any]:
        """What the columns besides `data` of rows [low, high) are later loaded from: light chunks as they are stored,
        the others decoded now.
        """
        reader = self.reader
        stored: list[Any] = block.light_pieces(reader.attribute_chunks)
        return [
            piece
            if piece is not None or not is_shown
            else _values(reader, block, chunk - FIRST_COLUMN_CHUNK, low, high)
            for chunk, piece, is_shown in zip(reader.attribute_chunks, stored, _shown(reader, self.shown), strict=True)
        ]

    def payloads(self, block: DataBlock, low: int, high: int, places: list[int] | None) -> list[Any]:
        """The payloads of rows [low, high), or of those among them at ascending `places`."""
        reader, place = self.reader, self.reader.data_place
        if not reader.plain_data:
            near = _values(reader, block, place, low, high)
            return list(near) if places is None else [near[place - low] for place in places]
        context = reader.contexts(block.dictionary)[place]
        node = block.bytes_node(place, context)
        if places is None:
            return node.values(low, high, context, reader.frames)
        return node.chosen_values(places, context, reader.frames)
