"""Events in transit from one file to another, with the facts of a segment: columns, indexes, keys, properties."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import esformat
from esformat.convert.errors import InputError
from esformat.customerio.open_file import OpenFile

METADATA = b"esformat"
"""The metadata key in a Parquet or Arrow schema for facts that the columns do not express."""
GO_INDEXES = "go-esdb.indexes"
"""The property with the index names of a Go ESDB file that differ from their columns' names."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Events with the facts of their segment. `batches` may be called only once."""

    schema: pa.Schema
    """Columns of the batches: space, grouping, timestamp, then the others."""
    indexes: tuple[str, ...]
    binary_keys: bool
    batches: Callable[[], Iterator[pa.RecordBatch]]
    properties: dict[str, str] = field(default_factory=dict)
    read: Callable[[int], tuple[int, int]] = lambda _: (0, 0)
    """Maps the number of events so far to the bytes of the source read and the total; zeros if unknown."""

    def described(self) -> pa.Schema:
        """The schema with metadata from which `from_columnar` restores the other facts."""
        facts = {"indexes": self.indexes, "binary_keys": self.binary_keys, "properties": self.properties}
        return self.schema.with_metadata({METADATA: json.dumps(facts).encode()})

    def go_index_names(self) -> dict[str, str]:
        """The index names for a Go ESDB file, by column, where they differ from the column's name.

        Raises InvalidEventError for a column without an index: it would come back with one.
        """
        names: dict[str, str] = json.loads(self.properties.get(GO_INDEXES, "{}"))
        for column in self.schema.names[3:]:
            if column != "data" and column not in self.indexes and column not in names:
                raise esformat.InvalidEventError(
                    f"column {column!r} has no index, and a Go ESDB file has no other columns",
                    hint="select other columns with `esdb scan`, or index it with `esdb reindex`",
                )
        return names


def from_segment(segment: esformat.Segment) -> Transfer:
    """The events of a segment."""
    binary = pa.types.is_binary(segment.schema.field("space").type)
    read = by_share(segment.size_bytes, segment.num_events)
    return Transfer(segment.schema, segment.indexes, binary, lambda: segment.scan().batches(), segment.properties, read)


def by_share(size: int, events: int) -> Callable[[int], tuple[int, int]]:
    """Return a function that estimates the bytes read from the number of events so far."""
    return lambda done: (size * done // max(1, events), size)


def from_go(file: OpenFile[Any], read: Callable[[int], tuple[int, int]]) -> Transfer:
    """The events of a Go ESDB file."""
    layout = file.layout
    renamed = {i.name: i.stored.decode() for i in layout.indexes if i.binary or i.name.encode() != i.stored}
    properties = {GO_INDEXES: json.dumps(renamed)} if renamed else {}
    return Transfer(
        file.schema, layout.schema.indexes, layout.binary_keys, lambda: file.scan().batches(), properties, read
    )


def from_columnar(
    schema: pa.Schema,
    batches: Callable[[], Iterator[pa.RecordBatch]],
    path: str,
    read: Callable[[int], tuple[int, int]],
) -> Transfer | None:
    """The events of a Parquet or Arrow file that a conversion wrote; None for any other file.

    Raises InputError if its metadata is broken.
    """
    stored = (schema.metadata or {}).get(METADATA)
    if stored is None:
        return None
    try:
        facts: dict[str, Any] = json.loads(stored)
        indexes, binary, properties = tuple(facts["indexes"]), bool(facts["binary_keys"]), dict(facts["properties"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"its metadata is broken: {error!r}", path=path) from error
    return Transfer(schema.remove_metadata(), indexes, binary, batches, properties, read)
