"""What shippers of logs send, stored: records with the tags of their streams, as one batch where that can be.

Of a batch with records that cannot be stored only those are left out: a shipper would otherwise send the same batch for
ever, or throw all of it away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aggregator import Catalog, InvalidRequestError, TopicExistsError
from aggregator.lql import TagSet
from aggregator.records import STREAM_SCHEMA, events_of
from aggregator.server.settings import Settings
from esformat import InvalidEventError

TAGS_AND_RECORD = tuple[Mapping[str, str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is stored."""

    partition: str
    index: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a record is not stored, and would not be the next time."""

    reason: str


Outcome = Place | Refusal


@dataclass(frozen=True, slots=True)
class Target:
    """Where records go, and the key that makes a repetition harmless."""

    topic: str
    partition: str = "0"
    producer: str | None = None
    sequence: int | None = None


def make_stream_topic(catalog: Catalog, name: str, settings: Settings) -> None:
    """The topic for streams, with the policies of the settings, where it is not there. Raises InvalidRequestError."""
    if name not in catalog.topics():
        with contextlib.suppress(TopicExistsError):
            catalog.create_topic(name, STREAM_SCHEMA, roll=settings.roll, retention=settings.retention)


def store(catalog: Catalog, items: Sequence[TAGS_AND_RECORD], target: Target) -> list[Outcome]:
    """Store records, each of the stream of its tags; tells of each what became of it.

    With a key all of them are stored, or none. Raises InvalidRequestError, InvalidEventError (with a key),
    SequenceConflictError, OverloadedError, and what else appending raises.
    """
    if not items:
        return []
    try:
        return _stored(catalog, items, target)
    except (InvalidRequestError, InvalidEventError) as error:
        if target.producer is not None:
            raise
        if len(items) == 1:
            return [Refusal(error.message)]
    refusals = _unfit(catalog, items, target.topic)
    if not refusals:  # each would do alone, but not together
        half = len(items) // 2
        return store(catalog, items[:half], target) + store(catalog, items[half:], target)
    rest = iter(store(catalog, [item for place, item in enumerate(items) if place not in refusals], target))
    return [refusals.get(place) or next(rest) for place in range(len(items))]


def _stored(catalog: Catalog, items: Sequence[TAGS_AND_RECORD], target: Target) -> list[Outcome]:
    """All records as one batch, and where each is."""
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for place, (tags, _) in enumerate(items):
        groups.setdefault(tuple(tags.items()), []).append(place)
    receipt = catalog.write_streams(
        [(dict(tags), [items[place][1] for place in places]) for tags, places in groups.items()], target.topic,
        partition=target.partition, producer=target.producer, sequence=target.sequence,
    )  # fmt: skip
    found: dict[int, Outcome] = {}
    order = (place for places in groups.values() for place in places)
    for index, place in enumerate(order, receipt.first):
        found[place] = Place(receipt.partition, index)
    return [found[place] for place in range(len(items))]


def _unfit(catalog: Catalog, items: Sequence[TAGS_AND_RECORD], topic: str) -> dict[int, Refusal]:
    """Records that cannot be stored whatever stands beside them, by place. Stores nothing."""
    types = {field.name: field.type for field in catalog.topic(topic).scan().schema}
    found: dict[int, Refusal] = {}
    for place, (tags, record) in enumerate(items):
        try:
            events_of(TagSet.of(tags), [record], types, 0)
        except (InvalidRequestError, InvalidEventError) as error:
            found[place] = Refusal(error.message)
    return found
