"""`Archive` and `ArchiveSpace`: an open archive of the Go ESDB, and one of its spaces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from typing import Any, NamedTuple

import pyarrow as pa

from esformat.customerio.archive_events import LoadedSpace, SpaceEvents, index_counts, load_space, refine_names
from esformat.customerio.archive_file import ArchiveFile, Directory, Listing, SpacePlace
from esformat.customerio.layout import Layout, Layouts, Names, check_pair, make_layout, near_layout, shown
from esformat.customerio.open_file import OpenFile
from esformat.customerio.question import LayoutChecks, check_index
from esformat.customerio.scan import Scan
from esformat.errors import CorruptSegmentError
from esformat.event import to_key
from esformat.io.source import Source
from esformat.read.answer import Scannable
from esformat.read.ask.question import Query
from esformat.read.counts import Counts

GROUP_BYTES = 4 << 20
"""The most stored bytes of spaces that are decoded together; a larger space is decoded alone."""
GROUP_SPACES = 4096
KEPT_SECTIONS = 200_000
"""The most directory sections that are cached: about 40 MB."""


class _Statistics(NamedTuple):
    events: int
    spaces: int
    min_timestamp: int | None
    max_timestamp: int | None


class Archive(OpenFile["ArchiveSpace"]):
    """An open archive with the interface of a `Segment`: spaces, groupings, indexes, scans by space, grouping and time.

    Events with the same time are returned in insertion order in both directions, as by the Go ESDB.

    The file records neither its columns nor any counts. A table of all columns first reads the directory of every
    space, and a count reads the events themselves; the result is cached. Scans of the events of one space need neither.
    Thread-safe.
    """

    kind = "archive"

    def __init__(self, source: Source) -> None:
        """Use `open` instead."""
        super().__init__(source)
        self._lock = Lock()
        with self._named():
            self._file = ArchiveFile(source)
        self._listings: dict[int, Listing] = {}  # by offset of the space
        self._known_layout: Layout | None = None
        self._known_statistics: _Statistics | None = None

    def close(self) -> None:
        """Close the file. Closing twice is allowed; later scans raise ClosedError."""
        super().close()
        self._file.source = self._source

    # ------------------------------------------------------------ facts

    @property
    def layout(self) -> Layout:
        """The file's columns."""
        with self._lock, self._named():
            if self._known_layout is None:
                self._known_layout = self._survey()
            return self._known_layout

    def _survey(self) -> Layout:
        room = KEPT_SECTIONS
        spaces: list[SpacePlace] = []
        sections: set[bytes] = set()
        self._check_open()
        for place in self._file.spaces():
            listing = self._file.listing(place)
            room -= len(listing.pairs)
            if room >= 0:
                self._listings[place.offset] = listing
            spaces.append(place)
            sections.update(key for key, _ in listing.pairs)
        keys = [place.key for place in spaces] + [key[1:] for key in sections if key[:1] == b"g"]
        pairs = [check_pair(key[1:]) for key in sections if key[:1] == b"i"]
        if len(keys) + len(pairs) != len(spaces) + len(sections):
            raise CorruptSegmentError("a space has a section of an unknown kind")
        names = Names()
        unclear = {b"i" + pair for pair in pairs if pair.count(b":") > 1}  # where the name ends
        if unclear:
            for stored, group in self._groups(place for place in spaces if self._may_have(place, unclear)):
                refine_names(stored, group, names)
        return make_layout(keys, pairs, names)

    def _may_have(self, place: SpacePlace, keys: set[bytes]) -> bool:
        """Whether a space may have a section with one of `keys`; True if its listing is not cached."""
        listing = self._listings.get(place.offset)
        return listing is None or any(key in keys for key, _ in listing.pairs)

    @property
    def _statistics(self) -> _Statistics:
        with self._lock, self._named():
            if self._known_statistics is None:
                self._known_statistics = self._count()
            return self._known_statistics

    def _count(self) -> _Statistics:
        events = spaces = 0
        low: list[int] = []
        high: list[int] = []
        for stored, group in self._groups(self._file.spaces()):
            found = SpaceEvents(stored, group)
            events += len(found)
            spaces += sum(1 for count in found.counts() if count)
            if len(found):
                low.append(int(found.seconds.min()) * 1_000_000)
                high.append(int(found.seconds.max()) * 1_000_000)
        return _Statistics(events, spaces, min(low, default=None), max(high, default=None))

    @property
    def num_events(self) -> int:
        """The number of events in the file."""
        return self._statistics.events

    @property
    def num_spaces(self) -> int:
        """The number of spaces that have events."""
        return self._statistics.spaces

    @property
    def min_timestamp(self) -> int | None:
        """The earliest timestamp, µs; None without events."""
        return self._statistics.min_timestamp

    @property
    def max_timestamp(self) -> int | None:
        """The latest timestamp, µs; None without events."""
        return self._statistics.max_timestamp

    # ------------------------------------------------------------ spaces

    def find(self, space: str | bytes) -> ArchiveSpace | None:
        """Return the space with that key; None if the file has no events of it. Raises UsageError for other types."""
        with self._named():
            self._check_open()
            place = self._file.find(to_key(space))
            directory = None if place is None else self._file.directory(place)
            if place is None or directory is None or not directory.groupings:
                return None
            return ArchiveSpace(self, place, directory)

    def _space_counts(self, prefix: bytes) -> Iterator[tuple[Any, int]]:
        places = (place for place in self._file.spaces() if place.key.startswith(prefix))
        for stored, group in self._groups(places):
            for space, count in zip(group, SpaceEvents(stored, group).counts(), strict=True):
                if count:  # Go writes a space without events as a space without sections
                    yield shown(space.place.key), count

    def index_values(self, name: str) -> Counts:
        """The values of an index in ascending order, each with its number of events. Raises UnknownIndexError."""
        layout = self.layout
        check_index(layout, self.path, name)
        index = layout.by_name[name]

        def totals() -> dict[Any, int]:
            found: Counter[bytes] = Counter()
            for stored, group in self._groups(self._file.spaces()):
                for value, count in index_counts(stored, group, index.stored, layout.names):
                    found[value] += count
            return {shown(value): found[value] for value in sorted(found) if found[value]}

        return Counts(lambda: iter(totals().items()), lambda value: totals()[value])

    # ------------------------------------------------------------ scans

    def _scan(self, query: Query, grouping: bytes | None) -> Scan:
        return self.scan_places(self._checks, query, grouping, self._file.spaces, merged=False)

    def scan_places(
        self,
        checks: LayoutChecks,
        query: Query,
        grouping: bytes | None,
        places: Callable[[], Iterable[SpacePlace]],
        *,
        merged: bool,
    ) -> Scan:
        """Scan some spaces. merged: whether to merge their groupings by time."""

        def read(layout: Layout, columns: tuple[str, ...], reverse: bool) -> Iterator[pa.RecordBatch]:
            wanted = {layout.names.pair(layout.by_name[name].stored, value) for name, value in query.conditions}
            for stored, group in self._groups(reversed(list(places())) if reverse else places()):
                group = [space for space in group if wanted <= {section.key for section in space.directory.indexes}]
                if not group:
                    continue
                events = SpaceEvents(stored, group)
                only = next(iter(wanted)) if merged and len(wanted) == 1 else None
                yield from events.batches(
                    layout, columns, events.order(merged=merged, reverse=reverse, entries_of=only)
                )

        return Scan(checks, query, grouping, read)

    def load(self, place: SpacePlace) -> SpaceEvents:
        """Load the events of one space."""
        with self._named():
            ((stored, group),) = self._groups([place])
            return SpaceEvents(stored, group)

    def _groups(self, places: Iterable[SpacePlace]) -> Iterator[tuple[bytes, list[LoadedSpace]]]:
        """Load ascending or descending `places` in groups, each into one buffer in which the spaces ascend."""
        group: list[SpacePlace] = []
        size = 0
        for place in places:
            if group and (size + place.length > GROUP_BYTES or len(group) == GROUP_SPACES):
                yield self._load(group)
                group, size = [], 0
            group.append(place)
            size += place.length
        if group:
            yield self._load(group)

    def _load(self, group: list[SpacePlace]) -> tuple[bytes, list[LoadedSpace]]:
        """Load a group into one buffer, with one read per range of adjacent spaces."""
        self._check_open()
        group = sorted(group)
        starts = []
        size = 0
        reads: list[list[int]] = []  # offset and length
        for place in group:
            starts.append(size)
            size += place.length
            if reads and sum(reads[-1]) == place.offset:
                reads[-1][1] += place.length
            else:
                reads.append([place.offset, place.length])
        stored = b"".join(self._source.read_at(offset, length) for offset, length in reads)
        known = self._listings
        return stored, [load_space(stored, a, p, known.get(p.offset)) for a, p in zip(starts, group, strict=True)]


