"""`Definitions`: the schemas with which the records of each topic were appended. Read from the events, and cached."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from threading import Lock

import pyarrow as pa

from aggregator import Catalog, Topic
from aggregator.server.plateau.definition import SCHEMA_COLUMN, Definition, define, stored_types

NEAR_ROWS = 20_000
"""Number of preceding events that are searched for a definition before all events of the grouping are searched. A batch
rarely has more."""
_MAX_FOREIGN = 10_000


@dataclass(slots=True)
class _Known:
    """What is cached for a topic. columns: those that it has, or that a definition has claimed."""

    columns: dict[str, pa.DataType]
    by_schema: dict[bytes, Definition] = field(default_factory=dict)
    by_id: dict[str, Definition] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)  # groupings without a definition


class Definitions:
    """The definitions of all topics of a catalog. Thread-safe."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = Lock()
        self._topics: dict[str, _Known] = {}

    def of_schema(self, topic: Topic, schema: pa.Schema, plain: pa.Schema) -> Definition:
        """Return the definition of a schema that a client appends with, and create it if it is new.

        plain: its columns as they are appended. Raises InvalidEventError.
        """
        key = schema.serialize().to_pybytes()
        known = self._known(topic)
        found = known.by_schema.get(key)
        if found is not None:
            return found
        with self._lock:
            made = define(schema, plain, known.columns | _columns(topic))  # other routes add columns, too
            kinds = stored_types(plain)
            for name, stored in made.columns.items():
                known.columns.setdefault(stored, kinds[name])
            known.by_id[made.id] = known.by_schema[key] = made
            return made

    @staticmethod
    def draft(schema: pa.Schema, plain: pa.Schema) -> Definition:
        """Return the definition of a schema in a topic that does not exist yet. Raises InvalidEventError."""
        return define(schema, plain, {})

    def of_event(self, topic: Topic, grouping: str | bytes, place: tuple[str, int]) -> Definition | None:
        """Return the definition of an event in the space "" by its grouping; None if it is not from plateau's routes.

        place: its partition and record index. The first event of its batch, which contains the definition, is nearby.
        """
        if not isinstance(grouping, str):
            return None
        known = self._known(topic)
        if grouping in known.by_id:
            return known.by_id[grouping]
        if grouping in known.foreign:
            return None
        found = _stored(topic, grouping, place)
        with self._lock:
            if found is not None:
                known.by_id[grouping] = found
            elif len(known.foreign) < _MAX_FOREIGN:
                known.foreign.add(grouping)
        return found

    def only(self, topic: Topic) -> Definition | None:
        """Return the definition of a topic if exactly one is known."""
        known = list(self._known(topic).by_id.values())
        return known[0] if len(known) == 1 else None

    def _known(self, topic: Topic) -> _Known:
        known = self._topics.get(topic.name)
        if known is None:
            with self._lock:
                known = self._topics.setdefault(topic.name, _Known(_columns(topic)))
        return known


def _columns(topic: Topic) -> dict[str, pa.DataType]:
    """Return the types of a topic's columns, without the default column `data` of a topic that has no events."""
    schema = topic.scan().schema
    return {field.name: field.type for field in schema if topic.partitions or field.name != "data"}


def _stored(topic: Topic, grouping: str, place: tuple[str, int]) -> Definition | None:
    """Return the definition stored in events of that grouping: one shortly before a place, or else the newest."""
    if SCHEMA_COLUMN not in topic.scan().schema.names:
        return None
    near = topic.read(*place, NEAR_ROWS, reverse=True, columns=[SCHEMA_COLUMN])
    anywhere = topic.scan(space="", grouping=grouping, columns=[SCHEMA_COLUMN], reverse=True)
    for batch in chain(near.batches(), anywhere.batches()):
        for encoded in batch.column(0).drop_null().to_pylist():
            found = Definition.decode(encoded)
            if found.id == grouping:
                return found
    return None
