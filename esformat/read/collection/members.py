"""The files of a collection: a few facts about each, and a bounded number of them open at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from threading import Lock
from weakref import WeakSet

from esformat.base.forked import unlock_in_forks
from esformat.core.caches import Budgets, Cache
from esformat.errors import ClosedError, CorruptSegmentError, EsdbError
from esformat.format.bloom_filter import bucket_count, page_may_contain, page_of
from esformat.format.checksum import checksum64
from esformat.format.frame import Block
from esformat.format.layout import BlockKind
from esformat.io.handles import Handles, SharedFile, changed_file, open_files
from esformat.io.location import Place
from esformat.io.remote import RemoteSource
from esformat.io.source import Source, explained
from esformat.io.store import StoredAt
from esformat.read.blocks.reader import SHARED_CACHE, Reader
from esformat.read.segment import Segment

FILTER_BYTES = 64 << 20
"""Maximum bytes of its files' space filters that a collection caches."""


class Member:
    """One file of a collection: what is known about it without opening it again."""

    def __init__(self, number: int, segment: Segment) -> None:
        reader = segment._reader
        self.number = number
        self.name = reader.name
        self.size_bytes = reader.size
        self.root_check = reader.table[BlockKind.DIRECTORY_ROOT, 0, 0].check
        """Checksum of the directory root, which lists all blocks and their checksums: it identifies the file."""
        self.schema = reader.schema
        self.statistics = reader.statistics
        self.first_space: bytes = reader.root.first_space_of(0) if len(reader.root) else b""
        self.last_space: bytes | None = None
        """None until it is needed."""


class Members:
    """The files of a collection, in order. Thread-safe."""

    def __init__(self, places: Sequence[Place | Source], max_open: int | None, cache_bytes: int | None) -> None:
        """max_open: None for a number that suits the process's limit of open files."""
        self._places = places
        self._max_open = open_files() if max_open is None else max_open
        self._handles = Handles(self._max_open)
        self._budgets = SHARED_CACHE if cache_bytes is None else Budgets.of(cache_bytes)
        self._filters = Cache(FILTER_BYTES)
        self._segments: OrderedDict[int, Segment] = OrderedDict()
        self._ever_open: WeakSet[Segment] = WeakSet()
        self._lock = Lock()
        unlock_in_forks(self)
        self._closed = False
        self.all: list[Member] = []

    def load(self, number: int) -> Member:
        """Open a file to read the facts about it."""
        return Member(number, self.segment(number))

    @cached_property
    def remote(self) -> bool:
        """Whether any file is not a local path, so that reading may mean waiting."""
        return not all(isinstance(place, str) for place in self._places)

    def check_open(self) -> None:
        """Raises ClosedError after `close`."""
        if self._closed:
            raise ClosedError("the collection is closed", hint="read within the `with` block, or open it again")

    def segment(self, number: int) -> Segment:
        """The open segment of a file. Raises ClosedError, SegmentChangedError, or what `open` raises."""
        with self._lock:
            self.check_open()
            segment = self._segments.get(number)
            if segment is not None:
                self._segments.move_to_end(number)
                return segment
        segment = self._open(number)
        with self._lock:
            self._ever_open.add(segment)
            self._segments[number] = segment
            while len(self._segments) > self._max_open:
                self._segments.popitem(last=False)  # scans in progress keep their own reference
        return segment

    def _open(self, number: int) -> Segment:
        known = self.all[number] if number < len(self.all) else None
        try:
            source = self._source(self._places[number])
        except FileNotFoundError:
            if known is None:
                raise
            raise changed_file(known.name) from None
        try:
            segment = Segment(Reader(source, self._budgets))
        except EsdbError as error:
            raise explained(error, source) from None
        if known is not None and not _is_same(known, segment):
            raise changed_file(known.name)
        return segment

    def _source(self, place: Place | Source) -> Source:
        if isinstance(place, str):
            return SharedFile(self._handles, place)
        return RemoteSource(place.store, place.path) if isinstance(place, StoredAt) else place

    def last_space(self, member: Member) -> bytes:
        """The last space of a file with events; the first call needs one read."""
        if member.last_space is None:
            reader = self.segment(member.number)._reader
            member.last_space = reader.leaf(len(reader.root) - 1).spaces[-1]
        return member.last_space

    def may_contain(self, member: Member, space: bytes) -> bool:
        """False if a file has no event in a space: by its first and last space, then by its filter; True if it may."""
        if not member.statistics.events or space < member.first_space or space > self.last_space(member):
            return False
        hashed = checksum64(space)
        buckets = bucket_count(member.statistics.spaces)
        page = page_of(hashed, buckets)
        kept = self._filters.get((member.number, page), lambda: self._filter_page(member, page))
        return kept.block is None or page_may_contain(kept.block, hashed, buckets)

    def _filter_page(self, member: Member, page: int) -> _FilterPage:
        reader = self.segment(member.number)._reader
        handle = reader.table.get((BlockKind.FILTER, page, 0))
        try:
            return _FilterPage(None if handle is None else reader.read(handle, BlockKind.FILTER))
        except CorruptSegmentError:  # a damaged filter costs time, not answers
            return _FilterPage(None)

    def close(self) -> None:
        """Close every file; scans in progress raise ClosedError at their next read."""
        with self._lock:
            self._closed = True
            self._segments.clear()
            opened = list(self._ever_open)
        for segment in opened:
            segment.close()
        self._handles.close()


class _FilterPage:
    """A page of a file's space filter; its block is None if the file has no page that could be read."""

    def __init__(self, block: Block | None) -> None:
        self.block = block
        self.size_bytes = 100 + (0 if block is None else len(block.body))


def _is_same(member: Member, segment: Segment) -> bool:
    now = Member(member.number, segment)
    return (member.size_bytes, member.root_check) == (now.size_bytes, now.root_check)
