"""Several catalogs read as one: topics of the same name are combined, with their events in one order.

Numbers (of topics, partitions, segments …) are made unique: a catalog's own number, times the number of catalogs, plus
the catalog's place among them. So scans, statements and positions work as for a single catalog. Partitions are called
`catalog/partition`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import TypeVar
from urllib.parse import unquote

import esformat
from aggregator import lql
from aggregator.base.forked import Owner
from aggregator.base.window_budget import WindowBudget
from aggregator.engine.backend import is_store
from aggregator.engine.follower import ReaderEngine
from aggregator.errors import InvalidRequestError
from aggregator.model import Problem, SchemaInfo, SegmentInfo
from aggregator.storage.files.checksum import checksum64
from aggregator.storage.files.layout import Layout
from aggregator.storage.files.pins import Pin
from aggregator.storage.manifest import Contents
from aggregator.storage.manifest.lineage import Lineage
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.segments.row_indexes import RowIndexes
from aggregator.storage.segments.table import SegmentTable, SegmentView
from aggregator.storage.state.state import CatalogState, MemtableView, Partition, SchemaSet, Snapshot, Topic
from aggregator.storage.state.streams import Stream, StreamIndex

AT_ONCE = 16
"""Number of catalogs in stores that are queried in parallel, as each waits for an answer."""
_T = TypeVar("_T")
_Mine = list[tuple[int, Topic]]
"""A topic in each catalog that has it, with the catalog's place."""


class _Pins(Pin):
    """The pins of several catalogs as one."""

    __slots__ = ("_all",)

    def __init__(self, pins: list[Pin]) -> None:
        self._all = pins

    def release(self) -> None:
        """Release all of them."""
        while self._all:
            self._all.pop().release()


class _Pool(SegmentPool):
    """The segments of all catalogs, by their combined numbers."""

    def __init__(self, pools: Sequence[SegmentPool]) -> None:
        self._pools = pools
        self.windows = WindowBudget()
        self.begun = set()

    def _own(self, info: SegmentInfo) -> tuple[SegmentPool, SegmentInfo]:
        number, place = divmod(info.number, len(self._pools))
        return self._pools[place], info._replace(number=number)

    def get(self, info: SegmentInfo) -> esformat.Segment:
        """An open segment, from the pool of its catalog."""
        pool, own = self._own(info)
        return pool.get(own)

    @property
    def has_store(self) -> bool:
        """Whether any catalog has a store."""
        return any(pool.has_store for pool in self._pools)

    def is_far(self, info: SegmentInfo) -> bool:
        """Whether it is read from a store."""
        pool, own = self._own(info)
        return pool.is_far(own)

    def opened(self, info: SegmentInfo) -> esformat.Segment | None:
        """The segment if it is already open; else None."""
        pool, own = self._own(info)
        return pool.opened(own)

    def row_indexes(self, info: SegmentInfo) -> RowIndexes:
        """The record index of each row of a segment."""
        pool, own = self._own(info)
        return pool.row_indexes(own)

    def close(self) -> None:
        """Nothing: the catalogs close their own."""


class _Streams(StreamIndex):
    """The streams of all catalogs, without duplicates."""

    def __init__(self, indexes: Sequence[StreamIndex]) -> None:
        self._indexes = indexes

    def select(self, source: lql.Source | None) -> list[Stream]:
        """The streams that match, in the order of the catalogs."""
        found = {(stream.topic, stream.name): stream for index in self._indexes for stream in index.select(source)}
        return list(found.values())

    def names(self, source: lql.Source | None, *, without_tag: str | None = None) -> dict[str, tuple[str, ...]]:
        """The names of the streams that match and do not have a tag, by topic."""
        found: dict[str, dict[str, None]] = {}
        for index in self._indexes:
            for topic, names in index.names(source, without_tag=without_tag).items():
                found.setdefault(topic, {}).update(dict.fromkeys(names))
        return {topic: tuple(names) for topic, names in found.items()}

    def tag_names(self) -> list[str]:
        """Every tag name, ascending."""
        return sorted({name for index in self._indexes for name in index.tag_names()})


