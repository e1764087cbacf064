"""The events of one segment that match a query: batches in order, read lazily."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import esformat
from aggregator.base.allowance import Allowance, Holding, check, current, unpaused
from aggregator.base.merge import numbers, sort_order
from aggregator.base.window_budget import LEAST_BYTES, LEAST_OF_SPACE_BYTES, Window
from aggregator.model import RECORD_INDEX, SegmentInfo
from aggregator.read.history import Opened
from aggregator.read.query import Query, stored_value
from aggregator.read.view import Keep, View
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.segments.row_indexes import rows_near
from esformat import Event, parts
from esformat.parts import rows_of

I64 = npt.NDArray[np.int64]
WINDOW_ROWS = 1 << 18
"""Maximum number of rows of a segment that are sorted together. `window_budget` limits their bytes."""
FIRST_WINDOW_ROWS = 1 << 12
"""Up to this limit, reading may end soon: windows begin with about twice its rows, or blocks are read one by one."""
LEAST_WINDOW_ROWS = 16
"""Minimum number of rows that a window is meant to have."""
UNREACHED_LIMIT = 1 << 62
"""A limit that no segment reaches: it makes a scan read block by block."""
FEW_KEPT_ROWS = 1 << 18
"""Up to this number, the rows kept of a segment are sorted all together, not window by window."""
ESTIMATE_ROWS = 1 << 14
"""Number of kept rows from which their total can be estimated."""
MAX_WINDOW_GROWTH = 8
"""Maximum ratio of the time that a window spans to that of the one before."""
_NO_LIMIT = 1 << 62


# ------------------------------------------------------------ segments


def segment_batches(
    pool: SegmentPool,
    info: SegmentInfo,
    view: View,
    partition: str,
    keep: Keep | None = None,
    *,
    unordered: frozenset[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The matching events of a segment that `keep` selects, in order.

    unordered: columns that suffice, in the order of the file; the columns that `keep` reads are added.
    """
    if view.query.by_index:
        pieces = partial(_appended, pool, info, view)
        yield from _in_windows(
            pool, info, view, lambda first, end: (view.shape(b, partition) for b in pieces(first, end)), info.rows
        )
        return
    segment = pool.get(info)
    query = view.query
    schema = segment.schema
    rows_of = esformat.Scan.batches if keep is None else _rows_selected_by(keep, view, schema.names, partition)
    view, columns = _wanted(view, schema, keep, unordered)
    owner: Any = segment
    if query.space is not None:
        owner = segment.find(query.space)
        if owner is None:
            return
    stored = _in_types_of(segment, query)
    if stored is None:
        return
    query = stored

    def read(start: int | None, end: int | None, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        return _shaped(rows_of(_scan(owner, query, columns, start, end, limit=limit)), view, partition)

    if unordered is not None:
        yield from read(query.start, query.end)
        return
    if query.space is not None:
        limit = UNREACHED_LIMIT if query.limit is not None and query.limit <= FIRST_WINDOW_ROWS else None
        if limit is not None or owner.num_events * info.row_bytes <= LEAST_OF_SPACE_BYTES:
            yield from read(query.start, query.end, limit)
        else:
            yield from _in_windows(pool, info, view, read, owner.num_events)
        return
    rows: int = info.rows
    row_bytes: float | None = None
    if keep is not None and query.limit is None:
        scan = _scan(owner, query, columns, query.start, query.end)
        too_many = yield from _kept_at_once(pool, info, view, scan, _shaped(rows_of(scan), view, partition))
        if too_many is None:
            return
        rows, row_bytes = too_many
    yield from _in_windows(pool, info, view, read, rows, row_bytes)


def _kept_at_once(
    pool: SegmentPool, info: SegmentInfo, view: View, scan: esformat.Scan, kept: Iterator[pa.RecordBatch]
) -> Generator[pa.RecordBatch, None, tuple[int, float] | None]:
    """Yield all rows kept of a scan of a segment, in order. If they are too many to be sorted together, yield nothing
    and return the approximate number of rows kept of all times, and the bytes of one.
    """
    with pool.windows.window(merged=view.partitions) as window:
        with unpaused(), pool.windows.making():
            few, whole = _up_to(kept, window.bytes, FEW_KEPT_ROWS, lambda: parts.passed_rows(scan) / info.rows or 1)
            if not whole:
                count, size = sum(map(len, few)), sum(batch.nbytes for batch in few)
                passed = parts.passed_rows(scan) or info.rows
                return _rows_kept(info, view.query, count, passed), size / count
            ordered = _ordered(few, view, window)
        yield from ordered
    return None


def _wanted(
    view: View, schema: pa.Schema, keep: Keep | None, unordered: frozenset[str] | None
) -> tuple[View, list[str]]:
    """The view, reduced to the columns that suffice if no order is needed, and the columns to read for it."""
    if unordered is None or keep is None or view.hidden:
        return view, view.needed(schema.names)
    # the columns of `keep` are there anyway, unless it is not called; one column must give the number of rows
    enough = unordered | ({"timestamp"} if keep.required_texts_suffice else keep.columns)
    view = replace(view, target=pa.schema([field for field in view.target if field.name in enough]))
    return view, [name for name in schema.names if name in enough] or ["timestamp"]


def _rows_selected_by(
    keep: Keep, view: View, present: Sequence[str], partition: str
) -> Callable[[esformat.Scan], Iterator[pa.RecordBatch]]:
    """A function that returns the rows of a scan that `keep` selects. `keep` is called in the decoding threads.

    present: the columns of the segment.
    """
    looked_at = View(view.query, pa.schema([f for f in view.target if f.name in keep.columns]), {})
    names = [name for name in looked_at.target.names if name in present] or ["timestamp"]
    required = {name: texts for name, texts in keep.required_texts.items() if name in present}
    suffice = keep.required_texts_suffice and len(required) == len(keep.required_texts)

    def rows_of(scan: esformat.Scan) -> Iterator[pa.RecordBatch]:
        mask, allowance = keep.mask, current() or Allowance()

        def matches(batch: pa.RecordBatch) -> pa.BooleanArray:
            with allowance.shared():
                return mask(looked_at.shape(batch, partition))

        return scan.matching(names, matches, required, required_texts_suffice=suffice)

    return rows_of


def _shaped(batches: Iterator[pa.RecordBatch], view: View, partition: str) -> Iterator[pa.RecordBatch]:
    """Convert batches to the requested columns. Raises as `Allowance.check`."""
    for batch in batches:
        check()
        yield view.shape(batch, partition)


def _up_to(
    batches: Iterator[pa.RecordBatch], most_bytes: int, most_rows: int, fraction_read: Callable[[], float] = lambda: 1
) -> tuple[list[pa.RecordBatch], bool]:
    """Take batches up to the one with which they exceed the maximum. Return them, and whether they are all.

    fraction_read: returns the fraction of the data that was read for the batches so far: then this ends as soon as
    their estimated total exceeds the maximum. The batches count as memory of the query meanwhile. Raises
    QueryLimitError.
    """
    found: list[pa.RecordBatch] = []
    rows = size = 0
    with Holding() as held:
        for batch in batches:
            found.append(batch)
            rows, size = rows + len(batch), size + batch.nbytes
            held.set(2 * size)  # and once more when sorted
            part = fraction_read() if rows >= ESTIMATE_ROWS else 1
            if rows > most_rows * part or size > most_bytes * part:
                return found, False
    return found, True


def _ordered(
    batches: list[pa.RecordBatch], view: View, window: Window, span: tuple[int, int] | None = None
) -> list[pa.RecordBatch]:
    """Sort all rows into one batch; no batch if there are no rows. Empties `batches`, so that no row stays in memory
    twice.

    span: the first and the last time, or record index, of the rows to return.
    """
    if not batches:
        return []
    indexes = np.concatenate([numbers(batch, RECORD_INDEX) for batch in batches])
    keys = indexes
    if view.by != RECORD_INDEX:
        keys = np.concatenate([numbers(batch, view.by) for batch in batches])
    order = sort_order(keys, None, indexes, reverse=view.query.reverse)
    inside = np.ones(len(keys), np.bool_) if span is None else (keys >= span[0]) & (keys <= span[1])
    count = int(np.count_nonzero(inside))
    if order is not None:
        batch = rows_of(batches, order if count == len(keys) else order[inside[order]])
    else:  # the rows are contiguous
        batch = pa.concat_batches(batches).slice(int(np.argmax(inside)) if count else 0, count)
    batches.clear()
    window.resize(batch.nbytes)
    return [batch]


def segment_history(
    segment: esformat.Segment, query: Query, columns: tuple[str, ...], at_once: bool
) -> list[Event] | Opened | None:
    """A segment's part of the history of the query's space, as in `history.Open`."""
    space = query.space
    assert space is not None
    if at_once and not query.conditions and query.start is None and query.end is None:
        near = parts.fast_history(segment, space, query.grouping, query.reverse, query.limit, columns)
        if near is not None:
            return near
    found = segment.find(space)
    stored = _in_types_of(segment, query)
    if found is None or stored is None:
        return None
    scan = _scan(found, stored, columns, query.start, query.end, limit=query.limit)
    return Opened(found.num_groupings == 1 or query.grouping is not None, found.num_events, scan.__iter__)


def _scan(
    owner: Any,
    query: Query,
    columns: Sequence[str],
    start: int | None,
    end: int | None,
    *,
    limit: int | None = None,
) -> esformat.Scan:
    reverse = query.reverse and query.space is not None  # else the file's order, which the caller sorts by time
    if query.conditions:
        return owner.scan_index(  # type: ignore[no-any-return]
            dict(query.conditions),
            grouping=query.grouping,
            start=start,
            end=end,
            reverse=reverse,
            limit=limit,
            columns=columns,
        )
    return owner.scan(  # type: ignore[no-any-return]
        grouping=query.grouping, start=start, end=end, reverse=reverse, limit=limit, columns=columns
    )


def _in_types_of(segment: esformat.Segment, query: Query) -> Query | None:
    """The query with values of the types of the segment's indexes; None if no event of the segment can match: a column
    was added later, or had a type without such a value.
    """
    if not query.conditions:
        return query
    conditions = []
    for name, value in query.conditions:
        stored = stored_value(segment.schema.field(name).type, value) if name in segment.indexes else None
        if stored is None:
            return None
        conditions.append((name, stored))
    return replace(query, conditions=tuple(conditions))


def _in_windows(
    pool: SegmentPool,
    info: SegmentInfo,
    view: View,
    read: Callable[[int, int | None], Iterator[pa.RecordBatch]],
    rows: int,
    row_bytes: float | None = None,
) -> Iterator[pa.RecordBatch]:
    """The matching events of a segment in the query's direction: one span of times, or record indexes, at a time.

    read: reads the rows in [start, end). rows: number of rows of the segment, or of the query's space. row_bytes:
    bytes of one row, if known. A window that exceeds its share of memory is started again with a shorter span, unless
    all of its rows have one time.
    """
    query = view.query
    least = LEAST_BYTES if query.space is None else LEAST_OF_SPACE_BYTES
    low, high, per_row = _span(info, query, rows)
    row_bytes = max(1, info.row_bytes if row_bytes is None else row_bytes)
    width = 0
    while low <= high:
        with pool.windows.window(least, view.partitions) as window:
            width = width or max(1, int(per_row * _first_rows(query, window.bytes / row_bytes)))
            start = max(low, high - width + 1) if query.reverse else low
            last = high if query.reverse else min(high, low + width - 1)
            most = 2 * window.bytes if start < last else _NO_LIMIT
            with unpaused(), pool.windows.making():
                found, whole = _up_to(read(start, _past(last)), most, _NO_LIMIT)
                if not whole:
                    width = _narrower(found, view.by, start, last, reverse=query.reverse)
                    continue
                count, size = sum(map(len, found)), sum(batch.nbytes for batch in found)
                ordered = _ordered(found, view, window, (start, last))
            yield from ordered
            del ordered
        low, high = (low, start - 1) if query.reverse else (last + 1, high)
        growth = min(MAX_WINDOW_GROWTH, window.bytes / max(1, size), WINDOW_ROWS / max(1, count))
        width = max(1, int((last - start + 1) * growth))


def _span(info: SegmentInfo, query: Query, rows: int) -> tuple[int, int, float]:
    """The first and the last time, or record index, that the query covers in a segment; and the distance of rows."""
    if query.by_index:
        low = info.first_index if query.first_index is None else max(query.first_index, info.first_index)
        return low, info.last_index if query.end_index is None else min(query.end_index - 1, info.last_index), 1.0
    low = info.min_timestamp if query.start is None else max(query.start, info.min_timestamp)
    high = info.max_timestamp if query.end is None else min(query.end - 1, info.max_timestamp)
    return low, high, (info.max_timestamp - info.min_timestamp + 1) / max(1, rows)


def _rows_kept(info: SegmentInfo, query: Query, found: int, passed: int) -> int:
    """Estimated number of rows kept of all times, if all rows are like the first and evenly distributed."""
    low, high, _ = _span(info, query, 1)
    whole = info.max_timestamp - info.min_timestamp + 1
    return found * info.rows * whole // (passed * max(1, high - low + 1))


def _first_rows(query: Query, most_rows: float) -> int:
    """Number of rows that the first window of a segment should have. most_rows: how many its memory allows."""
    rows = min(int(most_rows), WINDOW_ROWS)
    if query.limit is not None:
        rows = min(rows, query.limit if query.by_index else max(LEAST_WINDOW_ROWS, 2 * query.limit))
    return rows


def _narrower(found: list[pa.RecordBatch], by: str, start: int, last: int, *, reverse: bool) -> int:
    """The width of a window with half of the rows found so far in [start, last], which has more."""
    middle = int(np.median(np.concatenate([numbers(batch, by) for batch in found])))
    width = last - middle + 1 if reverse else middle - start + 1
    return width if 0 < width <= last - start else max(1, (last - start + 1) // 2)


def _past(timestamp: int) -> int | None:
    """The end of a span whose last time is `timestamp`; None if no later time exists."""
    return timestamp + 1 if timestamp < 2**63 - 1 else None


def _appended(
    pool: SegmentPool, info: SegmentInfo, view: View, first: int, end: int | None
) -> Iterator[pa.RecordBatch]:
    """Rows of a segment in the order of the file: those with record indexes [first, end) and matching times, and
    perhaps others. Reads only blocks that may contain such rows.
    """
    near = rows_near(info.rows, info.min_ahead, info.max_ahead, first, end)
    if near is None:
        rows = pool.row_indexes(info).rows(first, end)
        low, last = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
        listed = None if last - low == len(rows) else rows
    else:
        (low, last), listed = near, None
    if low == last:
        return
    segment = pool.get(info)
    scan = parts.scan_rows(
        segment,
        low,
        last,
        columns=view.needed(segment.schema.names),
        start=view.query.start,
        end=view.query.end,
        listed=listed,
    )
    for batch in scan.batches():
        check()
        yield batch


def count_segment(pool: SegmentPool, info: SegmentInfo, query: Query) -> int:
    """Number of matching events in a segment, from metadata if possible. The query must not be by record index."""
    scan = _times_scan(pool.get(info), query)
    return 0 if scan is None else scan.count()


def segment_times(pool: SegmentPool, info: SegmentInfo, query: Query) -> Iterator[I64]:
    """The times of a segment's matching events, in any order. None of its events may be hidden."""
    scan = _times_scan(pool.get(info), query)
    for times in () if scan is None else scan.times():
        check()
        yield times


def segment_blocks(pool: SegmentPool, info: SegmentInfo, query: Query) -> tuple[set[int], int]:
    """The numbers of a segment's data blocks that may contain matching events, and its number of blocks."""
    segment = pool.get(info)
    scan = _times_scan(segment, query)
    return (set(), segment.scan().blocks()[1]) if scan is None else scan.blocks()


def _times_scan(segment: esformat.Segment, query: Query) -> esformat.Scan | None:
    """A scan for the times of a segment's matching events; None if it has none."""
    owner: Any = segment if query.space is None else segment.find(query.space)
    stored = _in_types_of(segment, query)
    if owner is None or stored is None:
        return None
    return _scan(owner, stored, ["timestamp"], query.start, query.end)
