"""The unsealed events that match a query: batches in order, read lazily.

Rows of a space are read from all lookups of a partition together: each finds its rows, one lookup after the other if a
limit may end the search early, and a single gather copies them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.base.merge import PARTITION_COLUMN, numbers
from aggregator.model import RECORD_INDEX
from aggregator.read.query import Query, stored_value
from aggregator.read.segment_source import FIRST_WINDOW_ROWS, WINDOW_ROWS
from aggregator.read.view import View
from aggregator.storage.memtable.batch import I64, SchemaPlaces
from aggregator.storage.memtable.lookup import Lookup, Rows
from aggregator.storage.state.state import Snapshot
from esformat.parts import have_key

Bools = npt.NDArray[np.bool_]
NEXT_FACTOR = 8
"""If the rows for a limit do not suffice, this many times as many are read next."""
WINDOW_BYTES = 1 << 20
"""Bytes of events that are copied out of their batches at a time: more would stay in memory for slow readers."""
FEW_ROWS = 16
"""Minimum number of rows copied at a time."""
SAMPLED = 64
"""Number of batches from which the size of an event is estimated."""


@dataclass(frozen=True, slots=True)
class Group:
    """Lookups of one schema that are read together, and the partition of each: by partition, then in their order."""

    lookups: tuple[Lookup, ...]
    partitions: tuple[int, ...]

    @property
    def partition(self) -> int | None:
        """The partition; None if there are several."""
        return self.partitions[0] if self.partitions[0] == self.partitions[-1] else None

    @property
    def rows(self) -> int:
        """Number of events."""
        return sum(lookup.rows for lookup in self.lookups)

    @property
    def min_timestamp(self) -> int:
        """No event is earlier."""
        return min(lookup.min_timestamp for lookup in self.lookups)

    @property
    def max_timestamp(self) -> int:
        """No event is later."""
        return max(lookup.max_timestamp for lookup in self.lookups)

    @property
    def first_index(self) -> int:
        """The first record index, if there is one partition."""
        return self.lookups[0].batches[0].first_index

    @property
    def last_index(self) -> int:
        """The last record index, if there is one partition."""
        return self.lookups[-1].batches[-1].end_index - 1

    @property
    def row_bytes(self) -> int:
        """Approximate size of a row."""
        batches = [batch for lookup in self.lookups for batch in lookup.batches]
        sample = batches[:: max(1, len(batches) // SAMPLED)]
        return sum(batch.size_bytes for batch in sample) // max(1, sum(batch.rows for batch in sample))

    def bound(self, query: Query) -> int:
        """The bound for a `Source`."""
        if query.by_index:
            return ~self.last_index if query.reverse else self.first_index
        return ~self.max_timestamp if query.reverse else self.min_timestamp


def lookup_groups(snapshot: Snapshot, query: Query, *, together: bool = False) -> list[Group]:
    """Unsealed batches that may contain matching events.

    together: all partitions in one group, if the query has a space and nothing is hidden.
    """
    found: dict[tuple[int, int], list[tuple[int, Lookup]]] = {}
    schemas = SchemaPlaces()
    apart = query.space is None or query.by_index
    together = together and not snapshot.tombstones
    parts = [part for part in snapshot.memtables if query.partition in (None, part.partition)]
    for part in sorted(parts, key=lambda part: part.partition):
        for lookup in part.lookups():
            times = lookup.min_timestamp, lookup.max_timestamp
            if query.overlap(times, (lookup.batches[0].first_index, lookup.batches[-1].end_index - 1)):
                owner = -len(found) - 1 if apart else 0 if together else part.partition
                key = (schemas.place(lookup.batches[0].schema), owner)
                found.setdefault(key, []).append((part.partition, lookup))
    return [Group(tuple(lookup for _, lookup in some), tuple(number for number, _ in some)) for some in found.values()]


def unsealed_batches(group: Group, view: View, partition: str | Mapping[int, str]) -> Iterator[pa.RecordBatch]:
    """The matching events of some unsealed batches, in order. With a limit, no more are read than it needs.

    partition: the name, or the names of several by number: then PARTITION_COLUMN is an additional last column.
    """
    query = view.query
    present = group.lookups[0].batches[0].events.schema
    space = query.space
    if space is not None and not _may_be_held(group, space):
        return
    names = [name for name, _ in query.conditions]
    if any(name not in present.names for name in names):
        return
    names += ["grouping"] * (query.grouping is not None) + ["space"] * (space is not None)
    names = list(dict.fromkeys([*view.needed(present.names), *names]))
    every = Rows(group.lookups)
    for rows in _in_order(group, every.bases, query, space):
        for some in _slices(rows, query, group):
            batch, indexes = every.take(some, names)
            mask = _mask(batch, indexes, query, space)
            if mask is not None:
                batch, indexes, some = batch.filter(pa.array(mask)), indexes[mask], some[mask]
            if not len(batch):
                continue
            if view.hidden or RECORD_INDEX in view.target.names:
                schema = batch.schema.append(pa.field(RECORD_INDEX, pa.int64()))
                batch = pa.RecordBatch.from_arrays([*batch.columns, pa.array(indexes)], schema=schema)
            if isinstance(partition, str):
                yield view.shape(batch, partition)
                continue
            partitions = np.array(group.partitions)[every.lookups_of(some)]
            texts = pa.array([partition[number] for number in partitions.tolist()], pa.string())
            shaped = view.shape(batch, texts)
            schema = shaped.schema.append(pa.field(PARTITION_COLUMN, pa.int64()))
            yield pa.RecordBatch.from_arrays([*shaped.columns, pa.array(partitions)], schema=schema)


def most_of_space(group: Group, space: bytes) -> int:
    """Upper bound of the number of events of a space."""
    if group.rows <= FEW_ROWS:
        return group.rows
    return sum(len(lookup.having(space)[0]) for lookup in group.lookups) if _may_be_held(group, space) else 0


def _may_be_held(group: Group, space: bytes) -> bool:
    """Whether batches may contain a space. If spaces are text, its bytes must be text."""
    kind = group.lookups[0].batches[0].schema.schema.arrow.field("space").type
    if pa.types.is_binary(kind):
        return True
    try:
        space.decode()
    except UnicodeDecodeError:
        return False
    return True


def _in_order(group: Group, bases: list[int], query: Query, space: bytes | None) -> Iterator[I64]:
    """Numbers of the rows that may match, in the query's order."""
    lookups = group.lookups
    if query.by_index:
        for lookup, base in zip(lookups, bases, strict=False):
            rows = base + _having(lookup, query, lookup.within(query.first_index, query.end_index))
            yield rows[::-1] if query.reverse else rows
        return
    reverse = query.reverse
    keys = [~lookup.max_timestamp if reverse else lookup.min_timestamp for lookup in lookups]
    order = range(len(lookups)) if query.limit is None else sorted(range(len(lookups)), key=keys.__getitem__)
    enough = None if query.limit is None else _first_size(query)
    found: list[tuple[I64, I64]] = []
    for done, place in enumerate(order, 1):
        rows, times = _found(lookups[place], query, space)
        if len(rows):
            found.append((rows + bases[place], times))
        if enough is None or done == len(lookups) or sum(len(rows) for rows, _ in found) < enough:
            continue
        ready, left = _parted(found, keys[order[done]], reverse)
        if len(ready[0]) >= enough:
            yield _by_time([ready], reverse)
            found = [left]
            enough *= NEXT_FACTOR
    if found:
        yield _by_time(found, reverse)


