"""Write records of streams as events of their topic, which the first write creates."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from aggregator.engine.backend import Backend
from aggregator.engine.writer import now_us
from aggregator.errors import InvalidRequestError, SequenceConflictError, TopicExistsError
from aggregator.lql import TagSet
from aggregator.model import STREAMS_TOPIC, Receipt
from aggregator.storage.segments.records import STREAM_SCHEMA, events_of, joined, record_columns
from aggregator.storage.state.schema import union_schema
from aggregator.storage.state.state import Topic as TopicState
from aggregator.topic import Topic

_EARLIER = 64  # earlier versions of a topic's columns with which a retried batch may have been stored


class StreamWrites:
    """Writes records of streams to topics of a catalog. Thread-safe."""

    def __init__(self, backend: Backend, topic: Callable[[str], Topic], create: Callable[..., Topic]) -> None:
        """topic: finds a topic by name. create: creates one from a name and a schema."""
        self._backend, self._topic, self._create = backend, topic, create
        self._columns: dict[int, tuple[int, pa.Schema]] = {}

    def write(
        self,
        streams: Iterable[tuple[Mapping[str, str], Any]],
        topic: str,
        partition: str,
        producer: str | None,
        sequence: int | None,
    ) -> Receipt:
        """Store records of several streams as one batch. Raises as `Catalog.write` does."""
        target = self._target(topic)
        now = now_us()
        given = [(TagSet.of(tags), list(each) if isinstance(each, Iterator) else each) for tags, each in streams]
        if not given:
            raise InvalidRequestError("no streams", hint="give at least one pair of tags and records")

        def append(columns: pa.Schema) -> Receipt:
            tables = [events_of(tags, records, columns, now) for tags, records in given]
            return target.append(joined(tables), partition, producer=producer, sequence=sequence)

        known = len(self._backend.state.topics[topic].schemas)
        try:
            return append(self._columns_of(topic))
        except SequenceConflictError:  # fields may have had no columns at the first attempt
            for count in reversed(range(known)[-_EARLIER:]):
                with contextlib.suppress(SequenceConflictError):
                    return append(self._columns_at(topic, count))
            raise

    def _target(self, name: str) -> Topic:
        if name not in self._backend.state.topics:
            with contextlib.suppress(TopicExistsError):  # another thread was faster
                return self._create(name, STREAM_SCHEMA)
        topic = self._topic(name)
        if topic.keys != "text":
            raise InvalidRequestError(f"the topic {name!r} has binary keys", hint="streams need a topic with text keys")
        return topic

    def pipe_target(self) -> TopicState:
        """The topic that pipes write to."""
        self._target(STREAMS_TOPIC)
        return self._backend.state.topics[STREAMS_TOPIC]

    def _columns_of(self, topic: str) -> pa.Schema:
        """The columns of a topic for fields of mappings."""
        state = self._topic(topic)._topic
        number, count = state.info.number, len(state.schemas)
        known = self._columns.get(number)
        if known is None or known[0] != count:
            known = self._columns[number] = (count, self._columns_at(topic, count))
        return known[1]

    def _columns_at(self, topic: str, count: int) -> pa.Schema:
        """The same columns when the topic had `count` schemas."""
        schemas = sorted(self._backend.state.topics[topic].schemas.values(), key=lambda info: info.number)[:count]
        union = union_schema(schemas, binary_keys=False).arrow
        return record_columns([info.schema.arrow for info in schemas], union)
