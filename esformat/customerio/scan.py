"""`Scan`: a lazy answer from a Go ESDB file, used as `esformat.Scan` is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from esformat.customerio.layout import Layout
from esformat.customerio.question import Question
from esformat.errors import EsdbError
from esformat.event import Event
from esformat.read.event_rows import rows_of_batch

Read = Callable[[tuple[str, ...], bool], Iterator[pa.RecordBatch]]
"""Gives batches with (at least) those columns of all rows in question, in order or as its exact mirror."""


class Scan:
    """The events that answer a question, read when they are asked for.

    Iterate it for `Event`s, or take columns: `batches`, `to_table`, `to_pandas`, or hand it to anything that reads the
    Arrow C stream. It can be used any number of times; each use reads anew.
    """

    def __init__(self, path: str, layout: Layout, question: Question, read: Read) -> None:
        """Made by the verbs of an open file."""
        self._path = path
        self._layout = layout
        self._question = question
        self._read = read

    def __repr__(self) -> str:
        question = self._question
        parts = [f"{name}={value!r}" for name, value in question.conditions] + ["reverse"] * question.reverse
        return f"<esformat.customerio.Scan of {', '.join([repr(self._path), *parts])}>"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that the scan gives."""
        return self._question.columns or tuple(self._layout.schema.arrow.names)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        return pa.schema([self._layout.schema.arrow.field(name) for name in self.column_names])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events as record batches, in order; no more of the file is in memory than a few spaces."""
        return self._selected(self.column_names)

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
        return sum(len(batch) for batch in self._selected(("timestamp",)))

    def __iter__(self) -> Iterator[Event]:
        names = self._layout.schema.arrow.names
        wanted = tuple(n for n in names if n in ("space", "grouping", "timestamp") or n in self.column_names)
        for batch in self._selected(wanted):
            rows = rows_of_batch(batch, self._layout.index_names, self._layout.empty)
            events: Iterator[Event] = chain.from_iterable(rows.iterators())
            yield from events

    def _selected(self, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        """Those columns of the events that answer the question."""
        left = self._question.limit
        if left == 0:
            return
        read = tuple(dict.fromkeys((*columns, *self._question.looked_at)))
        try:
            for batch in self._read(read, self._question.reverse):
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
