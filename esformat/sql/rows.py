"""`Rows`: the lazy answer to a statement in SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from esformat.errors import UsageError
from esformat.notebook import html_events
from esformat.sql.errors import told
from esformat.sql.watch import Watch

BATCH_ROWS = 65_536


class Bound(NamedTuple):
    """A statement that has found its tables and columns, and the connection that it has to itself."""

    connection: duckdb.DuckDBPyConnection
    relation: duckdb.DuckDBPyRelation
    watch: Watch


class Rows:
    """The rows that answer a statement, read when they are asked for.

    Take columns: `to_table`, `to_pandas`, `batches`, or hand it to anything that reads the Arrow C stream; or iterate
    it for tuples. Each use asks again, from any thread.
    """

    def __init__(self, bind: Callable[[], Bound]) -> None:
        """Made by `sql`, which tells at once what is wrong with a statement."""
        self._bind = bind
        self._first: Bound | None = bind()
        self.column_names: tuple[str, ...] = tuple(self._first.relation.columns)
        """Names of the columns."""

    def __repr__(self) -> str:
        return f"<esformat.sql.Rows of {', '.join(self.column_names)}>"

    def __reduce__(self) -> Any:
        raise UsageError("an answer cannot be pickled", hint="pickle its to_table()")

    def _bound(self) -> Bound:
        first, self._first = self._first, None
        return first or self._bind()

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the columns."""
        bound = self._bind()
        with told(bound.watch):
            return bound.relation.limit(0).to_arrow_table().schema

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a pyarrow stream, read as it is consumed."""
        bound = self._bound()
        with told(bound.watch):
            reader = bound.relation.to_arrow_reader(BATCH_ROWS)
        return pa.RecordBatchReader.from_batches(reader.schema, _batches(bound, reader))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches; what DuckDB can give piece by piece does not fill the memory."""
        yield from self.to_reader()

    def to_table(self) -> pa.Table:
        """All rows as one table."""
        return self.to_reader().read_all()

    def to_pandas(self, **options: Any) -> Any:
        """All rows as a pandas data frame; `options` go to `pyarrow.Table.to_pandas`."""
        return self.to_table().to_pandas(**options)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as an Arrow C stream, for Polars, pandas and others."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples."""
        bound = self._bound()
        with told(bound.watch):
            rows = bound.relation.fetchall()
        bound.connection.close()
        return rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def _repr_html_(self) -> str:
        """The first rows, as notebooks show them."""
        reader = self.to_reader()
        return html_events(repr(self), reader.schema.names, reader)


def _batches(bound: Bound, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """What a reader gives; whoever stops early stops DuckDB, too."""
    try:
        with told(bound.watch):
            yield from reader
    finally:
        reader.close()
        bound.connection.close()
