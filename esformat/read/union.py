"""Ordered union of sorted streams of Arrow batches, by any number of key columns.

Rows are merged many at a time: some thousand rows of every stream are buffered, and all buffered rows up to the key at
which the first buffer runs out are sorted together. A stream is opened when the union comes near its first key, so
streams that do not overlap are read one after another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import gt, lt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.format.order import rank
from esformat.write.ordered_pieces import ordered_pieces

BUFFERED_ROWS, BUFFERED_BYTES = 1 << 18, 32 << 20  # buffered of all streams together; each has at least one batch
MOST_ROWS, LEAST_ROWS = 1 << 16, 1 << 9  # of one stream
MOST_BYTES, LEAST_BYTES = 4 << 20, 128 << 10  # of one stream's rows, if that is less
OPENED_AT_ONCE = 64

Key = tuple[Any, ...]
Advance = Callable[[Callable[["_Open"], None], Iterable["_Open"]], Iterable[None]]
"""Calls a function with each of several streams, like `map`; in threads if reading means waiting."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Batches sorted by the union's keys; in reverse, from the last to the first.

    bound: values of the first key columns; no row of the stream precedes them. place: rows with equal keys are ordered
    by the places of their streams, ascending; in reverse, descending.
    """

    bound: Key
    place: int
    batches: Callable[[], Iterator[pa.RecordBatch]]


class _Batch:
    """A batch, or the rest of one, with access to the key of each row."""

    __slots__ = ("_first", "_keys", "_times", "row_bytes", "rows")

    def __init__(self, rows: pa.RecordBatch, names: Sequence[str]) -> None:
        self.rows = rows
        self.row_bytes = rows.nbytes / len(rows)
        self._first = 0  # the first of the remaining rows
        columns = [_times(rows.column(name)) for name in names]
        self._times = columns[0] if len(columns) == 1 and isinstance(columns[0], memoryview) else None
        self._keys = [
            column.__getitem__ if isinstance(column, memoryview) else lambda row, column=column: column[row].as_py()
            for column in columns
        ]

    def key(self, row: int) -> Key:
        row += self._first
        return tuple([get(row) for get in self._keys])

    def up_to(self, horizon: Key, reverse: bool) -> int:
        """The number of rows with a key up to the horizon, inclusive."""
        count = len(self.rows)
        if self._times is not None and not reverse:
            return bisect_right(self._times, horizon[0], self._first, self._first + count) - self._first
        behind = lt if reverse else gt
        if not behind(self.key(count - 1), horizon):
            return count
        return bisect_left(range(count), True, key=lambda row: behind(self.key(row), horizon))

    def cut(self, at: int) -> pa.RecordBatch:
        """Remove and return the first `at` rows."""
        taken, self.rows = self.rows.slice(0, at), self.rows.slice(at)
        self._first += at
        return taken


def _times(column: pa.Array) -> pa.Array | memoryview:
    """Timestamps as integers with fast access to each; other columns unchanged."""
    return np.asarray(column.cast(pa.int64()).to_numpy()).data if pa.types.is_timestamp(column.type) else column


class _Open:
    """A stream that is being read: its buffered rows, and whether all have been read."""

    def __init__(self, stream: Stream, names: Sequence[str], reverse: bool) -> None:
        self.place = stream.place
        self._more = stream.batches
        self._rest: Iterator[pa.RecordBatch] | None = None
        self._names, self._reverse = names, reverse
        self._batches: list[_Batch] = []
        self._rows, self._bytes = 0, 0.0
        self.done = False

    def fill(self, rows: int, size_bytes: int) -> None:
        """Buffer at least this many rows or bytes, or all that remain."""
        while self.lacks(rows, size_bytes):
            self._fetch()

    def _fetch(self) -> None:
        if self._rest is None:
            self._rest = self._more()
        batch = next(self._rest, None)
        if batch is None:
            self.done = True
        elif len(batch):
            self._batches.append(_Batch(batch, self._names))
            self._rows += len(batch)
            self._bytes += batch.nbytes

    def lacks(self, rows: int, size_bytes: int) -> bool:
        return not self.done and (not self._rows or (self._rows < rows and self._bytes < size_bytes))

    @property
    def empty(self) -> bool:
        return not self._batches

    @property
    def last(self) -> Key:
        """The key of the last buffered row."""
        batch = self._batches[-1]
        return batch.key(len(batch.rows) - 1)

    def pass_by(self, horizon: Key | None) -> None:
        """Buffer all rows with the horizon's key, so that equal rows of one stream stay together."""
        while not self.done and self.last == horizon:
            self._fetch()

    def take(self, horizon: Key | None) -> list[pa.RecordBatch]:
        """Remove and return the buffered rows up to a key; None: all."""
        taken: list[pa.RecordBatch] = []
        while self._batches:
            batch = self._batches[0]
            count = len(batch.rows) if horizon is None else batch.up_to(horizon, self._reverse)
            whole = count == len(batch.rows)
            if count:
                taken.append(self._batches.pop(0).rows if whole else batch.cut(count))
                self._rows -= count
                self._bytes -= count * batch.row_bytes
            if not whole:
                break
        return taken


