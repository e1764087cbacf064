"""Find rows of unsealed batches by space, time and record index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.storage.memtable.batch import I64, MemtableBatch, times_of, writer_of
from aggregator.storage.memtable.space_index import SpaceIndex

FEW_RUNS = 16
"""Up to this many row ranges are taken as slices, without copying; a slice costs 2 µs, taking all rows 25 µs."""
MAX_LOOKUP_ROWS = 1 << 17
"""Lookups are merged up to this many rows."""
INDEXED_ROWS = 1 << 12
"""Minimum number of rows of a lookup that gets an index of its spaces."""
INDEX_AFTER = 16
"""Such a lookup gets its index after this many requests for a space."""
COMMON_SHARE = 16
"""If at least 1/COMMON_SHARE of the rows may belong to the space, comparing all keys is as fast as the index."""
NEWEST_ROWS = 2048
"""This many of the newest rows have a separate lookup, for readers that want the newest few."""
SHORT_RUN = 64
"""The core copies shorter row ranges; Arrow copies longer ones faster, but releases the GIL for each."""


class Lookup:
    """Rows of several batches of one schema, numbered from 0 over all of them, by space and by time.

    Cheap to create: the batches' columns are combined on first use.
    """

    def __init__(self, batches: tuple[MemtableBatch, ...]) -> None:
        self.batches = batches
        self.rows = sum(batch.rows for batch in batches)
        self.min_timestamp = min(batch.min_timestamp for batch in batches)
        self.max_timestamp = max(batch.max_timestamp for batch in batches)
        self._asked = 0
        self._columns: dict[str, pa.ChunkedArray] = {}

    @classmethod
    def joined(cls, first: Lookup, second: Lookup) -> Lookup:
        """The rows of two lookups, reusing what both have already computed."""
        self = cls.__new__(cls)
        self.batches = (*first.batches, *second.batches)
        self.rows = first.rows + second.rows
        self.min_timestamp = min(first.min_timestamp, second.min_timestamp)
        self.max_timestamp = max(first.max_timestamp, second.max_timestamp)
        self._asked = max(first._asked, second._asked)
        self._columns = {}
        known = vars(first)
        if "times" in known:
            self.times = np.concatenate([first.times, second.times])
        if "edges" in known:
            self.edges = np.concatenate([first.edges, second.edges[1:] + first.rows])
        if "_index" in known:
            self._index = first._index.followed_by(second._index)
        return self

    def column(self, name: str) -> pa.ChunkedArray:
        """A column that the batches have, over all rows; nothing is copied."""
        known = self._columns.get(name)
        if known is None:
            known = self._columns[name] = pa.chunked_array([batch.events.column(name) for batch in self.batches])
        return known

    @cached_property
    def times(self) -> I64:
        """The timestamp of each row."""
        return np.concatenate([times_of(batch.events) for batch in self.batches])

    @cached_property
    def edges(self) -> I64:
        """The row at which each batch begins, and the number of rows."""
        return np.cumsum([0, *(batch.rows for batch in self.batches)])

    @cached_property
    def _messages(self) -> list[bytes]:
        """The messages of the batches, if all of them are messages that the core can read; otherwise empty."""
        return _messages_of(self.batches)

    @cached_property
    def _index(self) -> SpaceIndex:
        return SpaceIndex.of(self.column("space").combine_chunks())

    def follows(self, other: Lookup) -> bool:
        """Whether the two are to be merged: they have the same schema, and the other is not much larger."""
        same = self.batches[0].schema is other.batches[0].schema
        return same and other.rows <= 2 * self.rows and other.rows + self.rows <= MAX_LOOKUP_ROWS

    def find(self, space: bytes) -> I64:
        """Rows of a space, ascending, rarely with one of another space: see `SpaceIndex.find`.

        Compares every key, at 3 ns each. An index costs as much as INDEX_AFTER such calls, so only large lookups get
        one, after as many requests.
        """
        self._asked += 1
        if self.rows >= INDEXED_ROWS and self._asked > INDEX_AFTER:
            rows = self._index.find(space)
            if len(rows) * COMMON_SHARE < self.rows:
                return rows
        column = self.column("space")
        return np.flatnonzero(pc.equal(column, pa.scalar(space, pa.binary()).cast(column.type)).to_numpy())

    def having(self, space: bytes) -> tuple[I64, I64]:
        """The rows that `find` returns, and their timestamps. A small lookup searches the messages directly, without
        Arrow columns, because each Arrow call may wait for the GIL.
        """
        if self.rows <= NEWEST_ROWS and self._messages:
            schema = self.batches[0].schema.schema.arrow
            writer, places = writer_of(schema), [schema.get_field_index(name) for name in ("space", "timestamp")]
            found = writer and writer.find(self._messages, places[0], space, places[1])
            if found:
                return np.frombuffer(found[0], np.int64), np.frombuffer(found[1], np.int64)
        rows = self.find(space)
        return rows, self.times[rows]

    def within(self, first_index: int | None, end_index: int | None) -> I64:
        """Rows, ascending, of the batches with record indexes between the bounds: all of them, and other rows."""
        low, high = 0, self.rows
        if first_index is not None:
            ends = np.array([batch.end_index for batch in self.batches])
            low = int(self.edges[np.searchsorted(ends, first_index, side="right")])
        if end_index is not None:
            firsts = np.array([batch.first_index for batch in self.batches])
            high = int(self.edges[np.searchsorted(firsts, end_index)])
        return np.arange(low, high)


class Rows:
    """The rows of lookups of one schema, numbered from 0 over all of them."""

    def __init__(self, lookups: Sequence[Lookup]) -> None:
        self.bases = [0, *accumulate(lookup.rows for lookup in lookups)]
        self._lookups = lookups

    def lookups_of(self, rows: I64) -> I64:
        """The number of the lookup that has each row."""
        return np.searchsorted(np.array(self.bases), rows, side="right") - 1

    @cached_property
    def _batches(self) -> list[MemtableBatch]:
        return list(chain.from_iterable(lookup.batches for lookup in self._lookups))

    @cached_property
    def _edges(self) -> I64:
        return np.concatenate(
            [lookup.edges[:-1] + base for lookup, base in zip(self._lookups, self.bases, strict=False)]
        )

    def take(self, rows: I64, names: Sequence[str]) -> tuple[pa.RecordBatch, I64]:
        """Take at least one row, in the given order: the columns `names` and the record indexes."""
        owners = self.lookups_of(rows)
        owner = int(owners[0])
        if (owners == owner).all():
            return _take(self._lookups[owner].batches, self._lookups[owner].edges, rows - self.bases[owner], names)
        return _take(self._batches, self._edges, rows, names)


def _take(batches: Sequence[MemtableBatch], edges: I64, rows: I64, names: Sequence[str]) -> tuple[pa.RecordBatch, I64]:
    """Take rows of batches; each batch begins at a row of `edges`."""
    places = np.searchsorted(edges, rows, side="right") - 1
    mine = rows - edges[places]
    fresh = np.append(True, places[1:] != places[:-1])  # where another batch begins
    apart = fresh | np.append(False, mine[1:] != mine[:-1] + 1)  # where a new range of adjacent rows begins
    ranges = int(apart.sum())
    if ranges > 1 and len(rows) < SHORT_RUN * ranges:
        gathered = _gathered(batches, places, mine, names)
        if gathered is not None:
            return gathered
    count = int(fresh.sum())
    if count > FEW_RUNS and count > 2 * len(np.unique(places)):  # the rows alternate between batches
        order = np.argsort(rows)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        record_batch, sorted_indexes = _take(batches, edges, rows[order], names)
        return record_batch.take(pa.array(back)), sorted_indexes[back]
    runs = apart.nonzero()[0] if ranges <= FEW_RUNS else fresh.nonzero()[0]
    record_batches, indexes = [], []
    for first, last in pairwise([*runs.tolist(), len(rows)]):
        batch, some = batches[places[first]], mine[first:last]
        record_batch = _with_columns(batch.events, names)
        adjoining = not apart[first + 1 : last].any()
        record_batches.append(
            record_batch.slice(int(some[0]), len(some)) if adjoining else record_batch.take(pa.array(some))
        )
        indexes.append(batch.first_index + some if batch.indexes is None else batch.indexes[some])
    return record_batches[0] if len(record_batches) == 1 else pa.concat_batches(record_batches), np.concatenate(indexes)


def _with_columns(record_batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    return record_batch if record_batch.schema.names == names else record_batch.select(names)


def _gathered(
    batches: Sequence[MemtableBatch], places: I64, mine: I64, names: Sequence[str]
) -> tuple[pa.RecordBatch, I64] | None:
    """Copy rows out of messages: row `mine` of the batch at each of `places`. None if a batch is not a message."""
    used = np.zeros(len(batches), np.bool_)
    used[places] = True
    numbers = (np.cumsum(used) - 1)[places]
    some = [batches[place] for place in used.nonzero()[0].tolist()]
    schema = some[0].schema.schema.arrow
    messages, writer = _messages_of(some), writer_of(schema)
    stored = writer and messages and writer.gather(messages, np.column_stack([numbers, mine]).tobytes())
    if not stored:
        return None
    record_batch = pa.ipc.read_record_batch(stored, schema)
    if all(batch.indexes is None for batch in some):
        indexes = np.array([batch.first_index for batch in some])[numbers] + mine
    else:
        bases = np.cumsum([0, *(batch.rows for batch in some)])
        indexes = np.concatenate([batch.record_indexes() for batch in some])[bases[numbers] + mine]
    return _with_columns(record_batch, names), indexes


def _messages_of(batches: Sequence[MemtableBatch]) -> list[bytes]:
    messages = [batch.content for batch in batches if isinstance(batch.content, bytes)]
    return messages if len(messages) == len(batches) else []


def look_up(batches: Sequence[MemtableBatch], known: Sequence[Lookup]) -> tuple[Lookup, ...]:
    """Lookups that cover all batches in order: the known ones that still fit, and new ones for the rest.

    Lookups of similar size are merged, so that there are few however many batches arrived. The newest batches,
    NEWEST_ROWS rows or one batch, stay separate.
    """
    kept = _still_good(batches, known)
    if sum(len(lookup.batches) for lookup in kept) == len(batches):
        return tuple(kept)
    if kept and kept[-1].rows <= NEWEST_ROWS:
        kept.pop()
    fresh = batches[sum(len(lookup.batches) for lookup in kept) :]
    newest = _newest(fresh)
    for group in _groups(fresh[:-newest]):
        kept.append(Lookup(tuple(group)))
        while len(kept) > 1 and kept[-1].follows(kept[-2]):
            last = kept.pop()
            kept[-1] = Lookup.joined(kept[-1], last)
    kept.append(Lookup(tuple(fresh[-newest:])))
    return tuple(kept)


def _newest(batches: Sequence[MemtableBatch]) -> int:
    """How many of the last batches have at most NEWEST_ROWS rows together and one schema; at least one."""
    rows = 0
    for count, batch in enumerate(reversed(batches)):
        rows += batch.rows
        if rows > NEWEST_ROWS or batch.schema is not batches[-1].schema:
            return max(1, count)
    return len(batches)


def _still_good(batches: Sequence[MemtableBatch], known: Sequence[Lookup]) -> list[Lookup]:
    """Lookups that still match the first batches."""
    kept: list[Lookup] = []
    at = 0
    for lookup in known:
        if at + len(lookup.batches) > len(batches) or lookup.batches[0] is not batches[at]:
            break
        if lookup.batches[-1] is not batches[at + len(lookup.batches) - 1]:
            break
        kept.append(lookup)
        at += len(lookup.batches)
    return kept


def _groups(batches: Iterable[MemtableBatch]) -> Iterable[list[MemtableBatch]]:
    """Batches in groups of up to MAX_LOOKUP_ROWS rows, each of one schema."""
    group: list[MemtableBatch] = []
    rows = 0
    for batch in batches:
        if group and (batch.schema is not group[0].schema or rows + batch.rows > MAX_LOOKUP_ROWS):
            yield group
            group, rows = [], 0
        group.append(batch)
        rows += batch.rows
    if group:
        yield group
