"""Pages of records: from one partition starting at a record index, or from all partitions of a topic in turn.

A page has records of one schema. It ends where the schema changes, at the requested number of records, or with the
append that reaches a number of bytes. Its status gives the reason, and where the next page begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator import Scan, Topic
from aggregator.model import RECORD_INDEX
from aggregator.server.plateau.definition import SCHEMA_COLUMN, TIME, Definition, record_time
from aggregator.server.plateau.definitions import Definitions
from aggregator.server.plateau.projection import Focus

ALL, SCHEMA_CHANGE, RECORD_LIMITED, BYTE_LIMITED = "All", "SchemaChange", "RecordLimited", "ByteLimited"
_KEYS = ("space", "grouping", RECORD_INDEX)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A client's request. start_us, end_us: half-open time range, None: unbounded. descending: newest first."""

    page_size: int
    max_bytes: int
    start_us: int | None = None
    end_us: int | None = None
    descending: bool = False
    focus: Focus = field(default_factory=Focus)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of records.

    status: why it ends. next: for each partition the record index at which the next page begins; in descending order
    the one after the next record. first: record index of the first record. cuts: rows at which an Arrow file of the
    page should be split, so that no piece is larger than one append.
    """

    records: pa.Table
    status: str
    next: Mapping[str, int]
    first: int | None = None
    cuts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    """Records of one partition and one schema.

    definition: None for events that were not appended by plateau's routes. behind: status of a page that ends here; it
    says whether another schema or more of the same follows. ends: of the appends in it, if the page's bytes matter.
    """

    events: pa.Table
    definition: Definition | None
    behind: str
    ends: Sequence[int] = ()


class Pager:
    """Reads pages of topics. Thread-safe."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def page(self, topic: Topic, positions: Mapping[str, int | None], wanted: Wanted) -> Page:
        """Return a page of the partitions in `positions`, one after the other, by next record index and name.

        A partition whose next records have another schema than the first is skipped; the page's status is SCHEMA_CHANGE
        then. A position of None means from the beginning, or, descending, from the end. A partition that contributes no
        record keeps its position. Raises InvalidRequestError (a column that does not exist).
        """
        ends = topic.ends()
        ahead = {name: _begin(given, ends.get(name, 0), wanted) for name, given in positions.items()}
        order = sorted(ahead, key=lambda name: (ahead[name], name), reverse=wanted.descending)
        made = _Making(wanted)
        other_schemas = False
        for name in order:
            run = self._run(topic, name, ahead[name], wanted, max(1, wanted.page_size - made.rows), made)
            if run is None:
                continue
            if made.rows == wanted.page_size:
                made.fill(run)
                break
            if made.shape not in (None, (run.definition,)):
                other_schemas = True  # left for another page; others may still have the same schema
                continue
            made.take(run)
            last = run.events.column(RECORD_INDEX)[-1].as_py()
            ahead[name] = last if wanted.descending else last + 1
            if made.status == SCHEMA_CHANGE:
                other_schemas = True
            elif made.status != ALL:
                break
        return Page(made.records(), SCHEMA_CHANGE if other_schemas else made.status, ahead, made.first, made.cuts)

    def _run(self, topic: Topic, partition: str, begin: int, wanted: Wanted, limit: int, made: _Making) -> _Run | None:
        """Read up to `limit` records of one partition and one schema, up to the append that reaches the page's bytes.

        None if there are no records. If the schema differs from the page's, no records are read.
        """
        if wanted.descending and begin == 0:
            return None

        def read(columns: Sequence[str], limit: int) -> Scan:
            return topic.read(
                partition,
                begin - 1 if wanted.descending else begin,
                limit,
                reverse=wanted.descending,
                columns=columns,
                start=wanted.start_us,
                end=wanted.end_us,
            )

        present = topic.scan().schema.names
        expected = self._definitions.only(topic)
        if expected is None:
            keys = read(_KEYS, 1).to_table()
            if not len(keys):
                return None
            expected, _ = self._shape(topic, partition, keys)
        while True:
            if made.shape not in (None, (expected,)):
                return _Run(EMPTY, expected, SCHEMA_CHANGE)
            columns = _columns(expected, wanted.focus, present)
            wanted_columns = list(dict.fromkeys([*columns, *_KEYS]))
            found = _begins_with(read(wanted_columns, limit + 1), columns, made.room, one_shape=expected is not None)
            if not len(found):
                return None
            definition, length, behind = self._extent(topic, partition, found, limit)
            if definition is not expected:
                expected = definition
                continue
            events = found.select(columns).slice(0, length)
            fitting = _rows_within(events, made.room)
            if fitting is None and wanted.focus.max_bytes is None:
                return _Run(events, definition, behind)
            reach = limit + 1 if length == len(found) else length + 1
            starts = read(_KEYS if definition is None else (*_KEYS, SCHEMA_COLUMN), reach).to_table()
            if len(starts):
                _, length, behind = self._extent(topic, partition, starts, limit)
                ends = _ends(starts.slice(0, length), fitting or length, descending=wanted.descending)
                if fitting is not None:
                    length, behind = ends[-1], behind if ends[-1] == limit else BYTE_LIMITED
                events = events.slice(0, length) if length <= len(events) else read(columns, length).to_table()
                if events.column(RECORD_INDEX).equals(starts.column(RECORD_INDEX).slice(0, length)):
                    return _Run(events, definition, behind, ends)
            # retention removed records between the reads: start over

    def _extent(self, topic: Topic, partition: str, keys: pa.Table, limit: int) -> tuple[Definition | None, int, str]:
        """Return the definition of the first record, how many up to `limit` share it, and the status after them."""
        definition, length = self._shape(topic, partition, keys)
        if length > limit:
            return definition, limit, RECORD_LIMITED
        return definition, length, ALL if length == len(keys) else SCHEMA_CHANGE

    def _shape(self, topic: Topic, partition: str, keys: pa.Table) -> tuple[Definition | None, int]:
        """Return the definition of the first record, and how many records from there on share it."""
        if _alike(keys.column("space")) and _alike(keys.column("grouping")):  # the usual case, ten times faster
            place = partition, keys.column(RECORD_INDEX)[0].as_py()
            space, name = keys.column("space")[0].as_py(), keys.column("grouping")[0].as_py()
            return None if space else self._definitions.of_event(topic, name, place), len(keys)
        ours = np.asarray(pc.equal(pc.binary_length(keys.column("space")), 0).to_numpy())
        encoded = pc.dictionary_encode(keys.column("grouping")).combine_chunks()
        codes, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()

        def definition_of(row: int) -> Definition | None:
            place = partition, keys.column(RECORD_INDEX)[row].as_py()
            return self._definitions.of_event(topic, names[codes[row]], place) if ours[row] else None

        definition = definition_of(0)
        if definition is not None:
            others = np.flatnonzero((codes != codes[0]) | ~ours)
            return definition, int(others[0]) if len(others) else len(keys)
        defined = np.zeros(len(names), np.bool_)
        mine = np.flatnonzero(ours)
        for row in mine[np.unique(codes[mine], return_index=True)[1]].tolist():
            defined[codes[row]] = definition_of(row) is not None
        others = np.flatnonzero(ours & defined[codes])
        return None, int(others[0]) if len(others) else len(keys)


