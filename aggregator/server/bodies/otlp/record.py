"""A record of OTLP as a record of a stream, whichever encoding it came in: what becomes a field, and its name. Pure."""

from __future__ import annotations

import base64
import math
from collections.abc import Container, Iterable, Mapping
from typing import Any

from aggregator.base.written_float import WrittenFloat
from aggregator.server.bodies.shared.odd_text import json_text
from aggregator.server.bodies.shared.records import free_name
from esformat import InvalidEventError

DEEPEST = 64
"""Of nested values."""
_SEVERITIES = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")  # four numbers each, from 1


def add_times(made: dict[str, Any], nanos: int, seen: int = 0) -> None:
    """The time of a record, else the one at which it was seen, with all digits where microseconds lose some; the latter
    as well, where they differ.
    """
    if ts := nanos or seen:
        made["ts"] = ts // 1000
        if ts % 1000:
            made["ts_ns"] = ts
    if seen not in (0, ts):
        made["observed_time_unix_nano"] = seen


def add_severity(made: dict[str, Any], text: str, number: int) -> None:
    """The severity: the sender's word, or else the one for its number; and the number."""
    if text or number:
        made["severity"] = text or _SEVERITIES[min(max(number - 1, 0) // 4, 5)]
    if number:
        made["severity_number"] = number


def add_attributes(made: dict[str, Any], attributes: Iterable[tuple[str, Any]]) -> None:
    """Attributes under their own names, or with a prefix where something else has it, another of that name as well."""
    for name, value in attributes:
        made[free_name(name, "attributes.", made)] = value


def split(attributes: Iterable[tuple[str, Any]], names: Container[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """The attributes of a resource: those with these names as tags, and the others."""
    tags: dict[str, str] = {}
    rest: dict[str, Any] = {}
    for name, value in attributes:
        if name in names:
            tags[name] = as_text(value)
        else:
            rest[name] = value
    return tags, rest


def add_shared(made: dict[str, Any], shared: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Attributes of the scope and the resource under their own names, or with a prefix where the record has them."""
    for prefix, attributes in shared:
        if made.keys().isdisjoint(attributes) and "ts" not in attributes:
            made.update(attributes)
            continue
        for name, value in attributes.items():
            made[free_name(name, prefix, made)] = value


def check_depth(depth: int) -> None:
    """Raises InvalidEventError for values that nest too deeply."""
    if depth > DEEPEST:
        raise InvalidEventError(f"a value nests deeper than {DEEPEST} levels")


def plain(value: bytes | float) -> str | float:
    """As JSON has it: bytes become base64, numbers that it does not have become texts."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if math.isfinite(value) else str(value)


def as_text(value: Any) -> str:
    """A value as the text of a message or a tag."""
    if isinstance(value, str | WrittenFloat):
        return str(value)
    return "" if value is None else json_text(value).decode()
