"""What shippers of logs send, stored: records with the tags of their streams, as one batch where that can be.

A batch with a record that cannot be stored is divided until only that record is left out: a shipper would otherwise
send the same batch for ever, or throw all of it away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aggregator import Catalog, InvalidRequestError, TopicExistsError
from aggregator.records import STREAM_SCHEMA
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
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for place, (tags, _) in enumerate(items):
        groups.setdefault(tuple(tags.items()), []).append(place)
    streams = [(dict(tags), [items[place][1] for place in places]) for tags, places in groups.items()]
    try:
        receipt = catalog.write_streams(
            streams, target.topic, partition=target.partition, producer=target.producer, sequence=target.sequence
        )
    except (InvalidRequestError, InvalidEventError) as error:
        if target.producer is not None:
            raise
        if len(items) == 1:
            return [Refusal(error.message)]
        half = len(items) // 2
        return store(catalog, items[:half], target) + store(catalog, items[half:], target)
    found: list[Outcome] = [Refusal("")] * len(items)
    order = (place for places in groups.values() for place in places)
    for index, place in enumerate(order, receipt.first):
        found[place] = Place(receipt.partition, index)
    return found