class _Making:
    """A page under construction."""

    def __init__(self, wanted: Wanted) -> None:
        self.status = ALL
        self.rows = 0
        self.first: int | None = None
        self.cuts: tuple[int, ...] = ()
        self.shape: tuple[Definition | None] | None = None  # of the records, once there are any
        self._wanted = wanted
        self._tables: list[pa.Table] = []
        self._bytes = 0

    @property
    def room(self) -> int:
        """Number of bytes left."""
        return self._wanted.max_bytes - self._bytes

    def take(self, run: _Run) -> None:
        """Append a run."""
        self.status = run.behind
        self.cuts += tuple(self.rows + end for end in (0, *run.ends)) if run.ends else ()
        self._tables.append(run.events)
        self._bytes += run.events.nbytes
        self.rows += len(run.events)
        self.shape = (run.definition,)
        if self.first is None:
            self.first = run.events.column(RECORD_INDEX)[0].as_py()

    def fill(self, run: _Run) -> None:
        """Note that a run has no room. If no record fitted at all, the page gets the run's columns."""
        self.status = RECORD_LIMITED
        if self.shape is None:
            self._tables, self.shape = [run.events.slice(0, 0)], (run.definition,)

    def records(self) -> pa.Table:
        """Return all records with the requested columns."""
        if self.shape is None:
            return EMPTY
        focus, definition = self._wanted.focus, self.shape[0]
        events = pa.concat_tables(self._tables)
        if definition is None:
            records = _foreign(events)
        else:
            records = definition.records(events, focus.roots(definition.schema.names))
        return focus.without_large(focus.select(records), self.cuts)


