"""Validation of events for a Go ESDB file, as one table of checked columns; writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from esformat.customerio.varint import I64
from esformat.errors import InvalidEventError
from esformat.event import to_key, to_microseconds
from esformat.format.layout import MAX_FRAME_BYTES, MAX_KEY_BYTES

SECOND_US = 1_000_000
MAX_SECONDS = (1 << 32) - 1
KEYS = ("space", "grouping", "timestamp", "data")


def check_events(table: pa.Table, names: Mapping[str, str] | None = None) -> pa.Table:
    """Return `table` with binary columns space, grouping, data and one per index, and int64 `timestamp` in µs.

    All other columns are indexes of text or bytes; null means that an event has no value. `names` maps columns to index
    names in the file that differ. Raises InvalidEventError for values that the file cannot store.
    """
    doubled = sorted(name for name, times in Counter(table.column_names).items() if times > 1)
    if doubled:
        raise InvalidEventError(f"duplicate column {doubled[0]!r}", hint="rename one of them")
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidEventError(f"the table is broken: {error}") from None
    if "data" not in table.column_names:
        raise InvalidEventError("missing column 'data'", hint="a Go ESDB file keeps one payload of bytes per event")
    columns = {
        "space": _bytes(table, "space", nullable=False),
        "grouping": _bytes(table, "grouping", nullable=False),
        "timestamp": _timestamps(table),
        "data": _bytes(table, "data", nullable=False),
    }
    stored = dict(names or {})
    for name in table.column_names:
        if name in KEYS:
            continue
        index = stored.get(name, name)
        if ":" in index:
            raise InvalidEventError(
                f"the index name {index!r} holds a colon",
                hint="in the file, it could not be distinguished from the value",
            )
        if f"i{index}" in columns:
            raise InvalidEventError(f"two columns are the index {index!r}")
        columns[f"i{index}"] = _bytes(table, name, nullable=True)
    return pa.table(columns)


def _bytes(table: pa.Table, name: str, *, nullable: bool) -> pa.ChunkedArray:
    if name not in table.column_names:
        return pa.chunked_array([pa.repeat(pa.scalar(b"", pa.binary()), len(table))])
    column = table.column(name)
    kind = column.type
    if pt.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    textual = pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
    if not (textual or pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind) or pt.is_null(kind)):
        raise InvalidEventError(
            f"column {name!r} of type {kind} has no place in a Go ESDB file",
            hint="it holds bytes as `data` and text as indexes; cast the column, or leave it out",
        )
    if column.null_count and not nullable:
        row = int(pc.index(column.is_null(), True).as_py())
        raise InvalidEventError(f"column {name!r} is null in row {row}", hint="fill it, or leave the row out")
    longest = pc.max(pc.binary_length(column.cast(pa.large_binary()))).as_py() or 0
    most = MAX_FRAME_BYTES if name == "data" else MAX_KEY_BYTES
    if longest > most:
        raise InvalidEventError(f"column {name!r} holds a value of {longest} bytes, more than {most}")
    return column.cast(pa.large_binary() if column.nbytes > 1 << 30 else pa.binary())


def _timestamps(table: pa.Table) -> pa.ChunkedArray:
    if "timestamp" not in table.column_names:
        return pa.chunked_array([pa.array(np.zeros(len(table), dtype=np.int64))])
    column = table.column("timestamp")
    kind = column.type
    if column.null_count or not (pt.is_integer(kind) or (pt.is_timestamp(kind) and kind.tz is not None)):
        raise InvalidEventError(
            f"column 'timestamp' of type {kind} must hold int64 µs or times with a zone, and no null", hint="cast it"
        )
    try:
        return (
            column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
            if pt.is_timestamp(kind)
            else column.cast(pa.int64())
        )
    except pa.ArrowInvalid as error:
        raise InvalidEventError(f"column 'timestamp' does not fit microseconds: {error}") from None


def check_archive(events: pa.Table) -> I64:
    """Return the timestamps of checked events in seconds. Raises InvalidEventError if an archive cannot store them."""
    times = np.asarray(events["timestamp"].to_numpy())
    seconds: I64 = times // SECOND_US
    broken = np.flatnonzero((seconds * SECOND_US != times) | (seconds < 0) | (seconds > MAX_SECONDS))
    if len(broken):
        raise InvalidEventError(
            f"timestamp {times[broken[0]]} µs in row {broken[0]} is not a whole second from 1970 to 2106",
            hint="an archive keeps seconds in 32 bits: floor the times first, if that is what you want",
        )
    for name, hint in (
        ("space", "the Go ESDB cannot open an archive with one"),
        ("data", "the Go ESDB ends a scan of an archive there"),
    ):
        row = pc.index(pc.binary_length(events[name]), 0).as_py()
        if row >= 0:
            space = events["space"][row].as_py()
            raise InvalidEventError(f"empty {name} in row {row}, of space {space!r}", hint=hint)
    return seconds


def check_stream(events: pa.Table) -> None:
    """Raise InvalidEventError for spaces, groupings and times, which a stream would lose."""
    for name in ("space", "grouping"):
        if pc.any(pc.greater(pc.binary_length(events[name]), 0)).as_py():
            raise InvalidEventError(f"a stream keeps no {name}, and an event has one", hint="write an archive")
    if pc.any(pc.not_equal(events["timestamp"], 0)).as_py():
        raise InvalidEventError("a stream keeps no timestamps, and an event has one", hint="write an archive")


class EventList:
    """Buffers events that are added one at a time, and checks them."""

    FLUSH_EVENTS = 16384

    def __init__(self) -> None:
        self._rows: list[tuple[bytes, bytes, int, bytes]] = []
        self._indexes: dict[str, list[tuple[int, bytes]]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, space: Any, data: Any, timestamp: Any, grouping: Any, indexes: Mapping[str, Any] | None) -> None:
        """Add one event. If it raises InvalidEventError, nothing is added."""
        payload = data.encode() if isinstance(data, str) else data
        if not isinstance(payload, bytes | bytearray | memoryview):
            raise InvalidEventError(f"data must be bytes, not {type(data).__name__}", hint="encode it first")
        values = {name: to_key(value) for name, value in (indexes or {}).items() if value is not None}
        if any(not isinstance(name, str) for name in values):
            raise InvalidEventError("the names of indexes must be text")
        row = (to_key(space), to_key(grouping), to_microseconds(timestamp), bytes(payload))
        for name, value in values.items():
            self._indexes.setdefault(name, []).append((len(self._rows), value))
        self._rows.append(row)

    def take(self) -> pa.Table:
        """Return the checked events so far, and clear the buffer."""
        spaces, groupings, times, data = zip(*self._rows, strict=True) if self._rows else ((), (), (), ())
        columns: dict[str, Any] = {
            "space": pa.array(spaces, pa.binary()),
            "grouping": pa.array(groupings, pa.binary()),
            "timestamp": pa.array(times, pa.int64()),
            "data": pa.array(data, pa.binary()),
        }
        # prefixed with "i", so that an index may have the name of one of the four
        stored = {f"i{name}": name for name in self._indexes}
        for name, pairs in self._indexes.items():
            values: list[bytes | None] = [None] * len(self._rows)
            for row, value in pairs:
                values[row] = value
            columns[f"i{name}"] = pa.array(values, pa.binary())
        self._rows, self._indexes = [], {}
        return check_events(pa.table(columns), stored)
