"""Storage of what log shippers send: records with their streams' tags, as one batch if possible.

No record is refused because of types or lengths: `aggregator.storage.segments.records` handles fields, and tags that
are too long are truncated and kept in full as fields. If some records of a batch cannot be stored, only those are left
out: otherwise a shipper would send the batch forever, or discard all of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aggregator import Catalog, InvalidRequestError, TopicExistsError
from aggregator.lql import TagSet
from aggregator.lql.parse.tag_set import MAX_TAG_BYTES
from aggregator.server.bodies.shared.refusals import Count, ignore
from aggregator.server.config.settings import Settings
from aggregator.storage.segments.records import NO_COLUMNS, STREAM_SCHEMA, events_of
from aggregator.streams.level import add_level_of_all
from esformat import InvalidEventError

TAGS_AND_RECORD = tuple[Mapping[str, str], dict[str, Any]]
SHORT_TAGS = MAX_TAG_BYTES // 4
"""Tags whose names and values have at most this many characters in total are short enough in any encoding."""

_PREFIXES = 3
"""Number of prefixes that are tried before a number is appended. The limit stops names from growing without end."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is stored."""

    partition: str
    index: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a record cannot be stored, now or later."""

    reason: str


Outcome = Place | Refusal


@dataclass(frozen=True, slots=True)
class Target:
    """Where records go, and the idempotency key that makes a retry harmless."""

    topic: str
    partition: str = "0"
    producer: str | None = None
    sequence: int | None = None


def make_stream_topic(catalog: Catalog, name: str, settings: Settings) -> None:
    """Create the topic for streams, with the policies of the settings, unless it exists. Raises InvalidRequestError."""
    if name not in catalog.topics():
        with contextlib.suppress(TopicExistsError):
            catalog.create_topic(name, STREAM_SCHEMA, roll=settings.roll, retention=settings.retention)


def store(catalog: Catalog, items: Sequence[TAGS_AND_RECORD], target: Target, count: Count = ignore) -> list[Outcome]:
    """Store records in the streams of their tags, each with its `level`. Return the outcome of each; count oddities.

    With an idempotency key either all of them are stored or none. Raises InvalidRequestError, InvalidEventError (with a
    key), SequenceConflictError, OverloadedError, and what else appending raises.
    """
    for tags, record in items:
        add_level_of_all(record, tags)
    outcomes = _store(catalog, _with_short_tags(items, count), target)
    for outcome in outcomes:
        if isinstance(outcome, Refusal):
            count("invalid", why=outcome.reason)
    return outcomes


def _with_short_tags(items: Sequence[TAGS_AND_RECORD], count: Count) -> list[TAGS_AND_RECORD]:
    """Return the records with tags of a length that a stream allows."""
    known: dict[int, tuple[Mapping[str, str], dict[str, str]]] = {}  # many records share the same tags
    made = []
    for tags, record in items:
        found = known.get(id(tags))
        if found is None:
            found = known[id(tags)] = _short(tags)
        short, whole = found
        if whole:
            count("tags_cut")
            record = dict(record)
            for name, value in whole.items():
                record[free_name(name, "tags.", record)] = value
        made.append((short, record))
    return made


def _short(tags: Mapping[str, str]) -> tuple[Mapping[str, str], dict[str, str]]:
    """Return the tags at allowed lengths, and the full values of those that were truncated."""
    if sum(map(len, tags)) + sum(map(len, tags.values())) <= SHORT_TAGS:
        return tags, {}
    cut, whole = TagSet.cut(tags)
    return cut.as_dict(), whole


def free_name(name: str, prefix: str, record: Mapping[str, Any]) -> str:
    """Return a name for a field that the record does not use yet, and that is not `ts` or `msg`."""
    for _ in range(_PREFIXES):
        if name not in record and name not in ("ts", "msg"):
            return name
        name = prefix + name
    while name in record:
        name = f"{name}.{len(record)}"
    return name


def _store(catalog: Catalog, items: Sequence[TAGS_AND_RECORD], target: Target) -> list[Outcome]:
    if not items:
        return []
    try:
        return _stored(catalog, items, target)
    except (InvalidRequestError, InvalidEventError) as error:
        if target.producer is not None:
            raise
        if len(items) == 1:
            return [Refusal(error.message)]
    refusals = _unfit(items)
    if not refusals:  # each is valid alone, but not together
        half = len(items) // 2
        return _store(catalog, items[:half], target) + _store(catalog, items[half:], target)
    rest = iter(_store(catalog, [item for place, item in enumerate(items) if place not in refusals], target))
    return [refusals.get(place) or next(rest) for place in range(len(items))]


def _stored(catalog: Catalog, items: Sequence[TAGS_AND_RECORD], target: Target) -> list[Outcome]:
    """Store all records as one batch, and return where each is."""
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    known: dict[int, list[int]] = {}  # many records share the same tags
    for place, (tags, _) in enumerate(items):
        places = known.get(id(tags))
        if places is None:
            places = known[id(tags)] = groups.setdefault(tuple(tags.items()), [])
        places.append(place)
    receipt = catalog.write_streams(
        [(dict(tags), [items[place][1] for place in places]) for tags, places in groups.items()],
        target.topic,
        partition=target.partition,
        producer=target.producer,
        sequence=target.sequence,
    )
    found: dict[int, Outcome] = {}
    order = (place for places in groups.values() for place in places)
    for index, place in enumerate(order, receipt.first):
        found[place] = Place(receipt.partition, index)
    return [found[place] for place in range(len(items))]


def _unfit(items: Sequence[TAGS_AND_RECORD]) -> dict[int, Refusal]:
    """Return the records that cannot be stored in any batch, by place. Stores nothing."""
    found: dict[int, Refusal] = {}
    for place, (tags, record) in enumerate(items):
        try:
            events_of(TagSet.of(tags), [record], NO_COLUMNS, 0)
        except (InvalidRequestError, InvalidEventError) as error:
            found[place] = Refusal(error.message)
    return found
