"""Topics and streams as SQL tables. A statement sees each topic as it was when the statement began."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import Event, Lock, Thread
from typing import Any, cast

import pyarrow as pa

from aggregator.base.allowance import current
from aggregator.engine.backend import Backend
from aggregator.errors import AggregatorError
from aggregator.lql import LqlError, TagSet
from aggregator.model import STREAMS_TOPIC
from aggregator.read.events import AlreadyHeld, TopicEvents
from aggregator.read.key_counts import counted_spaces, counted_values
from aggregator.read.query import make_query
from aggregator.read.scan import FileHolder, Scan
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.state.state import Snapshot
from aggregator.topic import Topic
from esformat import EsdbError
from esformat.parts import Bounds, EventDataset, EventSchema, Field
from esformat.sql import Database, Session, unguarded

STREAMS = "streams"
"""The table of the streams' records, with their tags as a map, unless a topic has this name."""
TAGS = "tags"
_TAGS_TYPE = pa.map_(pa.string(), pa.string())
LOOK_S = 0.05
"""Seconds between checks whether a statement may continue."""
HINT = (
    f"tables are the catalog's topics, and {STREAMS} for those of the topic {STREAMS_TOPIC!r}; "
    "streams of another topic are in the table of its name"
)
FILES_HINT = f"{HINT}; Parquet, CSV and JSON files can be named in quotes"


def session(
    backend: Backend, *, allowed: Callable[[str], bool] = lambda topic: True, database: Database | None = None
) -> Session:
    """A SQL session over the topics of a catalog.

    allowed: whether the topic of a name may be read. database: one that is shared with others; statements that run in
    it are subject to the `Allowance` of their thread.
    """
    guard, hint = (unguarded, FILES_HINT) if database is None else (guarded, HINT)
    return Session(
        lambda name: find_table(backend, name, allowed),
        hint=hint,
        database=database,
        guard=guard,
        names=lambda: table_names(backend, allowed),
    )


@contextmanager
def guarded(interrupt: Callable[[], None]) -> Iterator[None]:
    """Run the body, and call `interrupt` when this thread's allowance is exceeded. Raises what the allowance raises."""
    allowance = current()
    if allowance is None:
        yield
        return
    allowance.check()
    lock, done, errors = Lock(), Event(), list[AggregatorError]()

    def watch() -> None:
        while not done.wait(LOOK_S):
            try:
                allowance.check()
            except AggregatorError as error:
                with lock:
                    if not done.is_set():
                        errors.append(error)
                        interrupt()
                return

    Thread(target=watch, name="sql-allowance", daemon=True).start()
    try:
        yield
    except EsdbError as error:
        raise (errors[0] if errors else error) from None
    finally:
        with lock:
            done.set()


def table_names(backend: Backend, allowed: Callable[[str], bool]) -> list[str]:
    """The allowed topics in alphabetical order, and `streams` if that is a table."""
    backend.owner.check()
    backend.refresh()
    names = sorted(filter(allowed, backend.state.topics))
    return [*names, STREAMS] if STREAMS_TOPIC in names and STREAMS not in map(str.casefold, names) else names


def find_table(backend: Backend, name: str, allowed: Callable[[str], bool] = lambda topic: True) -> TopicTable | None:
    """The topic of that name as it is now, as a table; None if no allowed topic has that name."""
    backend.owner.check()
    backend.refresh()
    topics = backend.state.topics
    folded = {each.casefold(): each for each in reversed(topics)}
    known = name if name in topics else folded.get(name.casefold())
    tagged = known is None and name.casefold() == STREAMS and STREAMS_TOPIC in topics
    topic = topics.get(STREAMS_TOPIC if tagged else known or "")
    if topic is None or not allowed(topic.info.name):
        return None
    snapshot, holder = Topic(backend, topic)._snap(None)
    return TopicTable(snapshot, holder, backend.pool, tagged=tagged)


