"""Decoded rows on their way to `Event` objects, many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.event import Attributes, Event
from esformat.format.schema import DATA_COLUMN

EVENTS_AT_ONCE = 1024  # rows turned into Python objects together: few enough to stay in the processor's cache


class BatchAttributes:
    """Columns of the events of one batch beyond the four that an event carries."""

    __slots__ = ("_indexes", "_payload")

    def __init__(self, batch: pa.RecordBatch | None, indexes: tuple[str, ...]) -> None:
        columns = {} if batch is None else dict(zip(batch.schema.names, batch.columns, strict=True))
        self._indexes = {name: column for name, column in columns.items() if name in indexes}
        self._payload = {name: column for name, column in columns.items() if name not in indexes}

    def indexes(self, row: int) -> dict[str, Any]:
        """Indexed columns of a row that are not null."""
        return {name: v for name, column in self._indexes.items() if (v := column[row].as_py()) is not None}

    def columns(self, row: int) -> dict[str, Any]:
        """Payload columns of a row besides `data`."""
        return {name: column[row].as_py() for name, column in self._payload.items()}


@dataclass(frozen=True, slots=True)
class EventRows:
    """Rows of a scan, decoded. `spaces` and `groupings` (None: all `empty`) are arrays of Python keys.

    `data` gives the payload when it is needed: another thread may still be decompressing it.
    """

    times: npt.NDArray[np.int64]
    data: Callable[[], pa.Array] | None
    spaces: npt.NDArray[np.object_]
    groupings: npt.NDArray[np.object_] | None
    empty: str | bytes
    attributes: Attributes

    def __len__(self) -> int:
        return len(self.times)

    def iterators(self, *, reverse: bool = False) -> Iterator[Iterator[Event]]:
        """The events, a thousand or so in each iterator; `reverse` gives the exact mirror."""
        payload = None if self.data is None else self.data()
        starts = range(0, len(self.times), EVENTS_AT_ONCE)
        for first in reversed(starts) if reverse else starts:
            last = min(first + EVENTS_AT_ONCE, len(self.times))
            times = self.times[first:last].tolist()
            spaces = self.spaces[first:last].tolist()
            groupings: Iterable[Any] = repeat(self.empty)
            if self.groupings is not None:
                groupings = self.groupings[first:last].tolist()[:: -1 if reverse else 1]
            data: Iterable[Any] = repeat(None)
            if payload is not None:
                data = payload.slice(first, last - first).to_pylist()[:: -1 if reverse else 1]
            rows: Iterable[int] = range(first, last)
            if reverse:
                times.reverse()
                spaces.reverse()
                rows = range(last - 1, first - 1, -1)
            yield map(Event, zip(spaces, groupings, times, data, rows, repeat(self.attributes)))


def rows_of_batch(batch: pa.RecordBatch, indexes: tuple[str, ...], empty: str | bytes) -> EventRows:
    """The rows of a record batch that has the key columns."""
    names = batch.schema.names
    data = batch.column(DATA_COLUMN) if DATA_COLUMN in names else None
    keys = ("space", "grouping", "timestamp", DATA_COLUMN)
    return EventRows(
        times=np.asarray(batch.column("timestamp").cast(pa.int64()).to_numpy()),
        data=None if data is None else lambda: data,
        spaces=batch.column("space").to_numpy(zero_copy_only=False),
        groupings=batch.column("grouping").to_numpy(zero_copy_only=False),
        empty=empty,
        attributes=BatchAttributes(batch.select([name for name in names if name not in keys]), indexes),
    )
