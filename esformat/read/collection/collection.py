"""`open_many`, `Collection` and `CollectionSpace`: several segments read as if their events were in one file."""

from __future__ import annotations

import heapq
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from esformat.base.notebook import html_facts, html_time
from esformat.errors import SegmentChangedError, SpaceNotFoundError, UnknownIndexError, UsageError
from esformat.event import to_key
from esformat.format.schema import EventSchema
from esformat.io.location import Options, portable, segments_at
from esformat.read.answer import Scannable
from esformat.read.ask.question import Checks, Query
from esformat.read.collection.events import CollectionEvents
from esformat.read.collection.members import Member, Members
from esformat.read.collection.scan import CollectionScan, Part
from esformat.read.collection.schema import unify
from esformat.read.counts import Counts
from esformat.read.scan import Scan
from esformat.read.segment_like import SegmentLike

if TYPE_CHECKING:
    from esformat.read.dataset import EventDataset
    from esformat.sql import Parameters, Rows, Session

OPENING_THREADS = 16  # files in stores that are opened or searched in parallel
WHOLE_ORDER = ("space", "grouping", "timestamp")

Holder = tuple[Member, dict[bytes, int]]
"""A file that contains a space, and the space's groupings there with their numbers of events."""
T = TypeVar("T")
R = TypeVar("R")


def open_many(
    targets: Any, *, max_open: int | None = None, cache_bytes: int | None = None, storage_options: Options = None
) -> Collection:
    """Open several segments and read them as one.

    targets: one or several of: a file; a directory or a prefix of an object store, for all `.esdb` files below it; a
    pattern (`*`, `?`, `[…]`, `**`); whatever else `open` takes. Files keep the order in which they are named; those of
    a directory or pattern are sorted by name; a file named twice is read once. Events that are equal in the order of a
    scan are returned in the order of the files, as if those of earlier files had been added first.
    max_open: the number of files whose handle and decoded root are kept; None for 1024, or a quarter of the process's
    limit of open files if that is less.
    cache_bytes: as for `open`, for all files together. storage_options: as for `open`, for every URI.
    Raises UsageError if there are no files or their columns are incompatible, and what `open` raises.
    """
    if max_open is not None and (not isinstance(max_open, int) or isinstance(max_open, bool) or max_open < 1):
        raise UsageError(f"max_open must be a whole number from 1, not {max_open!r}")
    places = list(segments_at(targets, storage_options))
    if not places:
        raise UsageError("no files to open", hint="name a file, a directory or a pattern")
    return _opened(places, max_open, cache_bytes)


def _opened(places: Sequence[Any], max_open: int | None, cache_bytes: int | None) -> Collection:
    named = tuple(map(portable, places)), max_open, cache_bytes
    return Collection(Members(places, max_open, cache_bytes), len(places), named)


def _open_copy(
    places: tuple[Any, ...], max_open: int | None, cache_bytes: int | None, facts: tuple[int, int]
) -> Collection:
    """Open a pickled collection. Raises SegmentChangedError if other files have the names now."""
    copy = _opened(places, max_open, cache_bytes)
    if (copy.size_bytes, copy.num_events) != facts:
        copy.close()
        raise SegmentChangedError("the files were replaced after pickling", hint="open them again")
    return copy


