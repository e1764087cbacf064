"""Decide how the columns of a file are stored, from its events as they arrive.

The decision must depend neither on the available memory nor on how the events were passed, or the same events would
produce different bytes. It depends on a sample of the events, chosen by their arrival numbers, and on the values of
text columns. Events that arrive in order are written before the last of them is known. So if the first events
(WINDOW_ROWS, or fewer that fill WINDOW_BYTES) are in order, they alone decide.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esformat.format.arrays import is_bytes
from esformat.format.codec import Codec
from esformat.format.dictionary import ColumnDictionary
from esformat.format.schema import KEY_COLUMNS, EventSchema
from esformat.write.block_encoder import (
    I64,
    MAX_DICTIONARY_VALUE_BYTES,
    MAX_DICTIONARY_VALUES,
    may_want_codes,
    row_bytes,
    wants_codes,
)
from esformat.write.known_templates import KnownTemplates
from esformat.write.rows import OrderedRows, SortKey
from esformat.write.template_choice import choose_dictionary

WINDOW_ROWS = 256 << 10
WINDOW_BYTES = 32 << 20
SAMPLE_BYTES = 2 << 20
SAMPLE_RUN = 16  # sample consecutive arrivals together, as they are often stored together
MAX_SAMPLED_BYTES = 32 << 10  # of an event: larger ones gain nothing from a small dictionary
_SLICE_ROWS = 1 << 16
_BARE_ROW_BYTES = 16
_KEY_BYTES = 128
_MIX = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: spreads consecutive numbers


class FormatChoice:
    """Observes all events in order of arrival, then decides how to store them."""

    def __init__(
        self,
        schema: EventSchema,
        codec: Codec,
        level: int | None,
        frame_bytes: int | None = None,
        *,
        templates: bool = False,
        known: KnownTemplates | None = None,
    ) -> None:
        self._schema, self._known = schema, known
        self._codec, self._level, self._frame_bytes, self._templates = codec, level, frame_bytes, templates
        self._fields = dict(enumerate(schema.fields))
        sampled = [field.name for field in schema.fields if is_bytes(field.type)] if codec is Codec.ZSTD else []
        self._sample = _Sample(schema, sampled)
        self._values = {p: _Values() for p, field in self._fields.items() if may_want_codes(field.type)}
        self._window: _Window | None = _Window()
        self.in_order = False
        """Whether the first events were in order, so that the decision is final."""

    def copy(self) -> FormatChoice:
        """Return a copy that later events do not affect."""
        return copy.deepcopy(self, {id(self._known): self._known})

    def observe(self, table: pa.Table) -> None:
        """Observe the next events, a checked table."""
        if self.in_order:
            return
        while self._window is not None and len(table):
            part = self._window.next_part(table)
            if not self._window.extend(part, self._schema):
                self._window = None
                break
            self._sample.observe(part)
            for place in self._values:
                self.observe_values(place, part[self._fields[place].name])
            if self._window.full:
                self.in_order = True
                return
            table = table.slice(len(part))
        self._sample.observe(table)

    def observe_values(self, place: int, values: pa.ChunkedArray) -> None:
        """Observe values of a text column. Unless `in_order`, every value of the file must have been observed."""
        if not self.in_order and place in self._values:
            self._values[place].observe(values)

    def observe_all_values(self, tables: Sequence[pa.Table]) -> None:
        """Observe the values of every text column."""
        for place in self._values:
            for table in tables:
                self.observe_values(place, table[self._fields[place].name])

    def observe_all_columns(self, rows: OrderedRows) -> None:
        """Like `observe_all_values`, if all events are in memory."""
        for place in () if self.in_order else self._values:
            column = rows.ranked(place).values if self._fields[place].indexed else rows.columns[place]
            self.observe_values(place, pa.chunked_array([column]))

    def dictionaries(self) -> dict[int, ColumnDictionary]:
        """The dictionary of each column that gets one, by column."""
        chosen = {}
        ordered = self._sample.ordered()
        for place, field in self._fields.items():
            values = self._values[place].few if place in self._values else None
            if values is not None and wants_codes(values, self._sample.rows):
                values = values.take(pc.sort_indices(values)).cast(field.type)
                chosen[place] = ColumnDictionary(place, values=values)
            elif field.name in ordered:
                total = self._sample.column_bytes[field.name]
                sample = ordered[field.name]
                made = choose_dictionary(
                    place,
                    sample,
                    total,
                    self._codec,
                    self._level,
                    self._frame_bytes,
                    templates=self._templates,
                    known=None if self._known is None else self._known.of(field.name),
                )
                if made is not None:
                    chosen[place] = made
        return chosen


class _Sample:
    """A sample by arrival number alone: the largest of 1, 1/2, 1/4 … of the events that fits into SAMPLE_BYTES."""

    def __init__(self, schema: EventSchema, names: list[str]) -> None:
        self._schema = schema
        self._names = names
        self._stride = 1
        self._tables: list[pa.Table] = []
        self._runs: list[I64] = []  # of each sampled event: the number of its group of SAMPLE_RUN arrivals
        self._bytes: list[I64] = []
        self._total = 0
        self.rows = 0
        self.column_bytes = dict.fromkeys(names, 0)

    def __deepcopy__(self, memo: object) -> _Sample:
        made = copy.copy(self)
        made._tables, made._runs, made._bytes = list(self._tables), list(self._runs), list(self._bytes)
        made.column_bytes = dict(self.column_bytes)
        return made

    def observe(self, table: pa.Table) -> None:
        for name in self._names:
            self.column_bytes[name] += pc.sum(pc.binary_length(table[name])).as_py() or 0
        at = 0
        while at < len(table):
            count = min(_SLICE_ROWS * self._stride, len(table) - at)
            if self._names:
                self._observe_slice(table.slice(at, count))
            self.rows += count
            at += count

    def _observe_slice(self, table: pa.Table) -> None:
        runs = np.arange(self.rows, self.rows + len(table)) // SAMPLE_RUN
        sizes = _sizes(table.select(self._names))
        places = (self._chosen(runs) & (sizes <= MAX_SAMPLED_BYTES)).nonzero()[0]
        while self._total + int(sizes[places].sum()) > SAMPLE_BYTES and self._stride < 1 << 40:
            self._stride *= 2
            places = places[self._chosen(runs[places])]
            self._thin()
        if len(places):
            self._tables.append(_with_short_keys(table.select([*KEY_COLUMNS, *self._names]).take(pa.array(places))))
            self._runs.append(runs[places])
            self._bytes.append(sizes[places])
            self._total += int(sizes[places].sum())

    def _chosen(self, runs: I64) -> npt.NDArray[np.bool_]:
        mixed = (runs.astype(np.uint64) * np.uint64(_MIX)) >> np.uint64(24)
        chosen: npt.NDArray[np.bool_] = mixed & np.uint64(self._stride - 1) == 0
        return chosen

    def _thin(self) -> None:
        """Remove events that the stride skips."""
        if self._tables:
            runs, sizes = np.concatenate(self._runs), np.concatenate(self._bytes)
            kept = self._chosen(runs)
            self._tables = [pa.concat_tables(self._tables).take(pa.array(kept.nonzero()[0]))]
            self._runs, self._bytes = [runs[kept]], [sizes[kept]]
            self._total = int(sizes[kept].sum())

    def ordered(self) -> dict[str, pa.Array]:
        """The columns of the sample, sorted in the order of a segment."""
        if not self._tables:
            return {}
        fields = tuple(field for field in self._schema.fields if field.name in self._names)
        table = pa.concat_tables(self._tables)
        count = len(table)
        rows = OrderedRows.of_tables([table], EventSchema(fields, binary_keys=True)).rows(0, count)
        return {field.name: column for field, column in zip(fields, rows.columns, strict=True)}


def _with_short_keys(table: pa.Table) -> pa.Table:
    """A table with its keys cut to their first bytes: enough to know which events are stored together."""
    for place in range(2):
        keys = pc.binary_slice(table.column(place).cast(pa.binary()), 0, _KEY_BYTES)
        table = table.set_column(place, pa.field(table.column_names[place], pa.binary(), nullable=False), keys)
    return table


def _sizes(table: pa.Table) -> I64:
    """The size of each row of a table, in bytes."""
    if not table.num_columns:
        return np.full(len(table), _BARE_ROW_BYTES)
    sizes = [row_bytes(batch.columns, len(batch)) for batch in table.to_batches()]
    return np.concatenate([np.zeros(0, np.int64), *sizes])


class _Values:
    """The distinct values of a text column, as long as they are few and short."""

    def __init__(self) -> None:
        self.few: pa.Array | None = pa.array([], pa.large_string())

    def __deepcopy__(self, memo: object) -> _Values:
        return copy.copy(self)

    def observe(self, column: pa.ChunkedArray) -> None:
        at, count = 0, 1024
        while self.few is not None and at < len(column):
            piece = column.slice(at, count)
            if (pc.max(pc.binary_length(piece)).as_py() or 0) > MAX_DICTIONARY_VALUE_BYTES:
                self.few = None
                return
            fresh = piece.unique().drop_null().cast(pa.large_string())
            together = pa.chunked_array([self.few, fresh]).unique()
            length = pc.sum(pc.binary_length(together)).as_py() or 0
            few = len(together) <= MAX_DICTIONARY_VALUES and length <= MAX_DICTIONARY_VALUE_BYTES
            self.few = together if few else None
            at, count = at + count, min(16 * count, 1 << 18)


class _Window:
    """The first events, as long as they are in order."""

    def __init__(self) -> None:
        self._rows = 0
        self._bytes = 0
        self._last: SortKey | None = None
        self.full = False

    def next_part(self, table: pa.Table) -> pa.Table:
        """The rows of a table to examine next: few at first, because most events are not in order."""
        table = table.slice(0, min(max(1024, 3 * self._rows), WINDOW_ROWS - self._rows))
        ends = np.cumsum(_sizes(table.select(table.column_names[3:]))) + self._bytes
        part = table.slice(0, int(np.searchsorted(ends, WINDOW_BYTES)) + 1)
        self._bytes = int(ends[len(part) - 1])
        self._rows += len(part)
        self.full = self._rows >= WINDOW_ROWS or self._bytes >= WINDOW_BYTES
        return part

    def extend(self, table: pa.Table, schema: EventSchema) -> bool:
        """Add events. Return whether the window is still in order."""
        rows = OrderedRows.of_tables([table.select(table.column_names[:3])], EventSchema((), schema.binary_keys))
        if rows.order is not None or (self._last is not None and rows.key(0) < self._last):
            return False
        self._last = rows.key(rows.count - 1)
        return True