class FederatedEngine(ReaderEngine):
    """The engine of several catalogs that are read as one. Thread-safe.

    It has no manifest: operations that need one work only on a single catalog.
    """

    def __init__(self, members: Sequence[ReaderEngine]) -> None:
        """members: in the order of their paths or addresses; the caller closes them.

        Raises InvalidRequestError if two of them are the same catalog or copies of one: events would count twice.
        """
        _check_distinct(members)
        self._members = members
        self._far = any(is_store(member.address) for member in members)
        self.look_s = max(member.look_s for member in members)
        self.names, common = _named([member.address for member in members])
        self.layout = Layout(Path(common))
        self.owner = Owner(self.layout.root)
        self._lock = Lock()
        self.pool = _Pool([member.pool for member in members])
        self.streams = _Streams([member.streams for member in members])
        self.state = CatalogState(Contents(0, [], [], [], [], [], [], 0))
        identity = b"".join(member.state.lineage.identity for member in members)
        self.state.lineage = Lineage(checksum64(identity).to_bytes(8, "big"), (b"many",), {})
        self._seen: list[tuple[int, int]] = []
        self._arrived = 0
        self._topics: dict[str, _Mine] = {}
        self._schemas: dict[tuple[int, int], SchemaInfo] = {}
        self._views: dict[str, tuple[list[SegmentView], SegmentView]] = {}
        self.refresh()

    def number(self, place: int, own: int) -> int:
        """The combined number for a catalog's own number."""
        return own * len(self._members) + place

    def refresh(self) -> None:
        """Apply what the writers did since the last call."""
        self.owner.check()
        self._ask_all([member.refresh for member in self._members])
        self._refresh_topics()

    def _ask_all(self, calls: Sequence[Callable[[], _T]]) -> list[_T]:
        """Call each function and return the results: in parallel if any catalog is in a store, else in sequence."""
        if not self._far or len(calls) < 2:
            return [call() for call in calls]
        with ThreadPoolExecutor(AT_ONCE, "aggregator-federation") as threads:
            return [each.result() for each in [threads.submit(copy_context().run, call) for call in calls]]

    def _refresh_topics(self) -> bool:
        """Combine what the catalogs have now. Return whether their topics, partitions or segments changed."""
        with self._lock:
            seen = [(member.state.change, len(member.state.partitions)) for member in self._members]
            changed = seen != self._seen
            if changed:
                self._take_topics()
                self._seen = seen
            arrived = sum(member.state.arrivals.count for member in self._members)
            if arrived != self._arrived:
                self._arrived = arrived
                self.state.arrivals.notify()
            return changed

    def _take_topics(self) -> None:
        found: dict[str, _Mine] = {}
        for place, member in enumerate(self._members):
            for name, topic in list(member.state.topics.items()):
                found.setdefault(name, []).append((place, topic))
        topics = {name: self._joined(mine) for name, mine in found.items()}
        partitions: dict[int, tuple[Topic, Partition]] = {}
        for name, mine in found.items():
            for place, topic in mine:
                for partition in topic.partitions.values():
                    partitions[self.number(place, partition.number)] = (topics[name], partition)
        with self.state.view_lock:
            self._topics, self.state.topics, self.state.partitions = found, topics, partitions

    def _joined(self, mine: _Mine) -> Topic:
        """Combine a topic of several catalogs, without its events. Its indexes are those that all have."""
        infos = [topic.info for _, topic in mine]
        indexes = tuple(name for name in infos[0].indexes if all(name in info.indexes for info in infos))
        joined = Topic(replace(infos[0], number=self.number(mine[0][0], infos[0].number), indexes=indexes))
        for place, topic in mine:
            joined.schemas |= {info.number: info for info in self._schemas_of(place, topic)}
            for name, partition in topic.partitions.items():
                joined.partitions[f"{self.names[place]}/{name}"] = partition
        return joined

    def _schemas_of(self, place: int, topic: Topic) -> list[SchemaInfo]:
        return [self._schema(place, info) for info in list(topic.schemas.values())]

    def _schema(self, place: int, info: SchemaInfo) -> SchemaInfo:
        """A schema with combined numbers. Each is created only once, because schemas are compared by identity."""
        known = self._schemas.get((place, info.number))
        if known is None:
            here = replace(info, number=self.number(place, info.number), family=self.number(place, info.family))
            known = self._schemas.setdefault((place, info.number), here)
        return known

    def snapshot(self, topic: Topic, partition: str | None) -> tuple[Snapshot, Pin]:
        """A snapshot of a topic, from one catalog after the other."""
        self.owner.check()
        while True:  # until no catalog changes its topics or segments meanwhile
            snapshot, pin = self._taken(topic, partition)
            if not self._refresh_topics():
                return snapshot, pin
            pin.release()

    def _taken(self, topic: Topic, partition: str | None) -> tuple[Snapshot, Pin]:
        """The same, with the topics known so far. Refreshes every catalog."""
        name = topic.info.name
        mine = self._topics.get(name, [])
        others = set(range(len(self._members))).difference(place for place, _ in mine)
        self._ask_all([self._members[place].refresh for place in others])
        if len({each.info.keys for _, each in mine}) > 1:
            raise InvalidRequestError(
                f"the topic {name!r} has text keys in one catalog and binary keys in another",
                hint="read them separately",
            )
        pins = _Pins([])

        def take(place: int, each: Topic) -> tuple[int, Snapshot] | None:
            own = self._own_partition(place, partition)
            if own is None and partition is not None:
                self._members[place].refresh()
                return None
            snapshot, pin = self._members[place].snapshot(each, own)
            pins._all.append(pin)
            return place, snapshot

        try:
            found = self._ask_all([partial(take, place, each) for place, each in mine])
        except BaseException:
            pins.release()
            raise
        taken = [each for each in found if each is not None]
        return self._together(topic, taken), pins

    def _own_partition(self, place: int, partition: str | None) -> str | None:
        """The name of a partition within a catalog; None if the partition belongs to another."""
        prefix = self.names[place] + "/"
        return partition.removeprefix(prefix) if partition is not None and partition.startswith(prefix) else None

    def _together(self, topic: Topic, taken: list[tuple[int, Snapshot]]) -> Snapshot:
        def here(place: int, own: int) -> int:
            return self.number(place, own)

        schemas = tuple(self._schema(place, info) for place, each in taken for info in each.schemas)
        return Snapshot(
            topic.info,
            SchemaSet(schemas, topic.info.indexes, topic.binary_keys),
            tuple((here(i, p), f"{self.names[i]}/{name}") for i, each in taken for p, name in each.partitions),
            self._segments(topic.info.name, taken),
            tuple(MemtableView(here(i, u.partition), u.batches, u.owner) for i, each in taken for u in each.memtables),
            {(here(i, p), space): cuts for i, each in taken for (p, space), cuts in each.tombstones.items()},
            {here(i, p): holes for i, each in taken for p, holes in each.holes.items()},
        )

    def _segments(self, name: str, taken: list[tuple[int, Snapshot]]) -> SegmentView:
        """The segments of a topic: those of the last snapshot if no catalog has changed them, else combined again."""
        views = [each.segments for _, each in taken]
        known = self._views.get(name)
        if known is not None and len(known[0]) == len(views) and all(map(_same, known[0], views)):
            return known[1]
        table = SegmentTable(
            info._replace(
                number=self.number(place, info.number),
                partition=self.number(place, info.partition),
                schema=self.number(place, info.schema),
            )
            for place, each in taken
            for info in each.segments
        )
        self._views[name] = (views, table.view())
        return self._views[name][1]

    def problems(self) -> list[Problem]:
        """The known problems of all catalogs."""
        return [problem for member in self._members for problem in member.problems()]

    def close(self) -> None:
        """Wake all waiting callers. The owner of the catalogs closes them."""
        self.state.arrivals.end()


def _check_distinct(members: Sequence[ReaderEngine]) -> None:
    known: dict[bytes, str] = {}
    for member in members:
        identity = member.state.lineage.identity
        other = known.setdefault(identity, member.address)
        if identity and other != member.address:
            raise InvalidRequestError(
                "two of the catalogs are the same, or copies, so events would count twice",
                path=member.address,
                hint=f"use either this one or {other}",
            )


def _named(addresses: Sequence[str]) -> tuple[list[str], str]:
    """Names for catalogs: the parts of their paths or addresses after the common prefix; and that prefix."""
    parts = [unquote(each).split("/") if is_store(each) else Path(each).as_posix().split("/") for each in addresses]
    alike = takewhile(lambda names: len(set(names)) == 1, zip(*parts, strict=False))
    shared = sum(1 for _ in alike) if len(parts) > 1 else len(parts[0]) - 1
    return ["/".join(part[shared:]) or "." for part in parts], "/".join(parts[0][:shared])


def _same(known: SegmentView, view: SegmentView) -> bool:
    return known.alive is view.alive and known.count == view.count
