"""`Answer`: the common interface of lazy results of catalogs and servers. `Closing`: context managers with `close`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

import pyarrow as pa

from esformat import parts


class Answer(parts.Answer):
    """Events that are read on demand, like those of a file.

    Iterate it for `esformat.Event`s, or read columns: `batches`, `to_table`, `to_pandas`, or pass it to any reader of
    the Arrow C stream. Each use reads from the start. It can be used any number of times and from any thread.
    """

    @abstractmethod
    def _open(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Begin to read: return the schema of the batches, and the batches."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events as record batches of up to some ten thousand rows, in order."""
        return self._open()[1]

    def to_table(self, *, fields: Iterable[str] | Mapping[str, pa.DataType] = ()) -> pa.Table:
        """Like `to_table` of a file's events. The columns, too, are as of the start of reading."""
        schema, batches = self._open()
        table = pa.Table.from_batches(batches, schema=schema)
        return parts.with_fields(table, fields) if fields else table


class Closing(ABC):
    """An object to close after use, for example by `with`."""

    @abstractmethod
    def close(self) -> None:
        """Release the resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
