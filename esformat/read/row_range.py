"""Read rows [first, last) of a segment, for parallel readers that each take a share of a segment."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from esformat.errors import CorruptSegmentError, UsageError
from esformat.event import MAX_TIMESTAMP, MIN_TIMESTAMP
from esformat.format.data_block import I64, keys_array
from esformat.format.layout import BlockKind
from esformat.format.postings import Posting
from esformat.format.schema import EventSchema
from esformat.read.ask.bounds import UNBOUNDED, Bounds, Domain, admits_nothing
from esformat.read.blocks.index import Index
from esformat.read.blocks.reader import Reader
from esformat.read.scan import Scan
from esformat.read.segment import Segment
from esformat.read.selection import select

KEYS = ("space", "grouping")
EVENTS = "_events"
"""The column with the number of events of a run."""


@dataclass(frozen=True, slots=True)
class RowPiece:
    """Rows [first, last) that can contain matching events, and an estimate of the stored bytes to read for them."""

    first: int
    last: int
    stored_bytes: int


def identity(segment: Segment) -> tuple[int, int]:
    """An open segment's size and the checksum of its directory root, which lists all blocks: they identify the file."""
    return segment.size_bytes, _reader(segment).table[BlockKind.DIRECTORY_ROOT, 0, 0].check


def scan_rows(
    segment: Segment,
    first: int,
    last: int,
    *,
    columns: Sequence[str] | None = None,
    bounds: Bounds = UNBOUNDED,
    start: int | None = None,
    end: int | None = None,
    listed: I64 | None = None,
    threads: int = 1,
) -> Scan:
    """A scan, in the order of the file, of at least those events of rows [first, last) that are within bounds.

    columns: those to read; None: all. start, end: only events with timestamps in [start, end), µs. listed: ascending
    rows to return; no others are, and no block without one is read. threads: how many decode; 1 suits parallel readers.
    Raises UsageError if the segment has no such rows or columns, immediately.
    """
    reader = _reader(segment)
    if not 0 <= first <= last <= reader.root.events:
        raise UsageError(
            f"rows [{first}, {last}) are out of range: the file has {reader.root.events}", path=segment.path
        )
    names = reader.schema.arrow.names
    unknown = [name for name in columns or () if name not in names]
    if unknown:
        raise UsageError(f"no column {unknown[0]!r}", path=segment.path, hint=f"the columns are {', '.join(names)}")
    if start is not None or end is not None:
        bounds = {**bounds, "timestamp": bounds.get("timestamp", Domain()).meet(Domain(None, start, end))}
    chosen = tuple(names if columns is None else columns)
    return select(reader, bounds, chosen, rows=(first, last), listed=listed, threads=threads)


def runs_of_rows(
    segment: Segment, first: int, last: int, bounds: Bounds = UNBOUNDED, keys: Sequence[str] = KEYS
) -> Iterator[pa.RecordBatch]:
    """The runs in rows [first, last) whose spaces are within bounds: columns `keys`, and EVENTS with numbers of rows.

    Reads the directory only, no events. A run that continues in the next leaf is returned in two parts.
    """
    reader = _reader(segment)
    kind = reader.schema.key_type
    for number, begin, end in () if admits_nothing(bounds) else _runs_of_spaces(segment, bounds.get("space")):
        begin, end = max(begin, first), min(end, last)
        if begin >= end:
            continue
        leaf = reader.leaf(number)
        edges = np.asarray(leaf.run_rows)
        a = int(np.searchsorted(edges, begin, side="right")) - 1
        b = int(np.searchsorted(edges, end, side="left"))
        counts = np.diff(np.clip(edges[a : b + 1], begin, end))
        try:
            arrays = [
                keys_array(leaf.spaces if name == "space" else leaf.groupings).slice(a, b - a).cast(kind)
                for name in keys
            ]
        except pa.ArrowInvalid as error:
            raise CorruptSegmentError(f"a key is not UTF-8 text: {error}", path=segment.path) from None
        yield pa.RecordBatch.from_arrays([*arrays, pa.array(counts)], names=[*keys, EVENTS])


