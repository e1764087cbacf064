"""`create` and `Writer`: events in any order into one segment, which appears complete or not at all."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import local
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.arrays import is_bytes
from esformat.block_encoder import (
    BLOCK_ROWS,
    BlockEncoder,
    BlockFormat,
    Column,
    EncodedBlock,
    SortedRows,
    choose_raw,
    cut_blocks,
    may_want_codes,
    row_bytes,
    sample_rows,
    take_runs,
    train_on,
    wants_codes,
)
from esformat.builder import SegmentBuilder
from esformat.codec import Codec, codec_from_name
from esformat.dictionary import ColumnDictionary
from esformat.errors import ClosedError, InvalidEventError, UsageError
from esformat.intake import EventRows, check_table, to_arrow
from esformat.location import Target, publication_of
from esformat.metadata import Metadata, Statistics, check_properties, is_unicode
from esformat.order import I64, Ranked, rank, sort_order
from esformat.schema import KEY_COLUMNS, EventSchema, default_schema, make_schema

TASK_BLOCKS = 24  # blocks that one thread encodes at a time: enough to keep NumPy busy, few enough to share out


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a segment is stored."""

    codec: Codec
    level: int | None
    codec_name: str
    properties: dict[str, str]
    threads: int


def create(
    path: Target,
    *,
    indexes: Sequence[str] = (),
    schema: pa.Schema | None = None,
    keys: str = "text",
    codec: str = "zstd",
    level: int | None = None,
    properties: Mapping[str, str] | None = None,
    overwrite: bool = False,
    threads: int | None = None,
) -> Writer:
    """Start a segment that will appear at `path` when the writer finishes.

    path: of a file; or a URI (`s3://bucket/key` …), or a pair of a filesystem and a path in it: see `open`.
    indexes: columns that get a secondary index (string, integer or boolean).
    schema: payload and index columns; None takes them from the first table, or, where events are added one by
        one, `data` (binary) and a nullable string column for each index.
    keys: "text" (space and grouping are `str`) or "binary".
    codec, level: "zstd" (level 1 by default), "lz4" (needs the extra of that name) or "none".
    properties: text by name, kept in the file.
    overwrite: replace an existing file, atomically; otherwise it is an error.
    threads: how many encode at a time; by default one per processor. The bytes are the same for any number.

    Use it as a context manager: leaving the block finishes the file, an exception leaves nothing.
    Raises UsageError, InvalidEventError (a schema that cannot be stored), UnsupportedVersionError (no such codec
    installed), OSError.
    """
    if keys not in ("text", "binary"):
        raise UsageError(f'keys must be "text" or "binary", not {keys!r}')
    if isinstance(indexes, str):
        raise UsageError(f"indexes must be a list of column names, not the text {indexes!r}")
    if level is not None and codec != "zstd":
        raise UsageError(f"codec {codec!r} has no levels")
    if level is not None and not (isinstance(level, int) and -100 <= level <= 22):
        raise UsageError(f"zstd level {level!r} is not between -100 and 22")
    if threads is not None and not (isinstance(threads, int) and threads > 0):
        raise UsageError(f"threads must be a whole number from 1, not {threads!r}")
    if schema is not None and not isinstance(schema, pa.Schema):
        raise UsageError(f"schema must be a pyarrow.Schema, not {type(schema).__name__}")
    indexes = tuple(indexes)
    for name in indexes:
        if not isinstance(name, str) or not name or name in KEY_COLUMNS or not is_unicode(name):
            raise UsageError(f"{name!r} cannot be the name of an index")
        if indexes.count(name) > 1:
            raise UsageError(f"index {name!r} is named twice")
    workers = min(os.cpu_count() or 1, 8) if threads is None else threads
    options = WriteOptions(codec_from_name(codec), level, codec, check_properties(properties), workers)
    known = None if schema is None else make_schema(schema, indexes, binary_keys=keys == "binary")
    return Writer(path, known, indexes, keys == "binary", options, overwrite=overwrite)


