"""`CollectionScan`: the lazy, merged answer of several files; the counterpart of `Scan`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from esformat.core.cached_segment import first_of, oldest_first
from esformat.event import Event
from esformat.format.json_fields import FieldCounts
from esformat.format.json_values import FOUND
from esformat.format.schema import DATA_COLUMN, KEY_COLUMNS, EventSchema
from esformat.read.answer import Answer
from esformat.read.ask.question import Query
from esformat.read.collection.schema import fit
from esformat.read.decode.event_rows import rows_of_batch
from esformat.read.decode.matched_rows import RequiredTexts
from esformat.read.payload_columns import Paths, check_payload, with_found
from esformat.read.scan import Scan, first_rows
from esformat.read.union import Advance, Key, Stream, stream_bytes, union

FEW_FILES = 4  # up to this many files are read ahead, many blocks at a time; more files are read block by block


@dataclass(frozen=True, slots=True)
class Part:
    """One file's part of an answer. bound: as in `Stream`. scan: returns the file's own answer to a query."""

    place: int
    bound: Key
    schema: EventSchema
    num_events: int
    scan: Callable[[Query], Scan | None]


class CollectionScan(Answer):
    """The events of several files that match a query, in one order; used like `Scan`."""

    def __init__(
        self,
        schema: EventSchema,
        query: Query,
        parts: Callable[[], list[Part]],
        order: Sequence[str],
        advance: Advance,
    ) -> None:
        """Created by Collection and CollectionSpace. order: the key columns that the answer is sorted by."""
        self._schema = schema
        self._query = query
        self._parts = parts
        self._order = order
        self._advance = advance

    def __repr__(self) -> str:
        return f"<esformat.CollectionScan of {', '.join(self._query.described()) or 'all'}>"

    # ------------------------------------------------------------ columns

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns of the batches."""
        return self._query.columns if self._query.columns is not None else tuple(self._schema.arrow.names)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        return pa.schema([self._schema.arrow.field(name) for name in self.column_names])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events as record batches, in order; memory grows with the files that overlap, not with the events."""
        return self._read(self.column_names)

    def with_paths(
        self, columns: Sequence[str], paths: Paths, required_texts: RequiredTexts | None = None
    ) -> Iterator[pa.RecordBatch]:
        """See `Answer.with_paths`."""
        check_payload(self._schema.arrow)
        return self._read(columns, paths, required_texts)

    def _count_fields(self, counts: FieldCounts) -> None:
        check_payload(self.schema)
        if self._query.limit is not None:
            super()._count_fields(counts)
            return
        for part in self._parts():
            has_payloads = DATA_COLUMN in part.schema.arrow.names
            scan = part.scan(first_of(self._query, None, (DATA_COLUMN,))) if has_payloads else None
            if scan is not None:
                scan._count_fields(counts)

    def count(self) -> int:
        """The number of events; read from the metadata alone if that suffices."""
        query = oldest_first(self._query)
        found = sum(scan.count() for part in self._parts() if (scan := part.scan(query)) is not None)
        return found if self._query.limit is None else min(found, self._query.limit)

    # ------------------------------------------------------------ events

    def __iter__(self) -> Iterator[Event]:
        parts = self._parts()
        if len(parts) == 1 and parts[0].schema == self._schema:  # the file's own scan creates events without Arrow
            scan = parts[0].scan(self._query)
            return iter(()) if scan is None else iter(scan)
        names = [name for name in self._schema.arrow.names if name in KEY_COLUMNS or name in self.column_names]
        rows = (rows_of_batch(batch, self._schema.indexes) for batch in self._read(names))
        return chain.from_iterable(chain.from_iterable(each.iterators() for each in rows))

    # ------------------------------------------------------------ reading

    def _read(
        self, columns: Sequence[str], paths: Paths | None = None, required_texts: RequiredTexts | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The answer's rows with some columns, and the values at paths as `with_paths` returns them."""
        parts, paths = self._parts(), paths or {}
        merged = len(parts) > 1
        names = list(dict.fromkeys([*columns, *self._order])) if merged else list(columns)
        fields = [self._schema.arrow.field(name) for name in names]
        share = stream_bytes(len(parts)) if len(parts) > FEW_FILES else None

        def reading(part: Part) -> Callable[[], Iterator[pa.RecordBatch]]:
            return (
                self._with_paths(part, fields, share, paths, required_texts)
                if paths
                else self._reading(part, fields, share)
            )

        streams = [Stream(part.bound, part.place, reading(part)) for part in parts]
        if merged:
            shown = [*columns, *paths]
            batches = union(streams, self._order, shown, reverse=self._query.reverse, advance=self._advance)
        else:
            batches = chain.from_iterable(stream.batches() for stream in streams)
        return batches if self._query.limit is None else first_rows(batches, self._query.limit)

    def _reading(self, part: Part, fields: list[pa.Field], share: int | None) -> Callable[[], Iterator[pa.RecordBatch]]:
        """One file's rows of the answer. share: the bytes to decode at a time, if there are many files."""

        def read() -> Iterator[pa.RecordBatch]:
            known = part.schema.arrow.names
            held = tuple(field.name for field in fields if field.name in known) or ("timestamp",)
            limit = part.num_events if share is not None and self._query.limit is None else self._query.limit
            scan = part.scan(first_of(self._query, limit, held))
            if scan is None:
                return
            if share is not None:
                scan = scan.in_batches_of(share)
            same = [scan.schema.field(name) for name in held] == fields
            for batch in scan.batches():
                yield batch if same else fit(batch, fields)

        return read

    def _with_paths(
        self, part: Part, fields: list[pa.Field], share: int | None, paths: Paths, required_texts: RequiredTexts | None
    ) -> Callable[[], Iterator[pa.RecordBatch]]:
        """Like `_reading`, with the values at paths."""

        def read() -> Iterator[pa.RecordBatch]:
            known = part.schema.arrow.names
            present = [field.name for field in fields if field.name in known]
            read = tuple(name for name in dict.fromkeys([*present, DATA_COLUMN]) if name in known) or ("timestamp",)
            scan = part.scan(first_of(self._query, self._query.limit, read))
            if scan is None:
                return
            if share is not None:
                scan = scan.in_batches_of(share)
            if DATA_COLUMN in known:
                batches = scan.with_paths(present, paths, required_texts)
            else:
                batches = (with_found(batch, present, paths) for batch in scan.batches())
            for batch in batches:
                yield fit(batch, [*fields, *(pa.field(path, FOUND) for path in paths)])

        return read
