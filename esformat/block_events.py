"""The quick way from one data block to `Event` objects: no Arrow in between, only the frames that are needed.

For segments whose payload is `data`; the indexed columns stay compressed until somebody asks an event for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Any

import pyarrow as pa

from esformat.data_block import FIRST_COLUMN_CHUNK, I64, DataBlock
from esformat.encoding import BytesNode, decode_node
from esformat.event import Event
from esformat.reader import Reader
from esformat.schema import DATA_COLUMN

new_event = partial(tuple.__new__, Event)
"""`Event` from a tuple of its six parts, without a Python frame per event."""


def can_read_directly(reader: Reader) -> bool:
    """Whether the segment's events are `data` and indexed columns, nothing else."""
    return all(field.indexed or field.name == DATA_COLUMN and field.type == pa.binary() for field in reader.fields)


class BlockAttributes:
    """The indexed columns of the events of one block, decoded when first asked for.

    Holds copies of the compressed chunks, a few hundred bytes, so that events neither pin blocks nor need the file.
    """

    __slots__ = ("_chunks", "_columns", "_reader", "_row_count", "dictionary")

    def __init__(self, reader: Reader, block: DataBlock) -> None:
        self._reader = reader
        self._row_count = block.row_count
        self.dictionary = block.dictionary
        at = block.chunks
        self._chunks = [
            (place, bytes(block.body[at[FIRST_COLUMN_CHUNK + place] : at[FIRST_COLUMN_CHUNK + place + 1]]))
            for place, field in enumerate(reader.fields)
            if field.indexed
        ]
        self._columns: list[tuple[str, pa.Array]] | None = None

    def indexes(self, row: int) -> dict[str, Any]:
        """Indexed columns of a row that are not null."""
        if self._columns is None:
            contexts = self._reader.contexts(self.dictionary)
            fields = self._reader.fields
            self._columns = [
                (fields[p].name, decode_node(memoryview(c), 0, self._row_count, fields[p].type, contexts[p])[0])
                for p, c in self._chunks
            ]
        return {name: value for name, column in self._columns if (value := column[row].as_py()) is not None}

    def columns(self, row: int) -> dict[str, Any]:
        """There are none besides `data`."""
        return {}


class EventMaker:
    """Makes the events of one scan of a single run of rows."""

    def __init__(self, reader: Reader, space: str | bytes, grouping: str | bytes, *, reverse: bool) -> None:
        self._reader = reader
        self._space, self._grouping, self._reverse = space, grouping, reverse
        self._place = reader.schema.positions.get(DATA_COLUMN)
        self._plain = reader.own().plain

    def stretch(self, block: DataBlock, run_start: int, low: int, high: int) -> Iterator[Event]:
        """Events of rows [low, high) of a block; their run begins at row `run_start` of it."""
        times = block.run_timestamps(run_start, low, high, self._plain)
        return self._make(block, times, self._data(block, low, high), range(low, high))

    def picked(self, block: DataBlock, run_start: int, rows: I64) -> Iterator[Event]:
        """Events of some rows of a block, all of one run."""
        places = rows.tolist()
        low, high = places[0], places[-1] + 1
        times = block.run_timestamps(run_start, low, high, self._plain)
        chosen = [times[row - low] for row in places]
        return self._make(block, chosen, self._chosen_data(block, places), places)

    def _make(self, block: DataBlock, times: list[int], data: list[Any], rows: Any) -> Iterator[Event]:
        if self._reverse:
            times.reverse()
            data.reverse()
            rows = rows[::-1]
        attributes = BlockAttributes(self._reader, block)
        return map(new_event, zip(repeat(self._space), repeat(self._grouping), times, data, rows, repeat(attributes)))

    def _node(self, block: DataBlock) -> BytesNode:
        assert self._place is not None
        context = self._reader.contexts(block.dictionary)[self._place]
        return BytesNode(block.body, block.chunks[FIRST_COLUMN_CHUNK + self._place], block.row_count, context)

    def _data(self, block: DataBlock, low: int, high: int) -> list[Any]:
        return [None] * (high - low) if self._place is None else self._node(block).values(low, high)

    def _chosen_data(self, block: DataBlock, places: list[int]) -> list[Any]:
        return [None] * len(places) if self._place is None else self._node(block).chosen_values(places)
