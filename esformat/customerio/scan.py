"""`Scan`: a lazy query result from a Go ESDB file, with the interface of `esformat.Scan`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from esformat.customerio.layout import SAME_IN_ALL, Layout, shown
from esformat.customerio.question import LayoutChecks
from esformat.errors import EsdbError
from esformat.event import Event
from esformat.format.schema import KEY_COLUMNS
from esformat.read.answer import Answer
from esformat.read.ask.question import Query
from esformat.read.decode.event_rows import EventRows, Keys, batch_columns, rows_of_batch

Read = Callable[[Layout, tuple[str, ...], bool], Iterator[pa.RecordBatch]]
"""Yields batches with the columns of a layout, of all candidate rows, in order or exactly reversed."""


class Scan(Answer):
    """The events of a Go ESDB file that match a query, read on demand."""

    def __init__(self, checks: LayoutChecks, query: Query, grouping: bytes | None, read: Read) -> None:
        """Use the methods of an open file instead. `grouping`: None means any."""
        self._path, self._layouts = checks.name, checks.layouts
        self._query, self._grouping = query, grouping
        self._read = read

    def __repr__(self) -> str:
        return f"<esformat.customerio.Scan of {', '.join([repr(self._path), *self._query.described()])}>"

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the scan's columns."""
        return self._query.columns or tuple(self._layouts.whole().schema.arrow.names)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the batches."""
        names = self.column_names
        known = self._layout_of(names).schema.arrow
        return pa.schema([known.field(name) for name in names])

    @property
    def _conditioned(self) -> tuple[str, ...]:
        """The index columns with a condition."""
        return tuple(name for name, _ in self._query.conditions)

    def _layout_of(self, names: tuple[str, ...]) -> Layout:
        """Return a layout in which `names` have the file's types, and that includes the columns of the conditions."""
        layouts = self._layouts
        return layouts.naming(self._conditioned) if SAME_IN_ALL.issuperset(names) else layouts.whole()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events as record batches, in order; only a few spaces of the file are in memory at a time."""
        names = self.column_names
        return self._selected(self._layout_of(names), names)

    def count(self) -> int:
        """The number of events. Reads the events without their payloads, since the file stores no counts."""
        names = ("timestamp",)
        return sum(len(batch) for batch in self._selected(self._layout_of(names), names))

    def __iter__(self) -> Iterator[Event]:
        conditioned, columns = self._conditioned, self._query.columns
        layout = self._layouts.naming(conditioned) if conditioned else self._layouts.near()
        wanted = tuple(n for n in layout.schema.arrow.names if columns is None or n in (*KEY_COLUMNS, *columns))
        for batch in self._selected(layout, wanted):
            events: Iterator[Event] = chain.from_iterable(_event_rows(batch, layout).iterators())
            yield from events

    def _selected(self, layout: Layout, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a layout for the events that match the query."""
        left = self._query.limit
        if left == 0:
            return
        read = tuple(dict.fromkeys((*columns, *self._looked_at())))
        try:
            for batch in self._read(layout, read, self._query.reverse):
                found = self._select(batch).select(list(columns)).slice(0, left)
                if len(found):
                    yield found
                if left is not None:
                    left -= len(found)
                    if not left:
                        return
        except EsdbError as error:
            error.path = error.path or self._path
            raise

    def _looked_at(self) -> tuple[str, ...]:
        """The columns that decide which rows match."""
        return self._conditioned + ("grouping",) * (self._grouping is not None) + ("timestamp",) * self._query.timed

    def _select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that match; the batch must have the columns of `_looked_at`."""
        start, end = self._query.start, self._query.end
        equal = [*self._query.conditions, *([] if self._grouping is None else [("grouping", self._grouping)])]
        masks = [_equals(batch.column(name), value) for name, value in equal]
        if self._query.timed:
            times = batch.column("timestamp").cast(pa.int64())
            masks += [pc.greater_equal(times, start)] if start is not None else []
            masks += [pc.less(times, end)] if end is not None else []
        return batch.filter(reduce(pc.and_, masks)) if masks else batch


def _equals(column: pa.Array, value: bytes) -> pa.Array:
    return pc.equal(column.cast(pa.binary()), pa.scalar(value, pa.binary()))


def _event_rows(batch: pa.RecordBatch, layout: Layout) -> EventRows:
    """Convert a batch to rows of events: each key and value becomes text if it is UTF-8."""
    rows = rows_of_batch(batch, layout.index_names)
    if layout.binary_keys:
        rows = replace(rows, spaces=_all_shown(rows.spaces), groupings=_all_shown(rows.groupings))
    if any(index.binary for index in layout.indexes):
        indexes = tuple(name for name in batch.schema.names if name in layout.by_name)
        columns, starts = batch_columns(batch, indexes, indexes, shown)
        rows = replace(rows, columns=columns, starts=starts)
    return rows


def _all_shown(keys: Keys) -> Keys:
    return Keys([shown(key) if isinstance(key, bytes) else key for key in keys.keys], keys.places)