def _found(lookup: Lookup, query: Query, space: bytes | None) -> tuple[I64, I64]:
    """Rows of a lookup in ascending order, and their timestamps. With a space, other conditions are not checked yet."""
    if space is None:
        rows, times = np.arange(lookup.rows), lookup.times
    else:
        rows, times = lookup.having(space)
    if query.start is not None and lookup.min_timestamp < query.start:
        mask = times >= query.start
        rows, times = rows[mask], times[mask]
    if query.end is not None and lookup.max_timestamp >= query.end:
        mask = times < query.end
        rows, times = rows[mask], times[mask]
    if space is None and _conditions(query):
        rows = _having(lookup, query, rows)
        times = lookup.times[rows]
    return rows, times


def _having(lookup: Lookup, query: Query, rows: I64) -> I64:
    """Those of some ascending rows whose columns have the requested values."""
    conditions = _conditions(query)
    if not conditions or not len(rows):
        return rows
    first, last = int(rows[0]), int(rows[-1]) + 1
    masks = [_equal(lookup.column(name)[first:last], value) for name, value in conditions]
    having: Bools = np.logical_and.reduce(masks)
    return rows[having[rows - first]]


def _conditions(query: Query) -> list[tuple[str, Any]]:
    return [*query.conditions] + [("grouping", query.grouping)] * (query.grouping is not None)


