"""Catalogs with a store, and what a reader elsewhere sees of them."""

from __future__ import annotations

from typing import Any

import aggregator
from aggregator import Catalog

SOON: dict[str, Any] = {"ship_interval": "20ms", "lease": "1s"}


def events(first: int, count: int = 10) -> list[dict[str, Any]]:
    """Events with their number as the payload."""
    return [
        {"space": f"s{number % 3}", "grouping": "g", "timestamp": number, "payload": b"%d" % number}
        for number in range(first, first + count)
    ]


def numbers(catalog: Catalog, topic: str = "t") -> list[int]:
    """The payloads in a topic, as numbers."""
    if topic not in catalog.topics():
        return []
    found = catalog.topic(topic).scan().to_table()
    return sorted(int(payload) for payload in found["payload"].to_pylist()) if len(found) else []


def seen_anywhere(address: str, topic: str = "t") -> list[int]:
    """The events that a reader without local files reads from a store."""
    with aggregator.open(address, read_only=True) as reader:
        return numbers(reader, topic)
