"""The interface of SQL results, whether this process or a server computes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from typing import Any

import pyarrow as pa

from esformat.base.notebook import html_events
from esformat.errors import UsageError


class RowAnswer(ABC):
    """Rows that are read on demand.

    Read columns with `to_table`, `to_pandas`, `batches` or anything that reads the Arrow C stream; iterate for tuples.
    Each use runs the statement again. May be used from any thread. To end a statement before all rows are read, close
    the generator of `batches`, or drop the stream of `to_reader`: pyarrow does not pass on a stream's `close()`.
    """

    @abstractmethod
    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a pyarrow stream, read as it is consumed."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The Arrow schema of the columns."""

    def __reduce__(self) -> Any:
        raise UsageError("an answer cannot be pickled", hint="pickle its to_table()")

    def batches(self) -> Generator[pa.RecordBatch]:
        """The rows as record batches, streamed where possible so that they need not fit in memory."""
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
        return list(zip(*(column.to_pylist() for column in self.to_table().columns), strict=True))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def _repr_html_(self) -> str:
        """The first rows as HTML, for notebooks."""
        reader = self.to_reader()
        return html_events(repr(self), reader.schema.names, reader)
