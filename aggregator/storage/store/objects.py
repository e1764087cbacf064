"""Segments as objects of a catalog's store: how they are called, and how they are read by ranges."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from aggregator.errors import ObjectMissingError, SegmentMissingError
from aggregator.model import SegmentInfo, StoredSegment
from aggregator.policy import StoreSettings
from aggregator.storage.files.checksum import hasher64
from aggregator.storage.files.layout import SEGMENTS_IN_A_FOLDER
from aggregator.storage.store.range_cache import CHUNK_BYTES, Data, RangeCache
from esformat import CorruptSegmentError, EsdbError

if TYPE_CHECKING:
    from aggregator.storage.store.client import Store

FOLDER = "segments/"
_Coming = Future[tuple[int, Data]]
"""The number of the first chunk of a request, and their bytes."""
_Segment = TypeVar("_Segment", "SegmentInfo", "StoredSegment")
HELD_BYTES = 64 << 20
"""What a source holds at most of chunks that were announced and not yet read."""
OPENING_BYTES = 32 << 10
"""Of the end of a file, which opening it reads."""
STALE_SECONDS = 30.0
FETCH_THREADS = 16
PATIENCE_S = 10.0
"""For so long a request is tried again: a reader waits, and uploads are tried again by upkeep."""
_NAME = re.compile(r"segments/\d{6}/(\d{12})-([0-9a-f]{16})\.esdb")
REPAIR = (
    "`aggregator store verify` tells of all such; bring an earlier version of the object back, or let its events go"
)


def object_name(segment: SegmentInfo | StoredSegment) -> str:
    """How the object of a segment is called below the store's prefix."""
    folder = segment.number // SEGMENTS_IN_A_FOLDER
    return f"{FOLDER}{folder:06d}/{segment.number:012d}-{segment.checksum:016x}.esdb"


