"""OTLP records as records of a stream, for both encodings: what becomes a field, and its name. Pure."""

from __future__ import annotations

import base64
import math
from collections.abc import Container, Iterable, Mapping
from typing import Any

from aggregator.base.written_float import WrittenFloat
from aggregator.server.bodies.shared.records import free_name
from aggregator.server.bodies.shared.text_repair import json_text

DEEPEST = 64
"""Limit on the depth of nested values."""
_SEVERITIES = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")  # four numbers each, from 1


def add_times(made: dict[str, Any], nanos: int, seen: int = 0) -> None:
    """Set a record's time: its own, or else the time at which it was observed.

    `ts_ns` keeps all digits if microseconds lose some. The observed time is kept as well if it differs.
    """
    if ts := nanos or seen:
        made["ts"] = ts // 1000
        if ts % 1000:
            made["ts_ns"] = ts
    if seen not in (0, ts):
        made["observed_time_unix_nano"] = seen


def add_severity(made: dict[str, Any], text: str, number: int) -> None:
    """Set the severity, as the sender's text or else the name for its number, and the number."""
    if text or number:
        made["severity"] = text or _SEVERITIES[min(max(number - 1, 0) // 4, 5)]
    if number:
        made["severity_number"] = number


def add_attributes(made: dict[str, Any], attributes: Iterable[tuple[str, Any]]) -> None:
    """Add attributes under their own names, or with a prefix if the name is taken."""
    for name, value in attributes:
        made[free_name(name, "attributes.", made)] = value


def by_key(attributes: Iterable[tuple[str, Any]], taken: Container[str] = ()) -> dict[str, Any]:
    """Return attributes by key. OTLP forbids a key that comes again, but senders do not check that: each further value
    of a key, and each value of a taken key, is kept under the key and a number.
    """
    pairs = list(attributes)
    made = dict(pairs)
    if len(made) == len(pairs) and not any(key in taken for key in made):
        return made
    made, numbers = {}, dict.fromkeys(made, 1)
    for key, value in pairs:
        free = key
        while free in made or free in taken:
            numbers[key] += 1
            free = f"{key}.{numbers[key]}"
        made[free] = value
    return made


def split(attributes: Iterable[tuple[str, Any]], names: Container[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Split a resource's attributes: those with these names become tags, the others remain, as does another value of a
    tag.
    """
    tags: dict[str, str] = {}
    rest: list[tuple[str, Any]] = []
    for name, value in attributes:
        if name not in names or tags.setdefault(name, text := as_text(value)) != text:
            rest.append((name, value))
    return tags, by_key(rest, tags)


def add_shared(made: dict[str, Any], shared: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Add attributes of scope and resource under their own names, or with a prefix if the record has the name."""
    for prefix, attributes in shared:
        if made.keys().isdisjoint(attributes) and "ts" not in attributes:
            made.update(attributes)
            continue
        for name, value in attributes.items():
            made[free_name(name, prefix, made)] = value


def check_depth(depth: int) -> None:
    """Raise ValueError if values nest too deeply."""
    if depth > DEEPEST:
        raise ValueError(f"a value nests deeper than {DEEPEST} levels")


def plain(value: bytes | float) -> str | float:
    """Return the JSON form of a value: bytes as base64, non-finite numbers as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if math.isfinite(value) else str(value)


def as_text(value: Any) -> str:
    """Return a value as the text of a message or a tag."""
    if isinstance(value, str | WrittenFloat):
        return str(value)
    return "" if value is None else json_text(value).decode()