def union(
    streams: Iterable[Stream],
    keys: Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    reverse: bool = False,
    lean: bool = False,
    advance: Advance = map,
) -> Iterator[pa.RecordBatch]:
    """All rows of all streams in the order of the key columns; every stream has the same columns.

    columns: those to return; None: all. lean: buffer only one batch of each stream, if batches are cheap to get.
    """
    waiting = sorted(streams, key=lambda stream: (stream.bound, stream.place), reverse=not reverse)
    rows = 1 if lean else max(LEAST_ROWS, min(MOST_ROWS, BUFFERED_ROWS // max(1, len(waiting))))
    size_bytes = stream_bytes(len(waiting))
    most_opened = 1 if lean else OPENED_AT_ONCE
    first, last = (max, min) if reverse else (min, max)

    def fill(stream: _Open) -> None:
        stream.fill(rows, size_bytes)

    active: list[_Open] = []
    while waiting or active:
        for _ in advance(fill, [stream for stream in active if stream.lacks(rows, size_bytes)]):
            pass
        active = [stream for stream in active if not stream.empty]
        horizon = first((stream.last for stream in active if not stream.done), default=None)
        edge = last((stream.last for stream in active), default=None) if horizon is None else horizon
        opened = 0
        while waiting and opened < most_opened and _begins(waiting[-1].bound, edge, reverse):
            active.append(_Open(waiting.pop(), keys, reverse))
            opened += 1
            if edge is None:
                break  # its rows show which other streams must be opened
        if active and not opened:
            for stream in active:
                stream.pass_by(horizon)
            yield from _sorted_union(active, horizon, keys, columns, reverse)


def stream_bytes(streams: int) -> int:
    """About how many bytes are buffered of each stream if there are this many."""
    return max(LEAST_BYTES, min(MOST_BYTES, BUFFERED_BYTES // max(1, streams)))


def _begins(bound: Key, edge: Key | None, reverse: bool) -> bool:
    """Whether a stream with a bound may have rows up to a key."""
    if edge is None:
        return True
    edge = edge[: len(bound)]
    return bound >= edge if reverse else bound <= edge


def _sorted_union(
    active: list[_Open], horizon: Key | None, keys: Sequence[str], columns: Sequence[str] | None, reverse: bool
) -> Iterator[pa.RecordBatch]:
    ordered = sorted(active, key=lambda stream: stream.place, reverse=reverse)
    parts = [part for part in (stream.take(horizon) for stream in ordered) if part]
    batches = [batch for part in parts for batch in part]
    given = batches if columns is None else [batch.select(list(columns)) for batch in batches]
    if len(parts) == 1:
        yield from given
        return
    order = np.arange(sum(map(len, batches)))
    for name in reversed(keys):
        codes = _codes(pa.chunked_array([batch.column(name) for batch in batches]))
        order = order[np.argsort((~codes if reverse else codes)[order], kind="stable")]
    yield from ordered_pieces(given, order)


def _codes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Integers in the order of a key column's values; their complement `~` has the opposite order, without overflow."""
    if pa.types.is_timestamp(column.type):
        return np.asarray(column.cast(pa.int64()).to_numpy())
    return rank(column).ranks