def parse_name(name: str) -> tuple[int, int] | None:
    """The number and the checksum of the segment that an object holds; None for other objects."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2], 16))


def readable_place(settings: StoreSettings, segment: SegmentInfo | StoredSegment) -> str:
    """The object of a segment as `esformat.open` takes it, in any process: a path or a URI, with nothing in percent."""
    address = unquote(f"{settings.address}/{object_name(segment)}")
    scheme, _, rest = address.partition("://")
    if scheme == "file":
        return rest
    if scheme == "az":
        account, container, path = rest.split("/", 2)
        return f"abfs://{container}@{account}.dfs.core.windows.net/{path}"
    return address


def segment_sizes(store: Store) -> dict[str, int]:
    """The bytes of each object of a segment that a store has now, by name."""
    return {found.name: found.size_bytes for found in store.list(FOLDER) if parse_name(found.name) is not None}


def open_store(address: str, lease_s: float) -> Store:
    """A store for who holds a lease, or waits for one: no request takes so long that it could not be renewed."""
    from aggregator.storage.store.client import Store  # here: obstore is of an extra

    return Store(address, timeout_s=max(1.0, min(20.0, lease_s / 2)), patience_s=lease_s / 3)


@cache
def _fetchers(_process: int) -> ThreadPoolExecutor:
    """The threads that fetch ahead, one pool a process: threads do not survive a fork."""
    return ThreadPoolExecutor(FETCH_THREADS, thread_name_prefix="aggregator-fetch")


class Objects:
    """The segments of a catalog in its store, if it has one. Safe to share between threads."""

    def __init__(self, settings: Callable[[], StoreSettings | None], directory: Path, *, read_only: bool) -> None:
        """settings: gives where the store is. directory: of the cache. read_only: the cache is another process's."""
        self._settings, self._directory, self._read_only = settings, directory, read_only
        self._lock = Lock()
        self._store: Store | None = None
        self._cache: RangeCache | None = None

    @property
    def settings(self) -> StoreSettings | None:
        """Where the store is; None where the catalog has none."""
        return self._settings()

    @property
    def is_open(self) -> bool:
        """Whether the store was used."""
        return self._store is not None

    @property
    def store(self) -> Store:
        """The store, which there must be. Raises InvalidRequestError for an address that cannot be."""
        self._open()
        assert self._store is not None
        return self._store

    @property
    def cache(self) -> RangeCache:
        """What was read of the store."""
        self._open()
        assert self._cache is not None
        return self._cache

    @property
    def cached_bytes(self) -> int:
        """What the cache takes on the disk."""
        return 0 if self._cache is None else self._cache.size_bytes

    def _open(self) -> None:
        if self._store is None:
            with self._lock:
                settings = self._settings()
                if self._store is None and settings is not None:
                    from aggregator.storage.store.client import Store  # here: obstore is of an extra

                    self._cache = RangeCache(self._directory, settings.cache_bytes, read_only=self._read_only)
                    self._store = Store(settings.address, patience_s=PATIENCE_S)

    def source(self, segment: SegmentInfo | StoredSegment) -> ObjectSource | None:
        """The bytes of a segment in the store; None without a store. Nothing is asked of it yet."""
        if self._settings() is None:
            return None
        return ObjectSource(self.store, self.cache, object_name(segment), segment.size_bytes)

    def lacking(self, segments: Iterable[_Segment]) -> list[_Segment]:
        """Of segments, those that the store does not have in their size. Raises StoreError.

        What a list does not show is asked for: some stores list late what came just now.
        """
        there = segment_sizes(self.store)
        return [each for each in segments if there.get(object_name(each)) != each.size_bytes and not self._has(each)]

    def _has(self, segment: SegmentInfo | StoredSegment) -> bool:
        try:
            return self.store.head(object_name(segment)).size_bytes == segment.size_bytes
        except ObjectMissingError:
            return False

    def is_whole(self, segment: SegmentInfo | StoredSegment, look: Callable[[], None] = lambda: None) -> bool:
        """Whether the object of a segment has the bytes that it should. Reads all of it. look: called now and then.

        Raises StoreError.
        """
        hasher, size = hasher64(), 0
        try:
            for part in self.store.stream(object_name(segment)):
                look()
                hasher.update(part)
                size += len(part)
        except ObjectMissingError:
            return False
        return size == segment.size_bytes and hasher.intdigest() == segment.checksum

    def keep_end(self, segment: SegmentInfo | StoredSegment, path: Path) -> None:
        """Keep in the cache what opening a segment reads, from a file that is about to go. Raises OSError."""
        first = max(0, segment.size_bytes - OPENING_BYTES) // CHUNK_BYTES
        with path.open("rb") as file:
            file.seek(first * CHUNK_BYTES)
            self.cache.keep(_stem(object_name(segment)), first, file.read())

    def forget(self, segment: SegmentInfo | StoredSegment) -> None:
        """Keep nothing of a segment in the cache."""
        if self._cache is not None:
            self._cache.forget(_stem(object_name(segment)))

    def settle(self) -> None:
        """Return when what was read of the store is kept."""
        if self._cache is not None:
            self._cache.settle()