class ArchiveSpace(Scannable[Scan]):
    """The events of one space of an archive, oldest first, with groupings merged by time.

    Events with the same time are returned in insertion order in both directions, as by the Go ESDB. A reverse
    `scan_index` of one value returns events in the order of Go's `ScanIndex`.
    """

    def __init__(self, archive: Archive, place: SpacePlace, directory: Directory) -> None:
        """Use `Archive.find` instead."""
        self._archive = archive
        self._place = place
        keys = [place.key, *(section.key for section in directory.groupings)]
        self._own_layout = near_layout(keys, [section.key for section in directory.indexes])

    @property
    def key_bytes(self) -> bytes:
        """The space's key as bytes."""
        return self._place.key

    @property
    def key(self) -> str | bytes:
        """The space's key."""
        return shown(self._place.key)

    @property
    def num_events(self) -> int:
        """The number of events of the space; reads them."""
        return len(self._archive.load(self._place))

    def __len__(self) -> int:
        return self.num_events

    def __repr__(self) -> str:
        return f"<esformat.customerio.ArchiveSpace {self._place.key!r}>"

    def groupings(self) -> Counts:
        """The space's groupings in key order, each with its number of events."""
        counts = {shown(name): count for name, count in self._archive.load(self._place).grouping_counts()}
        return Counts(lambda: iter(counts.items()), counts.__getitem__)

    @property
    def _checks(self) -> LayoutChecks:
        archive = self._archive
        return LayoutChecks(archive.path, Layouts(lambda: self._own_layout or archive.layout, lambda: archive.layout))

    def _scan(self, query: Query, grouping: bytes | None) -> Scan:
        return self._archive.scan_places(self._checks, query, grouping, lambda: [self._place], merged=True)