EMPTY = pa.table({})
"""A page without records: their schema is unknown."""


def _alike(column: pa.ChunkedArray) -> bool:
    """Whether all rows of a key column certainly have the same value and none is null."""
    if column.num_chunks != 1:
        return False
    chunk = column.chunk(0)
    _, places, stored = chunk.buffers()
    offsets = np.frombuffer(places, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
    length = int(offsets[1] - offsets[0])
    if chunk.null_count or (np.diff(offsets) != length).any():
        return False
    data = np.frombuffer(stored or b"", np.uint8)[offsets[0] : offsets[-1]]
    return bool((data[length:] == data[: len(data) - length]).all())


def _begin(given: int | None, end: int, wanted: Wanted) -> int:
    if given is None:
        return end if wanted.descending else 0
    return given


def _columns(definition: Definition | None, focus: Focus, present: Sequence[str]) -> list[str]:
    """Return the columns to read for records of a definition."""
    if definition is None:
        return [*(name for name in present if name != SCHEMA_COLUMN), RECORD_INDEX]
    stored = (definition.columns.get(name) for name in focus.roots(definition.schema.names))
    return ["timestamp", *dict.fromkeys(name for name in stored if name is not None and name in present), RECORD_INDEX]


def _foreign(events: pa.Table) -> pa.Table:
    """Return events that were not appended by plateau's routes: their columns after a time in milliseconds."""
    named = {TIME: record_time(events.column("timestamp"), pa.int64())}
    for name in events.column_names:
        if name != RECORD_INDEX:
            named[name if name != TIME else f"{TIME}:2"] = events.column(name)
    return pa.table(named)


def _begins_with(found: Scan, columns: list[str], max_bytes: int, *, one_shape: bool) -> pa.Table:
    """Read events up to the batch in which `columns` reach this many bytes.

    one_shape: also stop at the batch in which the keys change. Later batches are not read.
    """
    batches, size = [], 0
    for batch in found.batches():
        batches.append(batch)
        size += batch.select(columns).nbytes
        if size >= max_bytes or (one_shape and _keys(batch, -1) != _keys(batches[0], 0)):
            break
    return pa.Table.from_batches(batches, schema=None if batches else found.schema)


def _keys(batch: pa.RecordBatch, row: int) -> tuple[pa.Scalar, pa.Scalar]:
    return batch.column("space")[row], batch.column("grouping")[row]


def _rows_within(records: pa.Table, max_bytes: int) -> int | None:
    """Return how many of the first records reach `max_bytes`; None if all of them stay below."""
    if records.nbytes < max_bytes:
        return None
    low, high = 1, len(records)
    while low < high:
        middle = (low + high) // 2
        if records.slice(0, middle).nbytes < max_bytes:
            low = middle + 1
        else:
            high = middle
    return low


def _ends(starts: pa.Table, fitting: int, *, descending: bool) -> list[int]:
    """Return the ends of the appends that contain the first `fitting` records.

    starts: all records, with a definition in the first of each append. Without that column appends cannot be
    distinguished, and the only end is `fitting`.
    """
    if SCHEMA_COLUMN not in starts.column_names:
        return [fitting]
    begins = np.flatnonzero(np.asarray(starts.column(SCHEMA_COLUMN).is_valid()))
    ends = [*(begins + 1 if descending else begins[begins > 0]).tolist(), len(starts)]
    return ends[: int(np.searchsorted(ends, fitting)) + 1]
