"""The public interface of reading: `Answer`, the base of query results, and `Scannable`, of everything queryable."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from esformat.base.notebook import html_events
from esformat.errors import UsageError
from esformat.event import Event, to_key
from esformat.format.json_fields import FieldCounts, PayloadFields
from esformat.format.json_values import FOUND
from esformat.read.ask.question import Checks, Query, conditions_of, make_query
from esformat.read.payload_columns import Paths, check_payload, parse_paths, typed_fields, with_found

if TYPE_CHECKING:
    from esformat.read.decode.matched_rows import RequiredTexts

AnswerT = TypeVar("AnswerT", covariant=True)


class Unpicklable:
    """A part of an open file or catalog. It cannot be pickled; the file or catalog can."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        raise UsageError(
            f"{self!r} cannot be pickled",
            hint="pickle the file or catalog it came from, and query that in the other process",
        )


class Answer(Unpicklable, ABC):
    """The events that match a query, read on demand.

    Iterate it for `Event`s, or get columns: `batches`, `to_table`, `to_pandas`, or pass it to anything that reads the
    Arrow C stream. Each use reads from the start; an answer can be used any number of times, from any thread.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns of the batches."""
        return tuple(self.schema.names)

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events as record batches of a few thousand rows, in order; memory does not grow with their number."""

    def with_paths(
        self, columns: Sequence[str], paths: Paths, required_texts: RequiredTexts | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The events with some columns, and for each path a column of the payloads' values there, of type `FOUND`.

        required_texts: for columns of text or binary, lists of texts. A wanted event's value contains at least one
        text of each list; some of the other events are left out. Raises UsageError without payloads.
        """
        check_payload(self.schema)
        return (with_found(batch, columns, paths) for batch in self.batches())

    @abstractmethod
    def count(self) -> int:
        """The number of events; read from the metadata alone if that suffices."""

    @abstractmethod
    def __iter__(self) -> Iterator[Event]: ...

    def _open(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Start reading: the schema of the batches, and the batches."""
        return self.schema, self.batches()

    def to_table(self, *, fields: Iterable[str] | Mapping[str, pa.DataType] = ()) -> pa.Table:
        """All events as one table.

        fields: paths into JSON payloads, such as `$.url` or `$.items[0].id`. Each adds a column, which is null if a
        payload has no value there. The column has integers, floats or booleans if all values are of that kind, else
        text; a mapping of paths to Arrow types sets the types. Raises UsageError for an invalid path, for values that
        are not of the type, and without payloads.
        """
        if fields:
            paths, kinds = parse_paths(fields, self.schema), fields if isinstance(fields, Mapping) else {}
            schema = pa.schema([*self.schema, *(pa.field(path, FOUND) for path in paths)])
            batches = self.with_paths(self.schema.names, paths)
            return typed_fields(pa.Table.from_batches(batches, schema=schema), paths, kinds)
        schema, batches = self._open()
        return pa.Table.from_batches(batches, schema=schema)

    def to_pandas(self, *, fields: Iterable[str] | Mapping[str, pa.DataType] = (), **options: Any) -> Any:
        """All events as a pandas data frame; `fields` as in `to_table`, `options` go to `pyarrow.Table.to_pandas`."""
        return self.to_table(fields=fields).to_pandas(**options)

    def to_reader(self) -> pa.RecordBatchReader:
        """The events as a pyarrow stream, read as it is consumed."""
        return pa.RecordBatchReader.from_batches(*self._open())

    def payload_fields(self) -> PayloadFields:
        """The fields of the JSON payloads, and how many values of each kind a field has.

        Reads all payloads. Raises UsageError if the query does not select the column `data`.
        """
        counts = FieldCounts()
        self._count_fields(counts)
        return counts.found()

    def _count_fields(self, counts: FieldCounts) -> None:
        """Add the fields of all payloads to `counts`. Raises UsageError without a column of payloads."""
        schema, batches = self._open()
        payload = check_payload(schema)
        for batch in batches:
            counts.add(batch.column(payload))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The events as an Arrow C stream, for DuckDB, Polars, pandas and others."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """The first events, as notebooks show them."""
        reader = self.to_reader()
        return html_events(repr(self), reader.schema.names, reader)


class Scannable(ABC, Generic[AnswerT]):
    """Something whose events can be scanned in an order."""

    __slots__ = ()

    def scan(
        self,
        *,
        grouping: str | bytes | None = None,
        start: Any = None,
        end: Any = None,
        reverse: bool = False,
        limit: int | None = None,
        columns: Any = None,
    ) -> AnswerT:
        """Scan the events in the order that the class documents.

        reverse: the exact opposite order, unless the class says otherwise. grouping: only events of that grouping.
        start, end: half-open [start, end), as int µs, aware datetimes or ISO 8601 text. limit: most events returned.
        columns: names of those to read. Raises UsageError or InvalidEventError for wrong arguments, immediately.
        """
        checks = self._checks
        query = checks.query(start, end, reverse, limit, columns)
        if query is None:
            query = make_query(checks, start=start, end=end, reverse=reverse, limit=limit, columns=columns)
        return self._scan(query, None if grouping is None else to_key(grouping))

    def scan_index(
        self,
        name: str | Mapping[str, Any],
        value: Any = None,
        *,
        grouping: str | bytes | None = None,
        start: Any = None,
        end: Any = None,
        reverse: bool = False,
        limit: int | None = None,
        columns: Any = None,
    ) -> AnswerT:
        """Scan the events with a value in an indexed column, in the order of `scan`.

        name: of the index; or a mapping of index names to values, which must all match. Other arguments as in `scan`.
        Raises UnknownIndexError, UsageError or InvalidEventError for wrong arguments, immediately.
        """
        checks = self._checks
        query = checks.query(start, end, reverse, limit, columns, name, value)
        if query is None:
            query = make_query(
                checks,
                start=start,
                end=end,
                reverse=reverse,
                limit=limit,
                columns=columns,
                conditions=conditions_of(name, value),
            )
        return self._scan(query, None if grouping is None else to_key(grouping))

    @property
    @abstractmethod
    def _checks(self) -> Checks:
        """The columns and indexes that queries are checked against."""

    @abstractmethod
    def _scan(self, query: Query, grouping: bytes | None) -> AnswerT:
        """The answer to a checked query."""
