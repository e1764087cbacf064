"""`Rows`: the lazy result of an SQL statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from esformat.errors import UsageError
from esformat.format.schema import lacks_arrow_type
from esformat.sql.answer import RowAnswer
from esformat.sql.errors import translated_errors
from esformat.sql.watch import Watch

BATCH_ROWS = 65_536
MOST_KEPT = 1_000
"""The most rows of a result that is cached."""


class Bound(NamedTuple):
    """A statement with resolved tables and columns, and the connection that it uses exclusively until it is done."""

    connection: duckdb.DuckDBPyConnection
    text: str
    parameters: Any
    columns: tuple[str, ...]
    watch: Watch
    done: Callable[[], None]
    """Called when all rows are read."""

    def relation(self) -> duckdb.DuckDBPyRelation:
        """Return its rows as a lazy relation for Arrow. Raises UsageError for a column that Arrow cannot represent."""
        relation = self.connection.sql(self.text, params=self.parameters)
        for name, kind in zip(relation.columns, relation.types, strict=True):
            if lacks_arrow_type(kind):
                raise UsageError(
                    f"column {name!r} is {kind}, which Arrow does not have", hint="cast it first, for example to text"
                )
        return relation


class Rows(RowAnswer):
    """The rows of a statement's result, read on demand."""

    def __init__(
        self,
        bind: Callable[[], Bound],
        columns: tuple[str, ...] | None = None,
        kept: list[list[tuple[Any, ...]]] | None = None,
    ) -> None:
        """Use `Session.ask` instead, which binds the statement immediately and so raises its errors.

        columns: known from an earlier run; then `bind` is not called yet.
        kept: the cached rows, or an empty list to cache them in; None if the rows may differ each time.
        """
        self._bind = bind
        self._kept = kept
        self._first = bind() if columns is None else None
        self.column_names = self._first.columns if self._first else columns or ()
        """The names of the columns."""

    def __repr__(self) -> str:
        return f"<esformat.sql.Rows of {', '.join(self.column_names)}>"

    def _bound(self) -> Bound:
        first, self._first = self._first, None
        return first or self._bind()

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the columns."""
        bound = self._bind()
        with translated_errors(bound.watch):
            schema = bound.relation().limit(0).to_arrow_table().schema
        bound.done()
        return schema

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a pyarrow stream, read as it is consumed."""
        bound = self._bound()
        with translated_errors(bound.watch):
            reader = bound.relation().to_arrow_reader(BATCH_ROWS)
        return pa.RecordBatchReader.from_batches(reader.schema, _batches(bound, reader))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples."""
        if self._kept:
            return self._kept[0].copy()
        bound = self._bound()
        with translated_errors(bound.watch):
            rows = bound.connection.execute(bound.text, bound.parameters).fetchall()
        bound.done()
        if self._kept is not None and len(rows) <= MOST_KEPT:
            self._kept.append(rows.copy())
        return rows


def _batches(bound: Bound, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a reader; closing the generator early also stops DuckDB."""
    try:
        while True:
            with translated_errors(bound.watch):
                batch = next(reader, None)
            if batch is None:
                break
            yield batch
    except BaseException:
        reader.close()
        bound.connection.close()
        raise
    bound.done()