class ObjectSource:
    """An object as a source of bytes: its chunks come from the cache, or with one request for each row of them that is
    missing there. What was announced is fetched by other threads meanwhile.
    """

    hint = REPAIR

    def __init__(self, store: Store, ranges: RangeCache, name: str, size: int) -> None:
        """size: of the object, as the manifest knows it."""
        self._store, self._cache, self._object, self.size = store, ranges, name, size
        self.name = store.path_of(name)
        self._stem = _stem(name)
        self._lock = Lock()
        self._coming: dict[int, tuple[_Coming, float]] = {}  # by chunk, and since when

    def will_read(self, start: int, stop: int) -> None:
        """Begin to fetch bytes [start, stop), as far as they are not here: they will be read soon."""
        missing = self._cache.lacks(self._stem, _chunks(start, min(stop, self.size)))
        if not missing:
            return
        with self._lock:
            self._forget_stale()
            wanted = [number for number in missing if number not in self._coming]
            for first, last in _rows(wanted):
                if len(self._coming) * CHUNK_BYTES >= HELD_BYTES:
                    return
                coming: _Coming = Future()
                _fetchers(os.getpid()).submit(self._fetch_ahead, coming, first, last)
                for number in range(first, last):
                    self._coming[number] = coming, monotonic()

    def has(self, start: int, stop: int) -> bool:
        """Whether bytes [start, stop) seem to be in the cache."""
        return not self._cache.lacks(self._stem, _chunks(start, stop))

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes [offset, offset + length). Raises CorruptSegmentError, SegmentMissingError, StoreError."""
        if not length:
            return b""
        if offset + length > self.size:
            raise CorruptSegmentError("the object ends early", path=self.name, offset=self.size)
        at, end, parts = offset, offset + length, []
        while at < end:
            first, data = self._stretch(at // CHUNK_BYTES, -(-end // CHUNK_BYTES))
            start = at - first * CHUNK_BYTES
            parts.append(memoryview(data)[start : start + end - at])
            at += len(parts[-1])
        return b"".join(parts)

    def _stretch(self, number: int, last: int) -> tuple[int, Data]:
        """A chunk, with neighbours that are found with it: the number of the first one, and their bytes. Those up to
        `last` will be asked for, too. Raises as `read_at`.
        """
        coming = self._take(number, last)
        found = self._cache.find(self._stem, number, last) if coming is None else coming.result()
        if found is None:
            missing = self._cache.lacks(self._stem, range(number, last))
            wanted = [number, *(each for each in missing if each > number and each not in self._coming)]
            found = number, self._get(*next(_rows(wanted)))
            self._cache.keep_later(self._stem, *found)
        return found

    def _take(self, number: int, last: int) -> _Coming | None:
        """What brings a chunk, if it was announced. Of all that are read now nobody need be told again."""
        with self._lock:
            coming = self._coming.get(number, (None, 0.0))[0]
            while coming is not None and number < last and self._coming.get(number, (None, 0.0))[0] is coming:
                del self._coming[number]
                number += 1
        return coming

    def _fetch_ahead(self, coming: _Coming, first: int, last: int) -> None:
        """Chunks [first, last) from the store, by one request, for who announced them."""
        try:
            data = self._get(first, last)
            self._cache.remember(self._stem, first, data)
        except BaseException as error:  # noqa: BLE001 - whoever reads them raises it
            coming.set_exception(error)
            return
        coming.set_result((first, data))
        self._cache.keep_later(self._stem, first, data)

    def _get(self, first: int, last: int) -> memoryview:
        start, end = first * CHUNK_BYTES, min(last * CHUNK_BYTES, self.size)
        try:
            data = self._store.get_range(self._object, start, end)
        except ObjectMissingError:
            raise self._missing() from None
        if len(data) != end - start:
            raise CorruptSegmentError(
                f"the object ends {end - start - len(data)} bytes early",
                path=self.name,
                offset=start + len(data),
                hint=REPAIR,
            )
        return data

    def _missing(self) -> SegmentMissingError:
        return SegmentMissingError("the object of a segment is missing", path=self.name, hint=REPAIR)

    def changed_error(self) -> EsdbError | None:
        """What to raise instead of a block that is not right. What was read of the object is not kept: perhaps it was
        damaged on its way.
        """
        self._cache.forget(self._stem)
        with self._lock:
            self._coming.clear()
        try:
            found = self._store.head(self._object).size_bytes
        except ObjectMissingError:
            return self._missing()
        except EsdbError:  # it cannot be told now
            return None
        if found == self.size:
            return None
        what = f"the object has {found:,} bytes, not {self.size:,}"
        return CorruptSegmentError(what, path=self.name, hint=REPAIR)

    def _forget_stale(self) -> None:
        """Let go of what nobody came for, since a scan ended early."""
        if len(self._coming) * CHUNK_BYTES >= HELD_BYTES:
            before = monotonic() - STALE_SECONDS
            self._coming = {number: each for number, each in self._coming.items() if each[1] >= before}


def _stem(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".esdb")


def _chunks(start: int, stop: int) -> range:
    """Numbers of the chunks that bytes [start, stop) lie in."""
    return range(start // CHUNK_BYTES, -(-stop // CHUNK_BYTES))


def _rows(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as rows [first, last) of neighbours."""
    at = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            yield numbers[at], numbers[end - 1] + 1
            at = end
