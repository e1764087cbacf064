"""A segment as a plain list: the expected result of every method, in simple code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import pyarrow as pa

KEYS = ("space", "grouping", "timestamp")


@dataclass(frozen=True)
class Column:
    """A payload or index column of a segment."""

    name: str
    type: pa.DataType
    indexed: bool = False
    nullable: bool = True


@dataclass(frozen=True)
class Row:
    """One event. Keys are always bytes; `values` has every column of the segment."""

    space: bytes
    grouping: bytes
    timestamp: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Question:
    """The arguments of a scan. A `space` of None means the whole segment."""

    space: bytes | None = None
    grouping: bytes | None = None
    start: int | None = None
    end: int | None = None
    reverse: bool = False
    limit: int | None = None
    columns: tuple[str, ...] | None = None
    conditions: dict[str, Any] = field(default_factory=dict)


class Model:
    """The expected results of a segment of `rows` in this order of arrival."""

    def __init__(self, columns: tuple[Column, ...], rows: list[Row], *, binary_keys: bool) -> None:
        self.columns = columns
        self.binary_keys = binary_keys
        self.rows = sorted(rows, key=attrgetter("space", "grouping", "timestamp"))  # stable: ties keep arrival

    def shown(self, key: bytes) -> str | bytes:
        """A key as the segment returns it."""
        return key if self.binary_keys else key.decode()

    def names(self) -> tuple[str, ...]:
        """The names of all columns of the segment."""
        return (*KEYS, *(column.name for column in self.columns))

    def scan(self, asked: Question) -> list[Row]:
        """The rows of a scan, in order."""
        found = [
            row
            for row in self.rows
            if asked.space in (None, row.space)
            and asked.grouping in (None, row.grouping)
            and (asked.start is None or row.timestamp >= asked.start)
            and (asked.end is None or row.timestamp < asked.end)
            and all(row.values[name] == value for name, value in asked.conditions.items())
        ]
        if asked.space is not None:
            found.sort(key=attrgetter("timestamp"))  # all groupings of a space are merged by time, ties in file order
        if asked.reverse:
            found.reverse()
        return found[: asked.limit]

    def spaces(self, prefix: bytes = b"") -> dict[Any, int]:
        """Spaces in order, with their numbers of events."""
        counts = Counter(row.space for row in self.rows if row.space.startswith(prefix))
        return {self.shown(key): counts[key] for key in sorted(counts)}

    def groupings(self, space: bytes) -> dict[Any, int]:
        """The groupings of a space in order, with their numbers of events."""
        counts = Counter(row.grouping for row in self.rows if row.space == space)
        return {self.shown(key): counts[key] for key in sorted(counts)}

    def index_values(self, name: str) -> dict[Any, int]:
        """The values of an index in order (text by its bytes), with their numbers of events."""
        counts = Counter(row.values[name] for row in self.rows if row.values[name] is not None)
        order = sorted(counts, key=lambda value: value.encode() if isinstance(value, str) else value)
        return {value: counts[value] for value in order}

    def event(self, row: Row, columns: tuple[str, ...] | None) -> tuple[Any, ...]:
        """The six attributes of a row's event, in a scan with these columns."""
        shown = {column.name for column in self.columns} if columns is None else set(columns)
        others = [column for column in self.columns if column.name in shown and column.name != "data"]
        return (
            self.shown(row.space),
            self.shown(row.grouping),
            row.timestamp,
            row.values["data"] if "data" in shown else None,
            {c.name: row.values[c.name] for c in others if c.indexed and row.values[c.name] is not None},
            {c.name: row.values[c.name] for c in others if not c.indexed},
        )

    def record(self, row: Row, columns: tuple[str, ...] | None) -> dict[str, Any]:
        """A row of a scan's table, with times as integers."""
        keys = {"space": self.shown(row.space), "grouping": self.shown(row.grouping), "timestamp": row.timestamp}
        record = keys | row.values
        return {name: record[name] for name in columns or self.names()}


def event_facts(event: Any) -> tuple[Any, ...]:
    """The six attributes of an event."""
    return (event.space, event.grouping, event.timestamp, event.data, event.indexes, event.columns)


def table_records(table: pa.Table) -> list[dict[str, Any]]:
    """A table's rows, with times as integers, because `datetime` ends at the year 9999."""
    if "timestamp" in table.column_names:
        place = table.column_names.index("timestamp")
        table = table.set_column(place, "timestamp", table["timestamp"].cast(pa.int64()))
    return table.to_pylist()
