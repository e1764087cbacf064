"""`Scan`: a lazy answer from a Go ESDB file, used as `esformat.Scan` is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from esformat.customerio.layout import SAME_IN_ALL, Layout, Layouts, shown
from esformat.customerio.question import Question
from esformat.errors import EsdbError
from esformat.event import Event
from esformat.read.event_rows import EventRows, Keys, batch_columns, rows_of_batch

_EVENT_KEYS = ("space", "grouping", "timestamp")

Read = Callable[[Layout, tuple[str, ...], bool], Iterator[pa.RecordBatch]]
"""Gives batches with those columns of a layout, of all rows in question, in order or as its exact mirror."""


class Scan:
    """The events that answer a question, read when they are asked for.

    Iterate it for `Event`s, or take columns: `batches`, `to_table`, `to_pandas`, or hand it to anything that reads the
    Arrow C stream. It can be used any number of times; each use reads anew.
    """

    def __init__(self, path: str, layouts: Layouts, question: Question, read: Read) -> None:
        """Made by the verbs of an open file."""
        self._path = path
        self._layouts = layouts
        self._question = question
        self._read = read

    def __repr__(self) -> str:
        question = self._question
        parts = [f"{name}={value!r}" for name, value in question.conditions] + ["reverse"] * question.reverse
        return f"<esformat.customerio.Scan of {', '.join([repr(self._path), *parts])}>"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that the scan gives."""
        return self._question.columns or tuple(self._layouts.whole().schema.arrow.names)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        names = self.column_names
        known = self._layout_of(names).schema.arrow
        return pa.schema([known.field(name) for name in names])

    def _layout_of(self, names: tuple[str, ...]) -> Layout:
        """A layout in which those columns have the file's types, and that has the columns of the conditions."""
        layouts = self._layouts
        return layouts.naming(self._question.conditioned) if SAME_IN_ALL.issuperset(names) else layouts.whole()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events as record batches, in order; no more of the file is in memory than a few spaces."""
        names = self.column_names
        return self._selected(self._layout_of(names), names)

    def to_table(self) -> pa.Table:
        """All events as one table."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """All events as a pandas data frame; `options` go to `pyarrow.Table.to_pandas`."""
        return self.to_table().to_pandas(**options)

    def to_reader(self) -> pa.RecordBatchReader:
        """The events as a pyarrow stream, read as it is consumed."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The events as an Arrow C stream, for DuckDB, Polars, pandas and others."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def count(self) -> int:
        """How many events there are. The file does not tell: its events are looked at, without their payloads."""
        names = ("timestamp",)
        return sum(len(batch) for batch in self._selected(self._layout_of(names), names))

    def __iter__(self) -> Iterator[Event]:
        conditioned, asked = self._question.conditioned, self._question.columns
        layout = self._layouts.naming(conditioned) if conditioned else self._layouts.near()
        wanted = tuple(n for n in layout.schema.arrow.names if asked is None or n in (*_EVENT_KEYS, *asked))
        for batch in self._selected(layout, wanted):
            events: Iterator[Event] = chain.from_iterable(_event_rows(batch, layout).iterators())
            yield from events

    def _selected(self, layout: Layout, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Those columns of a layout, of the events that answer the question."""
        left = self._question.limit
        if left == 0:
            return
        read = tuple(dict.fromkeys((*columns, *self._question.looked_at)))
        try:
            for batch in self._read(layout, read, self._question.reverse):
                found = self._question.select(batch).select(list(columns)).slice(0, left)
                if len(found):
                    yield found
                if left is not None:
                    left -= len(found)
                    if not left:
                        return
        except EsdbError as error:
            error.path = error.path or self._path
            raise


def _event_rows(batch: pa.RecordBatch, layout: Layout) -> EventRows:
    """The rows of a batch as events have them: each key and value as text where it is text."""
    rows = rows_of_batch(batch, layout.index_names)
    if layout.binary_keys:
        rows = replace(rows, spaces=_all_shown(rows.spaces), groupings=_all_shown(rows.groupings))
    if any(index.binary for index in layout.indexes):
        indexes = tuple(name for name in batch.schema.names if name in layout.by_name)
        columns, starts = batch_columns(batch.select(indexes), indexes, shown)
        rows = replace(rows, columns=columns, starts=starts)
    return rows


def _all_shown(keys: Keys) -> Keys:
    return Keys([shown(key) if isinstance(key, bytes) else key for key in keys.keys], keys.places)
