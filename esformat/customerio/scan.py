"""`Scan`: a lazy answer from a Go ESDB file, used as `esformat.Scan` is."""

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
from esformat.read.answer import Answer
from esformat.read.ask.question import Query
from esformat.read.decode.event_rows import EventRows, Keys, batch_columns, rows_of_batch

_EVENT_KEYS = ("space", "grouping", "timestamp")

Read = Callable[[Layout, tuple[str, ...], bool], Iterator[pa.RecordBatch]]
"""Gives batches with those columns of a layout, of all rows in question, in order or as its exact mirror."""


class Scan(Answer):
    """The events of a Go ESDB file that answer a question, read when they are asked for."""

    def __init__(self, checks: LayoutChecks, query: Query, grouping: bytes | None, read: Read) -> None:
        """Made by the verbs of an open file. `grouping`: None means any."""
        self._path, self._layouts = checks.name, checks.layouts
        self._query, self._grouping = query, grouping
        self._read = read

    def __repr__(self) -> str:
        return f"<esformat.customerio.Scan of {', '.join([repr(self._path), *self._query.described()])}>"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that the scan gives."""
        return self._query.columns or tuple(self._layouts.whole().schema.arrow.names)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        names = self.column_names
        known = self._layout_of(names).schema.arrow
        return pa.schema([known.field(name) for name in names])

    @property
    def _conditioned(self) -> tuple[str, ...]:
        """Index columns that have a condition."""
        return tuple(name for name, _ in self._query.conditions)

    def _layout_of(self, names: tuple[str, ...]) -> Layout:
        """A layout in which those columns have the file's types, and that has the columns of the conditions."""
        layouts = self._layouts
        return layouts.naming(self._conditioned) if SAME_IN_ALL.issuperset(names) else layouts.whole()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events as record batches, in order; no more of the file is in memory than a few spaces."""
        names = self.column_names
        return self._selected(self._layout_of(names), names)

    def count(self) -> int:
        """How many events there are. The file does not tell: its events are looked at, without their payloads."""
        names = ("timestamp",)
        return sum(len(batch) for batch in self._selected(self._layout_of(names), names))

    def __iter__(self) -> Iterator[Event]:
        conditioned, asked = self._conditioned, self._query.columns
        layout = self._layouts.naming(conditioned) if conditioned else self._layouts.near()
        wanted = tuple(n for n in layout.schema.arrow.names if asked is None or n in (*_EVENT_KEYS, *asked))
        for batch in self._selected(layout, wanted):
            events: Iterator[Event] = chain.from_iterable(_event_rows(batch, layout).iterators())
            yield from events

    def _selected(self, layout: Layout, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Those columns of a layout, of the events that answer the question."""
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
        """Columns that decide which rows belong to the answer."""
        return self._conditioned + ("grouping",) * (self._grouping is not None) + ("timestamp",) * self._query.timed

    def _select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that belong to the answer; it has the columns of `_looked_at`."""
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
    """The rows of a batch as events have them: each key and value as text where it is text."""
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
