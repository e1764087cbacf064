"""`Rows`: the lazy answer to a statement in SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from esformat.sql.answer import RowAnswer
from esformat.sql.errors import told
from esformat.sql.watch import Watch

BATCH_ROWS = 65_536


class Bound(NamedTuple):
    """A statement that has found its tables and columns, and the connection that it has to itself."""

    connection: duckdb.DuckDBPyConnection
    relation: duckdb.DuckDBPyRelation
    watch: Watch


class Rows(RowAnswer):
    """The rows that answer a statement, read when they are asked for: a `RowAnswer`."""

    def __init__(self, bind: Callable[[], Bound]) -> None:
        """Made by `sql`, which tells at once what is wrong with a statement."""
        self._bind = bind
        self._first: Bound | None = bind()
        self.column_names: tuple[str, ...] = tuple(self._first.relation.columns)
        """Names of the columns."""

    def __repr__(self) -> str:
        return f"<esformat.sql.Rows of {', '.join(self.column_names)}>"

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

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples."""
        bound = self._bound()
        with told(bound.watch):
            rows = bound.relation.fetchall()
        bound.connection.close()
        return rows


def _batches(bound: Bound, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """What a reader gives; whoever stops early stops DuckDB, too."""
    try:
        while True:
            with told(bound.watch):
                batch = next(reader, None)
            if batch is None:
                return
            yield batch
    finally:
        reader.close()
        bound.connection.close()
