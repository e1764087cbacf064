"""The files that the Go ESDB wrote, and what is in them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[2] / "fixtures" / "go_esdb"
ARCHIVES = ("small", "long_index", "many_spaces")
STREAMS = ("stream_open", "stream_closed", "stream_torn")


class Listed(NamedTuple):
    """An event as a list has it. Keys are bytes."""

    space: bytes
    grouping: bytes
    timestamp: int
    data: bytes
    indexes: dict[str, str]


def path_of(name: str) -> Path:
    """The file of that name."""
    return FOLDER / f"{name}.{'esdbstream' if name in STREAMS else 'esdb'}"


def added(name: str) -> list[Listed]:
    """The events of a file, in the order in which they were added."""
    with (FOLDER / f"{name}.events.jsonl").open(encoding="utf-8") as lines:
        return [_listed(json.loads(line)) for line in lines]


def _listed(event: dict[str, Any]) -> Listed:
    return Listed(
        base64.b64decode(event.get("space_b64", "")),
        event.get("grouping", "").encode(),
        event.get("timestamp_s", 0) * 1_000_000,
        base64.b64decode(event["data_b64"]),
        event.get("indexes") or {},
    )


def in_order(events: list[Listed]) -> list[Listed]:
    """Events in the order of a segment: ties as they were added."""
    return sorted(events, key=lambda event: event[:3])


def shown(events: Any) -> list[Listed]:
    """Events of a scan in the same form."""
    return [Listed(_bytes(e.space), _bytes(e.grouping), e.timestamp, e.data, e.indexes) for e in events]


def _bytes(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key