class Collection(SegmentLike[CollectionScan, "CollectionSpace"]):
    """Several open segments read as one, with their events ordered by space, grouping, timestamp and file.

    Thread-safe. Close it, or use it as a context manager.

    Only some files have an open handle at a time, so no file may be replaced while the collection is open: reading a
    replaced file raises SegmentChangedError.
    """

    def __init__(self, members: Members, count: int, named: tuple[tuple[Any, ...], int | None, int | None]) -> None:
        """Created by `open_many`. named: the arguments it was opened with, for pickling."""
        self._members = members
        self._side_by_side = members.remote and count > 1
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = 0  # threads do not survive a fork
        self._named = named
        members.all = list(self._each(members.load, range(count)))
        self._schema = unify((member.name, member.schema) for member in members.all)

    def _each(self, work: Callable[[T], R], items: Iterable[T]) -> Iterable[R]:
        """Apply `work` to every item, in order; in parallel if the files are remote."""
        self._members.check_open()
        if not self._side_by_side:
            return map(work, items)
        if self._pool is None or self._pool_process != os.getpid():
            self._pool = ThreadPoolExecutor(OPENING_THREADS, thread_name_prefix="esformat-collection")
            self._pool_process = os.getpid()
        return self._pool.map(work, items)

    def __reduce__(self) -> tuple[Any, ...]:
        """An unpickled copy opens the same files by their names, in any process."""
        self._members.check_open()
        return _open_copy, (*self._named, (self.size_bytes, self.num_events))

    def __repr__(self) -> str:
        return f"<esformat.Collection of {len(self.paths)} files, {self.num_events} events>"

    def _repr_html_(self) -> str:
        """A summary of the files, for notebooks."""
        return html_facts(
            repr(self),
            {
                "files": len(self.paths),
                "events": self.num_events,
                "bytes": self.size_bytes,
                "first": html_time(self.min_timestamp),
                "last": html_time(self.max_timestamp),
                "indexes": ", ".join(self.indexes),
                "columns": ", ".join(self.schema.names),
            },
        )

    # ------------------------------------------------------------ facts

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, in order."""
        return tuple(member.name for member in self._members.all)

    @property
    def size_bytes(self) -> int:
        """Total size of all files, in bytes."""
        return sum(member.size_bytes for member in self._members.all)

    @property
    def num_events(self) -> int:
        """Number of events in all files."""
        return sum(member.statistics.events for member in self._members.all)

    @cached_property
    def num_spaces(self) -> int:
        """Number of distinct spaces. If several files have events, the first use reads their directories."""
        filled = [member for member in self._members.all if member.statistics.events]
        return filled[0].statistics.spaces if len(filled) == 1 else len(self.spaces())

    @property
    def schema(self) -> pa.Schema:
        """Columns of the events: those of all files; null for events of a file that lacks the column."""
        return self._schema.arrow

    @property
    def indexes(self) -> tuple[str, ...]:
        """Names of the columns that are indexed in every file that has them."""
        return self._schema.indexes

    @property
    def min_timestamp(self) -> int | None:
        """The earliest timestamp, µs; None without events."""
        return min((t for m in self._members.all if (t := m.statistics.min_timestamp) is not None), default=None)

    @property
    def max_timestamp(self) -> int | None:
        """The latest timestamp, µs; None without events."""
        return max((t for m in self._members.all if (t := m.statistics.max_timestamp) is not None), default=None)

    def dataset(self, *, dictionaries: bool = False) -> EventDataset:
        """The events as a `pyarrow.dataset.Dataset`, like `Segment.dataset`; the rows are in the order of the files."""
        from esformat.read.dataset import EventDataset  # pyarrow.dataset is slow to import

        return EventDataset(CollectionEvents(self._members, self._schema, dictionaries=dictionaries))

    @cached_property
    def _session(self) -> Session:
        from esformat.sql import Session, named  # needs the extra `sql`

        hint = "the events of the files are the table events"
        return Session(named({"events": self}), hint=hint, immutable=True, names=lambda: ["events"])

    def sql(self, statement: str, parameters: Parameters = None) -> Rows:
        """Run a SQL statement, like `Segment.sql`; the table `events` has the events of all files."""
        return self._session.ask(statement, parameters)

    # ------------------------------------------------------------ closing

    def close(self) -> None:
        """Close all files. Closing twice is allowed; later scans raise ClosedError."""
        session = self.__dict__.pop("_session", None)
        if session is not None:
            session.close()
        self._members.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------ spaces

    def find(self, space: str | bytes) -> CollectionSpace | None:
        """The space with a key; None if no file has an event in it. Raises UsageError for other types."""
        key = to_key(space)

        def look(member: Member) -> Holder | None:
            if not self._members.may_contain(member, key):
                return None
            found = self._members.segment(member.number).find(key)
            if found is None:
                return None
            return member, {to_key(grouping): count for grouping, count in found.groupings().items()}

        holders = [found for found in self._each(look, self._members.all) if found is not None]
        return CollectionSpace(self, key, holders) if holders else None

    def may_contain(self, space: str | bytes) -> bool:
        """False if no file has an event in a space; True if one may. Reads filters rather than directories."""
        key = to_key(space)
        return any(self._each(lambda member: self._members.may_contain(member, key), self._members.all))

    def _space_counts(self, prefix: bytes) -> Iterator[tuple[Any, int]]:
        holders = [member for member in self._members.all if self._may_begin(member, prefix)]
        return _summed(self._members.segment(member.number).spaces(prefix).pairs() for member in holders)

    def _absent(self, space: object) -> SpaceNotFoundError:
        return SpaceNotFoundError(f"no space {space!r} in {len(self.paths)} files")

    def _may_begin(self, member: Member, prefix: bytes) -> bool:
        """Whether a file can contain a space that begins with a prefix, judging by its first and last space."""
        if not member.statistics.events:
            return False
        before = member.first_space[: len(prefix)] <= prefix
        return before and (not prefix or self._members.last_space(member) >= prefix)

    # ------------------------------------------------------------ indexes

    def index_values(self, name: str) -> Counts:
        """The values of an index in ascending order, each with its number of events. Raises UnknownIndexError."""
        self._checks.index_type(name)
        holders = [member for member in self._members.all if name in member.schema.positions]

        def items() -> Iterator[tuple[Any, int]]:
            return _summed(self._members.segment(member.number).index_values(name).pairs() for member in holders)

        def count(value: Any) -> int:
            found = [self._members.segment(member.number).index_values(name).get(value, 0) for member in holders]
            if not any(found):
                raise KeyError(value)
            return sum(found)

        return Counts(items, count)

    # ------------------------------------------------------------ scans

    def _scan(self, query: Query, grouping: bytes | None) -> CollectionScan:
        def part(member: Member) -> Part:
            def scan(asked: Query) -> Scan:
                return self._members.segment(member.number)._scan(asked, grouping)

            edge = self._members.last_space(member) if query.reverse else member.first_space
            return Part(member.number, (self._shown(edge),), member.schema, member.statistics.events, scan)

        return self._merged(query, lambda: list(self._each(part, self._holders(query))), WHOLE_ORDER)

    def _holders(self, query: Query, members: Iterable[Member] | None = None) -> list[Member]:
        """The files that can contain matching events, judging by their time span and columns."""
        found = []
        for member in self._members.all if members is None else members:
            low, high = member.statistics.min_timestamp, member.statistics.max_timestamp
            if low is None or high is None or (query.timed and query.misses(low, high)):
                continue
            if all(name in member.schema.positions for name, _ in query.conditions):
                found.append(member)
        return found

    def _merged(self, query: Query, parts: Callable[[], list[Part]], order: tuple[str, ...]) -> CollectionScan:
        return CollectionScan(self._schema, query, parts if query.limit != 0 else list, order, self._each)

    def _shown(self, key: bytes) -> str | bytes:
        """A space or grouping as callers see it."""
        return key if self._schema.binary_keys else key.decode()

    @cached_property
    def _checks(self) -> Checks:
        return _Checks(self._members.all, self._schema)


class _Checks(Checks):
    """The columns and indexes of several files."""

    def __init__(self, members: Sequence[Member], schema: EventSchema) -> None:
        super().__init__(f"{len(members):,} files", schema)
        self._members = members
        self._indexes = schema.indexes

    def index_type(self, name: str) -> pa.DataType:
        """Type of the values of an index. Raises UnknownIndexError, which names a file that lacks the index."""
        if name in self._indexes:
            return super().index_type(name)
        having = [member for member in self._members if name in member.schema.positions]
        lacking = [member.name for member in having if name not in member.schema.indexes]
        if len(lacking) == len(having):
            return super().index_type(name)
        more = f" and {len(lacking) - 1:,} more of {len(having):,} files" if len(lacking) > 1 else ""
        raise UnknownIndexError(
            f"no index {name!r} in {lacking[0]}{more}",
            hint="use --where, which needs no index, or add it with `esdb reindex`",
        )


class CollectionSpace(Scannable[CollectionScan]):
    """The events of one space in all files of a collection, oldest first; groupings and files are merged by time."""

    def __init__(self, collection: Collection, key: bytes, holders: list[Holder]) -> None:
        """Created by `Collection.find`. holders: the files that contain the space, with its groupings there."""
        self._collection = collection
        self.key_bytes = key
        self._holders = holders
        self.num_events = sum(sum(groupings.values()) for _, groupings in holders)

    @property
    def key(self) -> str | bytes:
        """The space's key."""
        return self._collection._shown(self.key_bytes)

    def __repr__(self) -> str:
        return f"<esformat.CollectionSpace {self.key!r}, {self.num_events} events in {len(self._holders)} files>"

    def __len__(self) -> int:
        return self.num_events

    def groupings(self) -> Counts:
        """The space's groupings in key order, each with its number of events."""
        counts: Counter[bytes] = Counter()
        for _, groupings in self._holders:
            counts.update(groupings)
        ordered = {self._collection._shown(key): counts[key] for key in sorted(counts)}
        return Counts(lambda: iter(ordered.items()), ordered.__getitem__)

    @property
    def _checks(self) -> Checks:
        return self._collection._checks

    def _scan(self, query: Query, grouping: bytes | None) -> CollectionScan:
        collection = self._collection
        holders = [member for member, groupings in self._holders if grouping is None or grouping in groupings]

        def part(member: Member) -> Part:
            def scan(asked: Query) -> Scan | None:
                space = collection._members.segment(member.number).find(self.key_bytes)
                return None if space is None else space._scan(asked, grouping)

            edge = member.statistics.max_timestamp if query.reverse else member.statistics.min_timestamp
            return Part(member.number, (edge,), member.schema, member.statistics.events, scan)

        alike = grouping is not None or len(set().union(*(groupings for _, groupings in self._holders))) == 1
        order = ("timestamp",) if alike else ("timestamp", "grouping")
        return collection._merged(query, lambda: [part(m) for m in collection._holders(query, holders)], order)


def _summed(sources: Iterable[Iterator[tuple[Any, int]]]) -> Iterator[tuple[Any, int]]:
    """Merge sources of ascending keys with counts, adding the counts of equal keys."""
    for key, same in groupby(heapq.merge(*sources, key=itemgetter(0)), key=itemgetter(0)):
        yield key, sum(count for _, count in same)