class TopicTable:
    """A topic at one moment. Its files are kept as long as this object exists."""

    def __init__(self, snapshot: Snapshot, holder: FileHolder, pool: SegmentPool, *, tagged: bool) -> None:
        """tagged: add the column TAGS, unless the topic has a column of that name."""
        self._snapshot, self._holder, self._pool = snapshot, holder, pool
        self._tagged = tagged and TAGS not in snapshot.schema_set.union.arrow.names

    def __eq__(self, other: object) -> bool:
        """Whether both are the same table of the same topic."""
        return isinstance(other, TopicTable) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[int, bool]:
        return self._snapshot.topic.number, self._tagged

    def _scan(self, **options: Any) -> Scan:
        info = self._snapshot.topic
        query = make_query(binary_keys=self._snapshot.binary_keys, indexes=info.indexes, **options)
        return Scan(lambda partition: (self._snapshot, AlreadyHeld()), self._pool, query)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the events."""
        return self._events.schema.arrow

    @property
    def indexes(self) -> tuple[str, ...]:
        """Indexed columns that have one type in every segment that has values of them."""
        types: dict[str, set[pa.DataType]] = {}
        for info in self._snapshot.schemas:
            for field in filter(lambda field: field.indexed, info.schema.fields):
                types.setdefault(field.name, set()).add(field.type)
        return tuple(name for name in self._snapshot.topic.indexes if len(types.get(name, ())) == 1)

    @cached_property
    def num_events(self) -> int:
        """Number of events."""
        return self._scan().count()

    @property
    def min_timestamp(self) -> int | None:
        """The earliest timestamp, µs; None if there are no events."""
        return self._end(newest=False)

    @property
    def max_timestamp(self) -> int | None:
        """The latest timestamp, µs; None if there are no events."""
        return self._end(newest=True)

    def _end(self, *, newest: bool) -> int | None:
        times = self._events.extreme_times(1, newest=newest)
        return int(times[0]) if len(times) else None

    def spaces(self, prefix: str | bytes | None = None) -> dict[str | bytes, int]:
        """The spaces that begin with `prefix`, each with its number of events."""
        counts = counted_spaces(self._snapshot, self._pool, self._scan)
        if prefix is None:
            return counts
        return {space: count for space, count in counts.items() if cast("str", space).startswith(cast("str", prefix))}

    def index_values(self, name: str) -> dict[Any, int]:
        """The values of an index, each with its number of events."""
        return counted_values(self._snapshot, self._pool, name, self._scan)

    @cached_property
    def _events(self) -> TopicEvents:
        return TaggedEvents(self._snapshot, self._pool) if self._tagged else TopicEvents(self._snapshot, self._pool)

    def dataset(self, *, dictionaries: bool = False) -> EventDataset:
        """The events as a dataset for DuckDB. dictionaries: as for `esformat.Segment.dataset`."""
        return EventDataset(self._events.with_dictionaries() if dictionaries else self._events)


class TaggedEvents(TopicEvents):
    """Records of streams, with their tags."""

    def __init__(self, snapshot: Snapshot, pool: SegmentPool) -> None:
        super().__init__(snapshot, pool)
        stored = self.schema
        self.schema = EventSchema((*stored.fields, Field(TAGS, _TAGS_TYPE, True, False)), stored.binary_keys)

    def batches(self, bounds: Bounds, columns: Sequence[str], *, lazily: bool) -> Iterator[pa.RecordBatch]:
        """Batches with at least the events within bounds."""
        if TAGS not in columns:
            yield from super().batches(bounds, columns, lazily=lazily)
            return
        read = list(dict.fromkeys([*(name for name in columns if name != TAGS), "space"]))
        for batch in super().batches(bounds, read, lazily=lazily):
            tagged = batch.append_column(pa.field(TAGS, _TAGS_TYPE), tags_of(batch.column("space")))
            yield tagged.select(list(columns))


def tags_of(spaces: pa.Array) -> pa.Array:
    """The tags of each row, parsed from its space; null if the space does not name a stream."""
    coded = spaces.dictionary_encode()
    return pa.array(list(map(_tags, coded.dictionary.to_pylist())), _TAGS_TYPE).take(coded.indices)


def _tags(space: str) -> list[tuple[str, str]] | None:
    if not space.startswith("{"):
        return None
    try:
        return list(TagSet.parse(space).items)
    except LqlError:
        return None
