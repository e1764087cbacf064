"""Events ready to be written, with their name and origin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class EventSet:
    """A table of events with the columns for `Writer.add_table`."""

    name: str  # stem of the files written from it
    origin: str  # where the events come from, phrased to follow "These events are …"
    table: pa.Table
    indexes: tuple[str, ...]

    @classmethod
    def from_rows(cls, name: str, origin: str, rows: Sequence[Mapping[str, Any]], indexes: tuple[str, ...]) -> Self:
        """Create a set from `rows`, each with space, grouping, timestamp in µs, data and one entry per index."""
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
