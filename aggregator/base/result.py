"""`Answer`: what every lazy answer can do, whether a catalog gives it or a server does. `Closing`: what is closed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

import pyarrow as pa

from esformat import parts


class Answer(parts.Answer):
    """Events that are read when they are asked for, as those of a file are.

    Iterate it for `esformat.Event`s, or take columns: `batches`, `to_table`, `to_pandas`, or hand it to anything that
    reads the Arrow C stream. Each use reads from the start, as often as needed and from any thread.
    """

    @abstractmethod
    def _open(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Begin to read: the schema of the batches, and the batches."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events as record batches of up to some ten thousand rows, in order."""
        return self._open()[1]

    def to_table(self, *, fields: Iterable[str] | Mapping[str, pa.DataType] = ()) -> pa.Table:
        """As of a file's events; the columns, too, are those of the moment at which it begins to read."""
        schema, batches = self._open()
        table = pa.Table.from_batches(batches, schema=schema)
        return parts.with_fields(table, fields) if fields else table


class Closing(ABC):
    """Something that is closed when it has been used, as by `with`."""

    @abstractmethod
    def close(self) -> None:
        """Let go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
