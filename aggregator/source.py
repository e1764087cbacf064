"""What one segment has to say to a question: batches in order, read when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import esformat
from aggregator.allowance import Allowance, Holding, check, current
from aggregator.common_type import takes
from aggregator.history import Part
from aggregator.merge import numbers, sort_order
from aggregator.model import PARTITION, RECORD_INDEX, SegmentInfo
from aggregator.question import Question
from aggregator.segment_pool import SegmentPool
from aggregator.tombstones import Hidden, without_hidden
from esformat import UsageError
from esformat.parts import as_text, plain_column

I64 = npt.NDArray[np.int64]
WINDOW_ROWS = 1 << 17
"""Rows of a segment that are put into time order together."""
WINDOW_STORED_BYTES = 32 << 20
"""The same where events are large: of the file, so several times as much in memory."""
FIRST_WINDOW_ROWS = 1 << 12
"""The same at first, where a limit may end it soon."""
LAZILY = 1 << 62
"""A limit that no segment reaches: it makes a scan read block by block."""
FEW_KEPT_ROWS, FEW_KEPT_BYTES = 1 << 17, 32 << 20
"""What is kept of a segment is put into order at once, and not window by window, where it is not more than this."""


FEW_EVENTS = 32
"""A history of no more is read as events and put into columns: a tenth of the work of decoding columns."""
PLAIN = ["space", "grouping", "timestamp", "data", RECORD_INDEX]
"""Columns of a topic without others: events have them by themselves, or as a number."""


@dataclass(frozen=True, slots=True)
class View:
    """What every source gives: the columns `target`, of events that `hidden` does not name."""

    question: Question
    target: pa.Schema
    hidden: Hidden

    @property
    def by(self) -> str:
        """The column that orders the answer."""
        return RECORD_INDEX if self.question.by_index else "timestamp"

    def needed(self, present: Sequence[str]) -> list[str]:
        """Columns to read of those that a source has."""
        wanted = {*self.target.names, "timestamp", RECORD_INDEX}
        if self.hidden:
            wanted.add("space")
        if self.question.grouping is not None and self.question.by_index:
            wanted.add("grouping")
        return [name for name in present if name in wanted]

    def shape(self, table: pa.Table | pa.RecordBatch, partition: str | pa.Array) -> pa.RecordBatch:
        """A table in the columns that are asked for: what a source lacks is null, older types become the common one.

        partition: the name, or that of each row where nothing is hidden.
        """
        table = without_hidden(table, self.hidden)
        present = set(table.schema.names)
        arrays = []
        for field in self.target:
            if field.name == PARTITION:
                named = isinstance(partition, str)
                arrays.append(pa.repeat(pa.scalar(partition, pa.string()), len(table)) if named else partition)
            elif field.name not in present:
                arrays.append(pa.nulls(len(table), field.type))
            else:
                arrays.append(_one_array(table.column(field.name), field))
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)


@dataclass(frozen=True, slots=True)
class Keep:
    """Which rows are wanted, of batches in the columns that are asked for; `columns` are those that `mask` looks at."""

    columns: frozenset[str]
    mask: Callable[[pa.RecordBatch], pa.BooleanArray]


def _one_array(column: pa.ChunkedArray | pa.Array, field: pa.Field) -> pa.Array:
    if column.type != field.type:
        column = _as_type(column, field)
    if isinstance(column, pa.Array):
        return column
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _as_type(column: pa.ChunkedArray | pa.Array, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    """A column of another family in the common type, exactly; as text where the families' values are of several kinds.
    What its neighbours are does not matter: a question that gives fewer rows gives the same values.
    """
    kind = field.type
    if takes(kind, (column.type, 0)):
        return plain_column(column, kind)
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([as_text(chunk).cast(kind) for chunk in column.chunks], kind)
    return as_text(column).cast(kind)


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
    """The answers of a segment that `keep` wants, in order.

    unordered: columns that are enough where the order is that of the file; what else `keep` looks at comes with them.
    """
    if view.question.by_index:
        yield from _indexed_batches(pool, info, view, partition)
        return
    segment = pool.get(info)
    question = view.question
    schema = segment.schema
    if unordered is not None and keep is not None and not view.hidden:
        enough = unordered | keep.columns
        view = replace(view, target=pa.schema([field for field in view.target if field.name in enough]))
        columns = [name for name in schema.names if name in enough] or ["timestamp"]
    else:
        columns = view.needed(schema.names)
    owner: Any = segment
    if question.space is not None:
        owner = segment.find(question.space)
        if owner is None:
            return
    if question.conditions and not _has_values(segment, question.conditions):
        return
    if question.space is not None or unordered is not None:
        limit = None if question.limit is None else LAZILY
        scan = _scan(owner, question, tuple(columns), question.start, question.end, limit=limit)
        if keep is None and question.space is not None and owner.num_events <= FEW_EVENTS and schema.names == PLAIN:
            yield from _few_events(scan, columns, schema, view, partition)
            return
        yield from _kept(scan, view, partition, keep)
        return
    if keep is not None and question.limit is None:
        scan = _scan(owner, question, columns, question.start, question.end)
        few = _few(_kept(scan, view, partition, keep))
        if few is not None:
            yield from _in_order(few, view)
            return
    for start, end in _windows(info, question):
        yield from _in_order(_held(_kept(_scan(owner, question, columns, start, end), view, partition, keep)), view)


def _few_events(
    scan: esformat.Scan, columns: Sequence[str], schema: pa.Schema, view: View, partition: str
) -> Iterator[pa.RecordBatch]:
    """The answers of a short history, in the columns that are asked for."""
    events = list(scan)
    if not events:
        return
    arrays = []
    for name in columns:
        values = [event.columns[name] if name == RECORD_INDEX else getattr(event, name) for event in events]
        arrays.append(pa.array(values, schema.field(name).type))
    yield view.shape(pa.RecordBatch.from_arrays(arrays, list(columns)), partition)


def _kept(scan: esformat.Scan, view: View, partition: str, keep: Keep | None) -> Iterator[pa.RecordBatch]:
    """What `keep` wants of a scan, in the columns that are asked for. It is asked on the threads that decode.

    Raises what `Allowance.check` does.
    """
    if keep is None:
        batches = scan.batches()
    else:
        looked_at = View(view.question, pa.schema([f for f in view.target if f.name in keep.columns]), {})
        names = [name for name in looked_at.target.names if name in scan.column_names] or ["timestamp"]
        mask, allowance = keep.mask, current() or Allowance()

        def matches(batch: pa.RecordBatch) -> pa.BooleanArray:
            with allowance.shared():
                return mask(looked_at.shape(pa.Table.from_batches([batch]), partition))

        batches = scan.matching(names, matches)
    for batch in batches:
        check()
        yield view.shape(pa.Table.from_batches([batch]), partition)


def _few(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch] | None:
    """All of them, if they are few."""
    found: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        found.append(batch)
        rows, size = rows + len(batch), size + batch.nbytes
        if rows > FEW_KEPT_ROWS or size > FEW_KEPT_BYTES:
            return None
    return found


def _held(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """All of them, counted as memory of the query while they are gathered. Raises QueryLimitError."""
    found: list[pa.RecordBatch] = []
    size = 0
    with Holding() as held:
        for batch in batches:
            found.append(batch)
            size += batch.nbytes
            held.set(2 * size)  # and once more in order
    return found


def _in_order(batches: list[pa.RecordBatch], view: View) -> Iterator[pa.RecordBatch]:
    """One batch of them all, or none of nothing."""
    if batches:
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        order = sort_order(numbers(batch, view.by), None, numbers(batch, RECORD_INDEX), reverse=view.question.reverse)
        yield batch if order is None else batch.take(pa.array(order))


def segment_part(pool: SegmentPool, info: SegmentInfo, question: Question, columns: Sequence[str]) -> Part | None:
    """What a segment has of the history of the question's space; None for nothing."""
    segment = pool.get(info)
    assert question.space is not None
    space = segment.find(question.space)
    if space is None or (question.conditions and not _has_values(segment, question.conditions)):
        return None
    scan = _scan(space, question, columns, question.start, question.end, limit=question.limit)
    return Part(
        info.min_timestamp, info.max_timestamp, info.partition, info.first_index, info.last_index,
        space.num_groupings == 1 or question.grouping is not None, space.num_events, scan.__iter__,
    )  # fmt: skip