def candidate_rows(segment: Segment, bounds: Bounds = UNBOUNDED) -> list[RowPiece]:
    """The ranges of rows that can contain events within bounds, ascending, each within one directory leaf.

    Reads the space filter, the directory and the indexes, but no events. Leaves are read only for bounds on spaces.
    """
    reader = _reader(segment)
    share = 0.0 if admits_nothing(bounds) else _share(reader, bounds)
    if not share:
        return []
    times = bounds.get("timestamp", Domain()).hull(lambda moment: moment + 1)
    low = MIN_TIMESTAMP if times.low is None else times.low
    high = MAX_TIMESTAMP + 1 if times.high is None else times.high
    root = reader.root
    pieces = []
    for leaf, first, last in _runs_of_spaces(segment, bounds.get("space")):
        earliest, latest = root.times_of(leaf)
        if earliest < high and latest >= low:
            handle, data_offset = root.place(leaf)
            stored, (begin, end) = handle.offset - data_offset, root.rows_of(leaf)
            part = (last - first) / (end - begin)
            pieces.append(RowPiece(first, last, max(1, int(stored * part * share))))
    return pieces


def _share(reader: Reader, bounds: Bounds) -> float:
    """The largest fraction of data blocks to read according to the indexes; 0 if these have no matching event."""
    share = 1.0
    blocks = max(1, reader.root.data_blocks)
    for name in reader.schema.indexes:
        domain = bounds.get(name)
        if domain is not None and domain.listed is not None:
            postings = _postings(reader, name, domain.listed)
            share = min(share, sum(posting.count for posting in postings) / blocks)
    return share


def most_events(segment: Segment, bounds: Bounds, pieces: Iterable[RowPiece]) -> int:
    """The maximum number of rows of pieces within bounds, according to the indexes; reads no events."""
    reader = _reader(segment)
    most = sum(piece.last - piece.first for piece in pieces)
    for name in reader.schema.indexes if most else ():
        domain = bounds.get(name)
        if domain is not None and domain.listed is not None:
            most = min(most, sum(posting.count for posting in _postings(reader, name, domain.listed)))
    return most


def _postings(reader: Reader, name: str, values: Iterable[Any]) -> list[Posting]:
    return list(filter(None, map(Index(reader, name).find, values)))


def _runs_of_spaces(segment: Segment, spaces: Domain | None) -> Iterator[tuple[int, int, int]]:
    """The leaves with events in some spaces, and the rows [first, last) of these in each leaf, ascending."""
    reader = _reader(segment)
    root = reader.root
    if spaces is None or spaces.listed is None:
        begin = 0 if spaces is None or spaces.low is None else root.leaves_of(spaces.low).start
        end = len(root) if spaces is None or spaces.high is None else root.leaves_before(spaces.high)
        for number in range(begin, end):
            first, last = root.rows_of(number)
            if spaces is not None and number in (begin, end - 1):  # the other leaves are entirely within the range
                leaf = reader.leaf(number)
                held = leaf.spaces.as_list()
                first = first if spaces.low is None else leaf.run_rows[bisect_left(held, spaces.low)]
                last = last if spaces.high is None else leaf.run_rows[bisect_left(held, spaces.high)]
            if first < last:
                yield number, first, last
        return
    for key in sorted(spaces.listed):
        for number in root.leaves_of(key) if segment.may_contain(key) else ():
            leaf = reader.leaf(number)
            first, last = leaf.runs_of(key)
            if first < last:
                yield number, leaf.run_rows[first], leaf.run_rows[last]


def schema_of(segment: Segment) -> EventSchema:
    """An open segment's columns, and which of them are indexed."""
    return _reader(segment).schema


def _reader(segment: Segment) -> Reader:
    """The reader of an open segment."""
    return segment._reader