class Writer:
    """Takes events in any order and, when finished, publishes them as one segment. Made by `create`.

    Not safe to share between threads. What was added is held in memory until `finish`.
    """

    def __init__(
        self,
        path: Target,
        schema: EventSchema | None,
        indexes: tuple[str, ...],
        binary_keys: bool,
        options: WriteOptions,
        *,
        overwrite: bool,
    ) -> None:
        self._publication = publication_of(path, overwrite=overwrite)
        self._name = self._publication.name
        self._schema = schema
        self._indexes = indexes
        self._binary_keys = binary_keys
        self._options = options
        self._tables: list[pa.Table] = []
        self._rows: EventRows | None = None
        self._events = 0
        self._state = "open"
        self.statistics: Statistics | None = None

    def __repr__(self) -> str:
        return f"<esformat.Writer {Path(self._name).name!r}, {self.num_events} events, {self._state}>"

    @property
    def num_events(self) -> int:
        """Events added so far."""
        return self._events

    def _check_open(self) -> None:
        if self._state != "open":
            raise ClosedError(f"the writer is {self._state}", path=self._name, hint="create another file")

    def add(
        self,
        space: str | bytes,
        data: bytes | str | None = None,
        *,
        timestamp: Any,
        grouping: str | bytes | None = None,
        indexes: Mapping[str, Any] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> None:
        """Add one event. `timestamp`: int µs since the epoch or an aware datetime; `columns`: payload besides `data`.

        Raises InvalidEventError, and then keeps nothing of the event; ClosedError after `finish` or `abort`.
        """
        self._check_open()
        if self._rows is None:
            if self._schema is None:
                self._schema = default_schema(self._indexes, binary_keys=self._binary_keys)
            self._rows = EventRows(self._schema)
        self._rows.add(space, data, timestamp, "" if grouping is None else grouping, indexes, columns)
        self._events += 1
        if self._rows.full:
            self._tables.append(self._rows.take())

    def add_table(self, table: Any) -> None:
        """Add the events of a table: a pyarrow table or batch, or anything with `__arrow_c_stream__`.

        Columns: space, timestamp (int64 µs or a timestamp with a zone), optional grouping, and those of the schema.
        All or nothing: raises InvalidEventError for a table that does not fit; ClosedError after `finish` or `abort`.
        """
        self._check_open()
        arrow = to_arrow(table)
        schema = self._schema
        if schema is None:
            schema = make_schema(arrow.schema, self._indexes, binary_keys=self._binary_keys)
        checked = check_table(arrow, schema)
        self._schema = schema
        if self._rows is not None and len(self._rows):  # events keep their order of arrival
            self._tables.append(self._rows.take())
        self._tables.append(checked)
        self._events += len(checked)

    def finish(self) -> None:
        """Sort, encode and publish the segment: durable and visible when this returns. A second call does nothing."""
        if self._state == "finished":
            return
        self._check_open()
        try:
            schema = self._schema or default_schema(self._indexes, binary_keys=self._binary_keys)
            if self._rows is not None and len(self._rows):
                self._tables.append(self._rows.take())
            table = pa.concat_tables(self._tables) if self._tables else schema.arrow.empty_table()
            self._tables = []
            self.statistics = write_segment(table, schema, self._options, self._publication.file)
            self._publication.commit()
        except BaseException:
            self.abort()
            raise
        self._state = "finished"

    def abort(self) -> None:
        """Throw everything away; nothing appears at the path. Does nothing after `finish`."""
        if self._state == "open":
            self._state = "aborted"
            self._tables, self._rows = [], None
            self._publication.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        elif self._state == "open":
            self.finish()

    def __del__(self) -> None:
        if getattr(self, "_state", None) == "open":
            self.abort()


def write_segment(table: pa.Table, schema: EventSchema, options: WriteOptions, sink: Any) -> Statistics:
    """Write the events of a checked table to `sink` as one segment."""
    metadata = Metadata(schema, options.codec_name, options.level, options.properties)
    source = _Unsorted(table, schema)
    form, edges = _plan(source, schema, options)
    builder = SegmentBuilder(sink, metadata, form)
    builder.start()
    for block in _encode_all(source, form, edges, options.threads):
        builder.add_block(block)
    for place, field in enumerate(schema.fields):
        if field.indexed:
            builder.add_index(place, source.sorted_ranks(place))
    return builder.finish()


class _Unsorted:
    """Events in memory in order of arrival, and the way to take any of their rows in segment order."""

    def __init__(self, table: pa.Table, schema: EventSchema) -> None:
        self.count = len(table)
        self.schema = schema
        self._spaces = rank(table["space"])
        self._groupings = rank(table["grouping"])
        keys = self._spaces.ranks * max(1, len(self._groupings.values)) + self._groupings.ranks
        timestamps = _numbers(table["timestamp"])
        self.order = sort_order(keys, timestamps)
        self._keys = self._take(keys)
        self._timestamps = self._take(timestamps)
        self._run_starts = np.append(True, self._keys[1:] != self._keys[:-1]).nonzero()[0] if self.count else keys
        self._ranked: dict[int, Ranked] = {}
        self.columns: list[pa.Array] = []
        self.coded: set[int] = set()
        for place, field in enumerate(schema.fields):
            column = table[field.name]
            if field.indexed or (may_want_codes(field.type) and _repeats(column)):
                self._ranked[place] = rank(column)
                if may_want_codes(field.type) and wants_codes(self._ranked[place].values, self.count):
                    self.coded.add(place)
            self.columns.append(_whole(column))

    def _take(self, numbers: I64) -> I64:
        return numbers if self.order is None else numbers[self.order]

    def sorted_ranks(self, place: int) -> Ranked:
        """The ranks of a column's values in row order."""
        ranked = self._ranked[place]
        return Ranked(self._take(ranked.ranks), ranked.values)

    def values(self, place: int) -> pa.Array:
        """The distinct values of a column that is stored as codes."""
        return self._ranked[place].values

    def _column(self, place: int, first: int, last: int) -> Column:
        if place in self.coded:
            ranks = self._ranked[place].ranks
            return ranks[first:last] if self.order is None else ranks[self.order[first:last]]
        column = self.columns[place]
        return (
            column.slice(first, last - first) if self.order is None else column.take(pa.array(self.order[first:last]))
        )

    def rows(self, first: int, last: int) -> SortedRows:
        """Rows [first, last) of the segment."""
        a = int(np.searchsorted(self._run_starts, first, side="right")) - 1
        b = int(np.searchsorted(self._run_starts, last, side="left"))
        starts = np.maximum(self._run_starts[a:b], first) - first
        keys = self._keys[self._run_starts[a:b]]
        groupings = max(1, len(self._groupings.values))
        return SortedRows(
            timestamps=self._timestamps[first:last],
            run_starts=starts,
            spaces=self._spaces.values.take(pa.array(keys // groupings)).cast(pa.binary()),
            groupings=self._groupings.values.take(pa.array(keys % groupings)).cast(pa.binary()),
            columns=[self._column(place, first, last) for place in range(len(self.columns))],
            continues=bool(self._run_starts[a] < first),
        )

    def row_bytes(self) -> I64 | None:
        """Bytes of each row in segment order; None where all rows are so small that blocks are cut by rows alone."""
        sizes = row_bytes([_plain(c, p in self.coded) for p, c in enumerate(self.columns)], self.schema)
        if not len(sizes) or int(sizes.max()) * BLOCK_ROWS <= 1 << 20:
            return None
        return self._take(sizes)


def _plain(column: pa.Array, coded: bool) -> Column:
    return np.zeros(len(column), np.int64) if coded else column


def _numbers(column: pa.ChunkedArray) -> I64:
    return np.asarray(column.cast(pa.int64()).to_numpy()).astype(np.int64, copy=False)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; strings and binary beyond 2 GiB with 64-bit offsets."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if is_bytes(column.type) and column.nbytes >= 1 << 31:
        column = column.cast(pa.large_string() if pa.types.is_string(column.type) else pa.large_binary())
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether a sample of a text column repeats itself enough to try a dictionary of its values."""
    step = max(1, len(column) // 4096)
    sample = column.take(pa.array(np.arange(0, len(column), step)))
    return len(sample) > 0 and 4 * pc.count_distinct(sample).as_py() <= len(sample)


def _plan(source: _Unsorted, schema: EventSchema, options: WriteOptions) -> tuple[BlockFormat, list[int]]:
    """How this file's blocks are stored, and the rows at which they are cut."""
    dictionaries = {}
    for place, field in enumerate(schema.fields):
        column = source.columns[place]
        if place in source.coded:
            dictionaries[place] = ColumnDictionary(place, values=source.values(place))
        elif is_bytes(field.type):
            runs = sample_rows(source.count, column.nbytes / max(1, source.count))
            zstd = train_on(take_runs(column, source.order, runs), column.nbytes, options.codec, options.level)
            if zstd:
                dictionaries[place] = ColumnDictionary(place, zstd)
    edges = cut_blocks(source.row_bytes(), source.count)
    raw = choose_raw(source.rows(0, edges[1]), schema, options.codec, options.level) if source.count else {}
    return BlockFormat(schema, options.codec, options.level, dictionaries, raw), edges


def _encode_all(source: _Unsorted, form: BlockFormat, edges: list[int], threads: int) -> Iterator[EncodedBlock]:
    """All data blocks in row order, encoded by several threads a few tasks ahead."""
    mine = local()

    def task(first: int) -> list[EncodedBlock]:
        if not hasattr(mine, "encoder"):
            mine.encoder = BlockEncoder(form)
        bounds = edges[first : first + TASK_BLOCKS + 1]
        rows = source.rows(bounds[0], bounds[-1])
        encoded: list[EncodedBlock] = mine.encoder.encode(rows, [edge - bounds[0] for edge in bounds])
        return encoded

    firsts = range(0, len(edges) - 1, TASK_BLOCKS)
    with ThreadPoolExecutor(threads, thread_name_prefix="esformat-encode") as pool:
        pending: deque[Future[list[EncodedBlock]]] = deque()
        try:
            for first in firsts:
                pending.append(pool.submit(task, first))
                if len(pending) > 2 * threads:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


__all__ = ["InvalidEventError", "Writer", "create"]