def _scan(
    owner: Any,
    question: Question,
    columns: Sequence[str],
    start: int | None,
    end: int | None,
    *,
    limit: int | None = None,
) -> esformat.Scan:
    reverse = question.reverse and question.space is not None  # else the file's order, which the caller sorts by time
    if question.conditions:
        return owner.scan_index(  # type: ignore[no-any-return]
            dict(question.conditions), grouping=question.grouping, start=start, end=end, reverse=reverse, limit=limit,
            columns=columns,
        )  # fmt: skip
    return owner.scan(  # type: ignore[no-any-return]
        grouping=question.grouping, start=start, end=end, reverse=reverse, limit=limit, columns=columns
    )


def _has_values(segment: esformat.Segment, conditions: Sequence[tuple[str, Any]]) -> bool:
    """Whether the segment's indexes can hold the values: a column that came later, or had another type, holds none."""
    for name, value in conditions:
        if name not in segment.indexes:
            return False
        try:
            segment.scan_index(name, value)
        except UsageError:
            return False
    return True


def _windows(info: SegmentInfo, question: Question) -> Iterator[tuple[int, int | None]]:
    """Spans of time [start, end) that together hold the answers of a segment, in the question's direction."""
    low = info.min_timestamp if question.start is None else max(question.start, info.min_timestamp)
    high = info.max_timestamp if question.end is None else min(question.end - 1, info.max_timestamp)
    if low > high:
        return
    most = max(1, min(WINDOW_ROWS, WINDOW_STORED_BYTES * info.rows // max(1, info.size_bytes)))
    rows = min(most, FIRST_WINDOW_ROWS) if question.limit is not None else most
    whole = info.max_timestamp - info.min_timestamp + 1
    while low <= high:
        width = max(1, whole * rows // max(1, info.rows))
        if question.reverse:
            start = max(low, high - width + 1)
            yield start, _past(high)
            high = start - 1
        else:
            end = min(high, low + width - 1)
            yield low, _past(end)
            low = end + 1
        rows = min(8 * rows, most)


def _past(timestamp: int) -> int | None:
    """The end of a span whose last time is `timestamp`; None where no later time exists."""
    return timestamp + 1 if timestamp < 2**63 - 1 else None


def _indexed_batches(pool: SegmentPool, info: SegmentInfo, view: View, partition: str) -> Iterator[pa.RecordBatch]:
    table = pool.in_append_order(info)
    table = _within_times(_within_indexes(table.select(view.needed(table.column_names)), view.question), view.question)
    if view.question.reverse:
        table = table.take(pa.array(np.arange(len(table) - 1, -1, -1)))
    if view.question.limit is not None and not view.hidden:
        table = table.slice(0, view.question.limit)
    if len(table):
        yield view.shape(table, partition)


def _within_indexes(table: pa.Table, question: Question) -> pa.Table:
    """Rows of a table in append order between the record indexes that are asked for."""
    indexes = numbers(table, RECORD_INDEX)
    first = 0 if question.first_index is None else int(np.searchsorted(indexes, question.first_index))
    last = len(indexes) if question.end_index is None else int(np.searchsorted(indexes, question.end_index))
    return table.slice(first, max(0, last - first))


def _within_times(table: pa.Table, question: Question) -> pa.Table:
    if question.start is None and question.end is None:
        return table
    times = numbers(table, "timestamp")
    mask = np.ones(len(times), np.bool_) if question.start is None else times >= question.start
    return table.filter(pa.array(mask if question.end is None else mask & (times < question.end)))


def count_segment(pool: SegmentPool, info: SegmentInfo, question: Question) -> int:
    """How many answers a segment has, from its metadata where that tells. The question is not by record index."""
    segment = pool.get(info)
    owner: Any = segment if question.space is None else segment.find(question.space)
    if owner is None or (question.conditions and not _has_values(segment, question.conditions)):
        return 0
    return _scan(owner, question, ["timestamp"], question.start, question.end).count()


def segment_blocks(pool: SegmentPool, info: SegmentInfo, question: Question) -> tuple[set[int], int]:
    """Numbers of the data blocks of a segment that can hold answers, and how many it has."""
    segment = pool.get(info)
    owner: Any = segment if question.space is None else segment.find(question.space)
    if owner is None or (question.conditions and not _has_values(segment, question.conditions)):
        return set(), segment.scan().blocks()[1]
    return _scan(owner, question, ["timestamp"], question.start, question.end).blocks()
