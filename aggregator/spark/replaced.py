"""Find the events of a segment that was replaced after a read was planned, in the segments that replaced it.

A merge keeps the record index, partition and schema of each event, and no two segments of one schema contain the same
index, so the events of a segment can always be told from others. If several tasks share a segment's rows, each takes
those between two keys, because row numbers mean nothing in another file.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import esformat
from aggregator.engine.backend import is_store, reader_of
from aggregator.errors import SegmentMissingError
from aggregator.model import RECORD_INDEX, SegmentInfo
from aggregator.policy import StoreSettings
from aggregator.storage.files.layout import Layout
from aggregator.storage.manifest import Manifest, StoredRows
from aggregator.storage.store.objects import readable_place
from esformat import Segment, UsageError
from esformat.spark.parts import Place, RowRange, locate, opened_as_planned, scan_rows

ATTEMPTS = 10
"""Number of attempts to open the segments that replaced a segment, which may themselves be replaced meanwhile."""
KEY_COLUMNS = ("space", "grouping", "timestamp", RECORD_INDEX)
_CACHE_BYTES = 8 << 20

RowKey = tuple[Any, Any, Any, int]
"""The sort key of rows: space, grouping (text or bytes), timestamp and record index."""


@dataclass(frozen=True, slots=True)
class Share:
    """A task's events of a segment, without row numbers: those with keys in [first, end).

    segment: as the manifest described it. first: None for its start. end: None for its end.
    """

    segment: SegmentInfo
    first: RowKey | None = None
    end: RowKey | None = None

    def of(self, table: pa.Table) -> pa.Table:
        """Select the events of the share from a table of another segment's events."""
        indexes = table[RECORD_INDEX]
        mask = pc.and_(
            pc.greater_equal(indexes, self.segment.first_index), pc.less_equal(indexes, self.segment.last_index)
        )
        if self.first is not None:
            mask = pc.and_(mask, pc.invert(_before(table, self.first)))
        if self.end is not None:
            mask = pc.and_(mask, _before(table, self.end))
        return table.filter(mask)


def _before(table: pa.Table, key: RowKey) -> pa.ChunkedArray:
    """Mark the rows with a smaller key."""
    found: pa.ChunkedArray | None = None
    for name, value in reversed(list(zip(KEY_COLUMNS, key, strict=True))):
        column = table[name]
        scalar = pa.scalar(value, column.type)
        less = pc.less(column, scalar)
        found = less if found is None else pc.or_(less, pc.and_(pc.equal(column, scalar), found))
    assert found is not None
    return found


def key_of(rows: RowRange) -> RowKey:
    """The key of the first row of a range. Raises UsageError, OSError, EsdbError."""
    with opened_as_planned(rows) as segment:
        scan: Any = scan_rows(segment, rows.first, rows.first + 1, columns=list(KEY_COLUMNS))
        (row,) = (row for batch in scan.batches() for row in zip(*map(batch.column, KEY_COLUMNS), strict=True))
    space, grouping, timestamp, index = row
    return space.as_py(), grouping.as_py(), timestamp.value, index.as_py()


def place_of(layout: Layout, info: SegmentInfo, store: StoreSettings | None) -> Place:
    """The place of a segment: its file or, if it has none, its object in the store."""
    path = layout.segment(info.number)
    return str(path) if store is None or path.exists() else locate(readable_place(store, info))


def opened_now(root: str, gone: SegmentInfo, stack: ExitStack) -> list[Segment]:
    """Open the segments that now contain a segment's events, until the stack ends; none if retention removed them.

    root: the catalog's directory, or the address of its store. Raises SegmentMissingError if the manifest still names
    the segment; UsageError, EsdbError, OSError.
    """
    for _ in range(ATTEMPTS):
        layout, segments, store = _segments_now(root)
        if (store is None or is_store(root)) and any(info.number == gone.number for info in segments):
            raise SegmentMissingError(
                "a segment is missing",
                path=str(layout.segment(gone.number)) if store is None else readable_place(store, gone),
                hint="`aggregator verify` lists what is missing",
            )
        with ExitStack() as opening:
            try:
                opened = [
                    opening.enter_context(esformat.open(place_of(layout, info, store), cache_bytes=_CACHE_BYTES))
                    for info in segments
                    if _holds_of(info, gone)
                ]
            except FileNotFoundError:
                continue
            stack.push(opening.pop_all())
            return opened
    raise UsageError("segments are replaced faster than they can be opened", path=root, hint="try again in a moment")


def _segments_now(root: str) -> tuple[Layout, list[SegmentInfo], StoreSettings | None]:
    if is_store(root):
        with closing(reader_of(root)) as following:
            return following.layout, following.manifest.load().segments, following.objects.settings
    layout = Layout(Path(root))
    with closing(Manifest(layout.manifest, read_only=True)) as manifest:
        return layout, manifest.load().segments, StoredRows(manifest).settings()


def _holds_of(info: SegmentInfo, gone: SegmentInfo) -> bool:
    same = (info.partition, info.schema) == (gone.partition, gone.schema)
    return same and info.first_index <= gone.last_index and info.last_index >= gone.first_index
