"""Single events as mappings in a writer's queue, checked when they are added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aggregator.client.writing.backlog import Row
from esformat import InvalidEventError
from esformat.parts import to_microseconds

_OVERHEAD_BYTES = 200  # of a mapping with four entries, without its texts


def row_of(
    space: str | bytes,
    data: bytes | None,
    timestamp: Any,
    grouping: str | bytes | None,
    indexes: Mapping[str, Any] | None,
    columns: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return an event as a mapping. Raises InvalidEventError for keys, times and payloads of a wrong type."""
    if not isinstance(space, str | bytes):
        raise InvalidEventError(f"a space must be str or bytes, not {type(space).__name__}")
    if data is not None and not isinstance(data, bytes):
        raise InvalidEventError(f"data must be bytes, not {type(data).__name__}", hint="encode text first")
    row: dict[str, Any] = {"space": space, "timestamp": to_microseconds(timestamp)}
    if data is not None:
        row["data"] = data
    if grouping is not None:
        row["grouping"] = grouping
    return row | dict(indexes or {}) | dict(columns or {})


def row_bytes(row: Row) -> int:
    """Return the approximate size of a row."""
    return _OVERHEAD_BYTES + sum([len(value) for value in row.values() if isinstance(value, (str, bytes))])
