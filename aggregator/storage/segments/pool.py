"""Open segments, a bounded number of them, shared by all scans."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

import pyarrow as pa

import esformat
from aggregator.base.allowance import check
from aggregator.base.merge import numbers
from aggregator.base.window_budget import WindowBudget
from aggregator.errors import SegmentMissingError
from aggregator.model import RECORD_INDEX, SegmentInfo
from aggregator.storage.files.layout import Layout
from aggregator.storage.segments.row_indexes import RowIndexes
from esformat.parts import Handles, SharedFile

OPEN_SEGMENTS = 256
"""Segments of which the footer and the like are kept. How many of their files are open, `Handles` says."""
INDEXES_BYTES = 64 << 20
"""Of segments' record indexes, kept for `read`: up to 4 bytes a row."""


class SegmentPool:
    """Gives open segments, any number at a time: their files are opened again as they are read. One that is forgotten
    here can be read by the scans that hold it as long as its file is there.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.windows = WindowBudget()
        """Memory of what scans hold for those who read them."""
        self._handles = Handles()
        self._lock = Lock()
        self._open: OrderedDict[int, esformat.Segment] = OrderedDict()
        self._indexes: OrderedDict[int, RowIndexes] = OrderedDict()

    def get(self, info: SegmentInfo) -> esformat.Segment:
        """An open segment. Raises SegmentMissingError, esformat.CorruptSegmentError, OSError."""
        segment = self._open.get(info.number)
        if segment is not None:
            return segment
        path = self._layout.segment(info.number)
        try:
            segment = esformat.open(SharedFile(self._handles, str(path)))
        except (FileNotFoundError, IsADirectoryError):
            raise SegmentMissingError(
                f"the segment with record indexes {info.first_index} to {info.last_index} is missing",
                path=str(path),
                hint="restore it from a copy; `aggregator verify` lists what is missing",
            ) from None
        with self._lock:
            self._open[info.number] = segment
            while len(self._open) > OPEN_SEGMENTS:
                self._open.popitem(last=False)
        return segment

    def row_indexes(self, info: SegmentInfo) -> RowIndexes:
        """The record index of each row of a segment. Raises what `Allowance.check` does, too."""
        with self._lock:
            found = self._indexes.get(info.number)
            if found is not None:
                self._indexes.move_to_end(info.number)
                return found
        scan = self.get(info).scan(columns=[RECORD_INDEX])
        parts = (numbers(_checked(batch), RECORD_INDEX) for batch in scan.batches())
        found = RowIndexes(parts, info.rows, info.first_index, info.last_index)
        with self._lock:
            self._indexes[info.number] = found
            while len(self._indexes) > 1 and sum(i.size_bytes for i in self._indexes.values()) > INDEXES_BYTES:
                self._indexes.popitem(last=False)
        return found

    def forget(self, number: int) -> None:
        """Keep a segment open no longer than the scans that read it need."""
        with self._lock:
            self._open.pop(number, None)
            self._indexes.pop(number, None)
        self._handles.forget(str(self._layout.segment(number)))

    def close(self) -> None:
        """Forget all."""
        with self._lock:
            self._open.clear()
            self._indexes.clear()
        self._handles.close()


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    check()
    return batch
