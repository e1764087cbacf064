"""Events ready to be written, and the words that say what their keys mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class EventSet:
    """One table of events with the columns that `Writer.add_table` takes."""

    name: str  # file stem of what is written from it
    origin: str  # where the events come from, as the end of "These events are …"
    table: pa.Table
    indexes: tuple[str, ...]

    @classmethod
    def from_rows(cls, name: str, origin: str, rows: Sequence[Mapping[str, Any]], indexes: tuple[str, ...]) -> Self:
        """Make a set of `rows`, each with space, grouping, timestamp in microseconds, data and one entry per index."""
        fields = [
            pa.field("space", pa.string()),
            pa.field("grouping", pa.string()),
            pa.field("timestamp", pa.timestamp("us", "UTC")),
            pa.field("data", pa.binary()),
            *(pa.field(index, pa.string()) for index in indexes),
        ]
        return cls(name, origin, pa.Table.from_pylist(list(rows), schema=pa.schema(fields)), indexes)

    @property
    def num_events(self) -> int:
        return int(self.table.num_rows)
