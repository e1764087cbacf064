"""Open segments, bounded in number and shared by all scans."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from threading import Lock

import pyarrow as pa

import esformat
from aggregator.base.allowance import check
from aggregator.base.merge import numbers
from aggregator.base.window_budget import WindowBudget
from aggregator.errors import SegmentMissingError
from aggregator.model import RECORD_INDEX, SegmentInfo, StoredSegment
from aggregator.storage.files.layout import Layout
from aggregator.storage.segments.row_indexes import RowIndexes
from aggregator.storage.store.objects import Objects, ObjectSource
from esformat import SegmentChangedError, Source, parts
from esformat.parts import Handles, SharedFile

OPEN_SEGMENTS, OPEN_BYTES = 256, 48 << 20
"""Segments kept open, with their footers and similar data: up to OPEN_SEGMENTS, or more while they hold at most
OPEN_BYTES together. `Handles` limits how many of their files are open.
"""
HELD, HELD_BYTES = 3, 8 << 10
"""An open segment holds about HELD times the bytes read at opening, plus HELD_BYTES."""
INDEXES_BYTES = 64 << 20
"""Limit for cached record indexes of segments, for `read`: up to 4 bytes a row."""
COUNTS_BYTES = 8 << 20
"""Limit for cached event counts by time, for the next histogram: enough for 10,000 segments with 80 spans each."""


class SegmentPool:
    """Provides open segments, any number at a time: their files are reopened on demand. A segment that is dropped from
    the pool stays readable for the scans that hold it, as long as its file exists.
    """

    def __init__(self, layout: Layout, objects: Objects) -> None:
        """objects: the catalog's store, for reading segments that have no file."""
        self._layout, self._objects = layout, objects
        self.windows = WindowBudget()
        """Memory budget of the windows that scans buffer."""
        self._handles = Handles()
        self._lock = Lock()
        self._open: OrderedDict[int, esformat.Segment] = OrderedDict()
        self._held_bytes = 0  # approximate memory of the open segments
        self.begun: set[tuple[int, bytes]] = set()
        """(Segment, space) pairs in the store whose history was fetched: the needed parts are in the cache."""
        self._far: set[int] = set()  # open segments that are read from the store
        self._indexes: OrderedDict[int, RowIndexes] = OrderedDict()

    @cached_property
    def counts(self) -> parts.Cache:
        """Number of events of whole segments in spans of time: see `time_counts`."""
        return parts.Cache(COUNTS_BYTES)

    def get(self, info: SegmentInfo) -> esformat.Segment:
        """An open segment. Raises SegmentMissingError, esformat.CorruptSegmentError, OSError."""
        segment = self._open.get(info.number)
        if segment is not None:
            return segment
        source = self.source(info)
        segment = esformat.open(source)
        with self._lock:
            if isinstance(source, ObjectSource):
                self._far.add(info.number)
            if info.number not in self._open:  # another thread may have been faster
                self._held_bytes += _held_bytes(segment)
                self._open[info.number] = segment
            while len(self._open) > OPEN_SEGMENTS and self._held_bytes > OPEN_BYTES:
                self._drop(next(iter(self._open)))
        return segment

    def _drop(self, number: int) -> None:
        segment = self._open.pop(number, None)
        self._held_bytes -= 0 if segment is None else _held_bytes(segment)
        self._far.discard(number)

    def has_room(self) -> bool:
        """Whether half of the limit is free, so that a segment can be opened before it is requested."""
        return self._held_bytes < OPEN_BYTES // 2

    def open_ahead(self, info: SegmentInfo) -> None:
        """Open a local segment before it is requested. It is dropped before those already open. Raises as `get`."""
        if info.number in self._open or self.is_far(info):
            return
        self.get(info)
        with self._lock:
            if info.number in self._open:
                self._open.move_to_end(info.number, last=False)

    def opened(self, info: SegmentInfo) -> esformat.Segment | None:
        """A segment if it is open; otherwise None."""
        return self._open.get(info.number)

    @property
    def has_store(self) -> bool:
        """Whether segments may have to be read from a store."""
        return self._objects.settings is not None

    def is_far(self, info: SegmentInfo) -> bool:
        """Whether a segment is read from the store."""
        if info.number in self._open:
            return info.number in self._far
        return self.has_store and not self._layout.segment(info.number).exists()

    def source(self, segment: SegmentInfo | StoredSegment) -> Source:
        """The bytes of a segment: its file, or otherwise its object in the store. Raises as `get`."""
        path = self._layout.segment(segment.number)
        try:
            return _File(self._handles, str(path), lambda: self._objects.source(segment))
        except (FileNotFoundError, IsADirectoryError):
            stored = self._objects.source(segment)
            if stored is not None:
                return stored
            which = (
                ""
                if isinstance(segment, StoredSegment)
                else (f" with record indexes {segment.first_index} to {segment.last_index}")
            )
            raise SegmentMissingError(
                f"the segment{which} is missing",
                path=str(path),
                hint="restore it from a copy; see `aggregator verify` for all missing segments",
            ) from None

    def row_indexes(self, info: SegmentInfo) -> RowIndexes:
        """The record index of each row of a segment. Also raises the errors of `Allowance.check`."""
        with self._lock:
            found = self._indexes.get(info.number)
            if found is not None:
                self._indexes.move_to_end(info.number)
                return found
        scan = self.get(info).scan(columns=[RECORD_INDEX])
        read = (numbers(_checked(batch), RECORD_INDEX) for batch in scan.batches())
        found = RowIndexes(read, info.rows, info.first_index, info.last_index)
        with self._lock:
            self._indexes[info.number] = found
            while len(self._indexes) > 1 and sum(i.size_bytes for i in self._indexes.values()) > INDEXES_BYTES:
                self._indexes.popitem(last=False)
        return found

    def forget(self, number: int) -> None:
        """Drop a segment; scans that read it keep it open as long as they need it."""
        with self._lock:
            self._drop(number)
            self._indexes.pop(number, None)
        self._handles.forget(str(self._layout.segment(number)))

    def close(self) -> None:
        """Drop all segments."""
        with self._lock:
            self._open.clear()
            self._held_bytes = 0
            self._far.clear()
            self.begun.clear()
            self._indexes.clear()
            self.__dict__.pop("counts", None)
        self._handles.close()
        self._objects.settle()


def _held_bytes(segment: esformat.Segment) -> int:
    return HELD_BYTES + HELD * parts.opening_bytes(segment)


class _File(SharedFile):
    """A segment's file; after it was deleted, the object in the store."""

    def __init__(self, handles: Handles, path: str, stored: Callable[[], Source | None]) -> None:
        super().__init__(handles, path)
        self._stored = stored

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes [offset, offset + length)."""
        try:
            return super().read_at(offset, length)
        except SegmentChangedError:
            stored = self._stored()
            if stored is None:
                raise
            return stored.read_at(offset, length)

    def view_at(self, offset: int, length: int) -> memoryview:
        """Like `read_at`, but returns a view, for callers that release it soon."""
        try:
            return super().view_at(offset, length)
        except SegmentChangedError:
            return memoryview(self.read_at(offset, length))

    def view_ranges(self, ranges: array[int]) -> memoryview:
        """Like `view_at`, for several ranges, one after another."""
        try:
            return super().view_ranges(ranges)
        except SegmentChangedError:
            parts = (self.read_at(offset, length) for offset, length in zip(ranges[::2], ranges[1::2], strict=True))
            return memoryview(b"".join(parts))


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    check()
    return batch
