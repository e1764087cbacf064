"""Turn decoded rows into `Event` objects, many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from esformat.core.events import Column, Columns, Event, row_events
from esformat.core.keys import number_keys
from esformat.core.values import cut
from esformat.format.arrays import bytes_of, numbers_of
from esformat.format.schema import DATA_COLUMN, changed_type

EVENTS_AT_ONCE = 1024  # rows turned into Python objects together: few enough to stay in the CPU cache

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Keys:
    """The spaces or the groupings of rows: row i has `keys[places[i]]`; if there is only one key, every row has it."""

    keys: list[str | bytes]
    places: I64


@dataclass(frozen=True, slots=True)
class EventRows:
    """Decoded rows of a scan.

    `data`: their payloads. Row i is row `places[i]` (None: i) of the blocks that begin at `starts`; `columns` are the
    blocks' other columns.
    """

    times: I64
    data: pa.Array | None
    spaces: Keys
    groupings: Keys
    columns: Sequence[Columns]
    starts: I64
    places: I64 | None = None

    def __len__(self) -> int:
        return len(self.times)

    def iterators(self, *, reverse: bool = False) -> Iterator[list[Event]]:
        """The events in lists of about a thousand; with `reverse`, in exactly the opposite order."""
        columns = list(self.columns)
        starts = range(0, len(self.times), EVENTS_AT_ONCE)
        for first in reversed(starts) if reverse else starts:
            last = min(first + EVENTS_AT_ONCE, len(self.times))
            data = None if self.data is None else _values(self.data, first, last)
            yield row_events(
                self.spaces.keys, self.spaces.places, self.groupings.keys, self.groupings.places, self.times, data,
                first, last, columns, self.starts, self.places, reverse,
            )  # fmt: skip


def _values(payload: pa.Array, first: int, last: int) -> list[Any]:
    """Values [first, last) of an array as Python objects."""
    if payload.type != pa.binary() or payload.null_count or payload.buffers()[2] is None:
        return payload.slice(first, last - first).to_pylist()  # type: ignore[no-any-return]
    _, offsets, data = payload.buffers()
    edges = np.frombuffer(offsets, np.int32, last - first + 1, 4 * (payload.offset + first)).astype(np.int64)
    return cut(np.frombuffer(data, np.uint8), edges, 0, last - first, 0)


def python_values(array: pa.Array) -> list[Any]:
    """The values as Python objects.

    A date, time or duration that Python cannot represent, such as a time after the year 9999, is a number in the unit
    of its type. Times in a zone that this machine does not know are converted to UTC.
    """
    try:
        return array.to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowInvalid:
        known = changed_type(array.type, _in_utc)
        if known != array.type:
            return python_values(array.cast(known))
    except (OverflowError, ValueError):
        pass
    numbers = array.cast(changed_type(array.type, _as_number))
    return [_python_value(value, number) for value, number in zip(array, numbers, strict=True)]


def _python_value(value: pa.Scalar, number: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        return number.as_py()


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit, "+00:00") if pt.is_timestamp(kind) and kind.tz is not None else kind


def _as_number(kind: pa.DataType) -> pa.DataType:
    if not pt.is_temporal(kind) or pt.is_interval(kind):
        return kind
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def batch_columns(
    batch: pa.RecordBatch,
    names: Sequence[str],
    indexes: tuple[str, ...],
    shown: Callable[[bytes], str | bytes] | None = None,
) -> tuple[list[Columns], I64]:
    """Some columns of a batch as its events show them, in parts of about a thousand rows; and the parts' first rows.

    shown: converts bytes of an indexed column to what events show.
    """

    def column(name: str, values: Any) -> Column:
        indexed = name in indexes
        if shown is not None and indexed:
            values = [shown(value) if isinstance(value, bytes) else value for value in values]
        return Column(name, indexed, values)

    def load(first: int) -> list[Column]:
        part = batch.slice(first, EVENTS_AT_ONCE)
        return [column(name, python_values(part[name])) for name in names]

    starts = np.arange(0, max(len(batch), 1), EVENTS_AT_ONCE)
    return [Columns(partial(load, first)) for first in starts.tolist()], starts


def keys_of(column: pa.Array) -> Keys:
    """The spaces or groupings of a batch."""
    edges, data = bytes_of(column)
    places = np.empty(len(column), np.int64)
    keys = number_keys(edges, data.cast("B"), places)
    return Keys(list(keys) if pt.is_binary(column.type) else [key.decode() for key in keys], places)


def rows_of_batch(batch: pa.RecordBatch, indexes: tuple[str, ...]) -> EventRows:
    """The rows of a record batch that has the key columns.

    Never releases the GIL: for a short history, reacquiring it would take most of the time.
    """
    names = batch.schema.names
    data = batch.column(DATA_COLUMN) if DATA_COLUMN in names else None
    keys = ("space", "grouping", "timestamp", DATA_COLUMN)
    columns, starts = batch_columns(batch, [name for name in names if name not in keys], indexes)
    return EventRows(
        times=numbers_of(batch.column("timestamp")).view(np.int64),
        data=data,
        spaces=keys_of(batch.column("space")),
        groupings=keys_of(batch.column("grouping")),
        columns=columns,
        starts=starts,
    )