def _parted(found: list[tuple[I64, I64]], key: int, reverse: bool) -> tuple[tuple[I64, I64], tuple[I64, I64]]:
    """Rows that come before every row with that key or a later one, and the other rows."""
    rows = np.concatenate([rows for rows, _ in found])
    times = np.concatenate([times for _, times in found])
    ready = times > ~key if reverse else times < key
    return (rows[ready], times[ready]), (rows[~ready], times[~ready])


def _by_time(found: list[tuple[I64, I64]], reverse: bool) -> I64:
    """The rows by time, then number; `reverse` is the exact mirror."""
    rows, times = found[0]
    if len(found) > 1:
        rows = np.concatenate([rows for rows, _ in found])
        times = np.concatenate([times for _, times in found])
    if not ((times[1:] > times[:-1]) | (times[1:] == times[:-1]) & (rows[1:] > rows[:-1])).all():
        rows = rows[np.lexsort((rows, times))]
    return rows[::-1] if reverse else rows


def _first_size(query: Query) -> int:
    """Number of rows to read first because of a limit."""
    assert query.limit is not None
    filtered = query.space is not None and _conditions(query)
    return min(max(query.limit + 1, FIRST_WINDOW_ROWS if filtered else 1), WINDOW_ROWS)


def _slices(rows: I64, query: Query, group: Group) -> Iterator[I64]:
    """Rows in slices of at most about WINDOW_BYTES, the first with about as many rows as the query's limit."""
    if len(rows) <= FEW_ROWS:
        yield from (rows,) if len(rows) else ()
        return
    most = max(FEW_ROWS, min(WINDOW_ROWS, WINDOW_BYTES // max(1, group.row_bytes)))
    size = most if query.limit is None else min(most, _first_size(query))
    first = 0
    while first < len(rows):
        yield rows[first : first + size]
        first += size
        size = min(NEXT_FACTOR * size, most)


def _mask(batch: pa.RecordBatch, indexes: I64, query: Query, space: bytes | None) -> Bools | None:
    """Which rows match; None if all do. indexes: their record indexes."""
    masks = []
    if space is not None:
        masks.append(have_key(batch.column("space"), space))
        masks += [_equal(batch.column(name), value) for name, value in _conditions(query)]
    masks += query.masks(numbers(batch, "timestamp"), indexes)
    mask = np.logical_and.reduce(masks) if masks else None
    return None if mask is None or mask.all() else mask


def _equal(column: pa.Array | pa.ChunkedArray, value: Any) -> Bools:
    try:
        if isinstance(value, bytes):  # a key
            wanted = pa.scalar(value, pa.binary()).cast(column.type)
        elif (stored := stored_value(column.type, value)) is not None:
            wanted = pa.scalar(stored, column.type)
        else:
            return np.zeros(len(column), np.bool_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError):
        return np.zeros(len(column), np.bool_)
    return _bools(pc.equal(column, wanted).fill_null(False))


def _bools(mask: pa.BooleanArray | pa.ChunkedArray) -> Bools:
    return np.asarray(mask.to_numpy(zero_copy_only=False))
