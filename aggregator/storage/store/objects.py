"""Segments as objects of a catalog's store: their names, and reading them by ranges."""

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
"""The number of the first chunk of a request, and the chunks' bytes."""
_Segment = TypeVar("_Segment", "SegmentInfo", "StoredSegment")
HELD_BYTES = 64 << 20
"""Limit for the chunks of a source that are fetched ahead and not read yet."""
OPENING_BYTES = 32 << 10
"""Bytes at the end of a file that opening it reads."""
STALE_SECONDS = 30.0
FETCH_THREADS = 16
PATIENCE_S = 10.0
"""How long a request is retried: not long, because a reader waits for it, and upkeep retries uploads."""
_NAME = re.compile(r"segments/\d{6}/(\d{12})-([0-9a-f]{16})\.esdb")
REPAIR = "see `aggregator store verify`; restore an earlier version of the object, or accept the loss of its events"


def object_name(segment: SegmentInfo | StoredSegment) -> str:
    """The name of a segment's object below the store's prefix."""
    folder = segment.number // SEGMENTS_IN_A_FOLDER
    return f"{FOLDER}{folder:06d}/{segment.number:012d}-{segment.checksum:016x}.esdb"


def parse_name(name: str) -> tuple[int, int] | None:
    """The number and checksum of the segment in an object, from its name; None for other objects."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2], 16))


def readable_place(settings: StoreSettings, segment: SegmentInfo | StoredSegment) -> str:
    """The location of a segment's object for `esformat.open` in any process: a path or a URI, not percent-encoded."""
    address = unquote(f"{settings.address}/{object_name(segment)}")
    scheme, _, rest = address.partition("://")
    if scheme == "file":
        return rest
    if scheme == "az":
        account, container, path = rest.split("/", 2)
        return f"abfs://{container}@{account}.dfs.core.windows.net/{path}"
    return address


def segment_sizes(store: Store) -> dict[str, int]:
    """The size in bytes of each segment object in a store, by name."""
    return {found.name: found.size_bytes for found in store.list(FOLDER) if parse_name(found.name) is not None}


def open_store(address: str, lease_s: float) -> Store:
    """A store for a process that holds or awaits a lease: no request takes too long to renew it in time."""
    from aggregator.storage.store.client import Store  # here: obstore is an optional dependency

    return Store(address, timeout_s=max(1.0, min(20.0, lease_s / 2)), patience_s=lease_s / 3)


@cache
def _fetchers(_process: int) -> ThreadPoolExecutor:
    """The threads that fetch ahead, one pool per process, because threads do not survive a fork."""
    return ThreadPoolExecutor(FETCH_THREADS, thread_name_prefix="aggregator-fetch")


class Objects:
    """The segments of a catalog in its store, if it has one. Thread-safe."""

    def __init__(self, settings: Callable[[], StoreSettings | None], directory: Path, *, read_only: bool) -> None:
        """settings: returns those of the store. directory: of the cache. read_only: another process writes it."""
        self._settings, self._directory, self._read_only = settings, directory, read_only
        self._lock = Lock()
        self._store: Store | None = None
        self._cache: RangeCache | None = None

    @property
    def settings(self) -> StoreSettings | None:
        """The settings of the store; None if the catalog has none."""
        return self._settings()

    @property
    def is_open(self) -> bool:
        """Whether the store has been used."""
        return self._store is not None

    @property
    def store(self) -> Store:
        """The store, which must be configured. Raises InvalidRequestError for an invalid address."""
        self._open()
        assert self._store is not None
        return self._store

    @property
    def cache(self) -> RangeCache:
        """The cache of data read from the store."""
        self._open()
        assert self._cache is not None
        return self._cache

    @property
    def cached_bytes(self) -> int:
        """Size of the cache on disk."""
        return 0 if self._cache is None else self._cache.size_bytes

    def _open(self) -> None:
        if self._store is None:
            with self._lock:
                settings = self._settings()
                if self._store is None and settings is not None:
                    from aggregator.storage.store.client import Store  # here: obstore is an optional dependency

                    self._cache = RangeCache(self._directory, settings.cache_bytes, read_only=self._read_only)
                    self._store = Store(settings.address, patience_s=PATIENCE_S)

    def source(self, segment: SegmentInfo | StoredSegment) -> ObjectSource | None:
        """The bytes of a segment in the store; None without a store. Sends no request yet."""
        if self._settings() is None:
            return None
        return ObjectSource(self.store, self.cache, object_name(segment), segment.size_bytes)

    def lacking(self, segments: Iterable[_Segment]) -> list[_Segment]:
        """Those of the segments that the store does not have in the right size. Raises StoreError.

        Segments missing from the list are checked individually, because some stores list recent objects late.
        """
        there = segment_sizes(self.store)
        return [each for each in segments if there.get(object_name(each)) != each.size_bytes and not self._has(each)]

    def _has(self, segment: SegmentInfo | StoredSegment) -> bool:
        try:
            return self.store.head(object_name(segment)).size_bytes == segment.size_bytes
        except ObjectMissingError:
            return False

    def is_whole(self, segment: SegmentInfo | StoredSegment, look: Callable[[], None] = lambda: None) -> bool:
        """Whether the object of a segment has the right bytes. Reads all of it. look: called now and then.

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
        """Cache the part of a segment that opening reads, from a file that is about to be deleted. Raises OSError."""
        first = max(0, segment.size_bytes - OPENING_BYTES) // CHUNK_BYTES
        with path.open("rb") as file:
            file.seek(first * CHUNK_BYTES)
            self.cache.keep(_stem(object_name(segment)), first, file.read())

    def forget(self, segment: SegmentInfo | StoredSegment) -> None:
        """Remove a segment from the cache."""
        if self._cache is not None:
            self._cache.forget(_stem(object_name(segment)))

    def settle(self) -> None:
        """Wait until everything read from the store is cached."""
        if self._cache is not None:
            self._cache.settle()


class ObjectSource:
    """An object as a source of bytes. Chunks are read from the cache; each range of adjacent missing chunks takes one
    request. Other threads fetch announced chunks ahead.
    """

    hint = REPAIR

    def __init__(self, store: Store, ranges: RangeCache, name: str, size: int) -> None:
        """size: of the object, according to the manifest."""
        self._store, self._cache, self._object, self.size = store, ranges, name, size
        self.name = store.path_of(name)
        self._stem = _stem(name)
        self._lock = Lock()
        self._coming: dict[int, tuple[_Coming, float]] = {}  # by chunk, with the time of the request

    def will_read(self, start: int, stop: int) -> None:
        """Start fetching the missing parts of bytes [start, stop), because they will be read soon."""
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
        """Whether bytes [start, stop) appear to be in the cache."""
        return not self._cache.lacks(self._stem, _chunks(start, stop))

    def read_at(self, offset: int, length: int) -> bytes:
        """Bytes [offset, offset + length). Raises CorruptSegmentError, SegmentMissingError, StoreError."""
        if not length:
            return b""
        if offset + length > self.size:
            raise CorruptSegmentError("the object ends early", path=self.name, offset=self.size)
        at, end, parts = offset, offset + length, []
        while at < end:
            first, data = self._chunk_range(at // CHUNK_BYTES, -(-end // CHUNK_BYTES))
            start = at - first * CHUNK_BYTES
            parts.append(memoryview(data)[start : start + end - at])
            at += len(parts[-1])
        return b"".join(parts)

    def _chunk_range(self, number: int, last: int) -> tuple[int, Data]:
        """A chunk, with adjacent chunks that are found with it: the number of the first one, and their bytes. Chunks up
        to `last` are needed next. Raises as `read_at`.
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
        """The pending request for a chunk, if it was announced. Removes the chunks that are being read now."""
        with self._lock:
            coming = self._coming.get(number, (None, 0.0))[0]
            while coming is not None and number < last and self._coming.get(number, (None, 0.0))[0] is coming:
                del self._coming[number]
                number += 1
        return coming

    def _fetch_ahead(self, coming: _Coming, first: int, last: int) -> None:
        """Fetch chunks [first, last) from the store in one request, for the thread that announced them."""
        try:
            data = self._get(first, last)
            self._cache.remember(self._stem, first, data)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that reads them
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
        """The error to raise instead of the one for an invalid block, if the object is missing or has the wrong size.
        The cached data of the object is dropped, because it may have been damaged in transit.
        """
        self._cache.forget(self._stem)
        with self._lock:
            self._coming.clear()
        try:
            found = self._store.head(self._object).size_bytes
        except ObjectMissingError:
            return self._missing()
        except EsdbError:  # unknown for now
            return None
        if found == self.size:
            return None
        what = f"the object has {found:,} bytes, not {self.size:,}"
        return CorruptSegmentError(what, path=self.name, hint=REPAIR)

    def _forget_stale(self) -> None:
        """Drop chunks that nobody has read, because a scan ended early."""
        if len(self._coming) * CHUNK_BYTES >= HELD_BYTES:
            before = monotonic() - STALE_SECONDS
            self._coming = {number: each for number, each in self._coming.items() if each[1] >= before}


def _stem(name: str) -> str:
    return name.rpartition("/")[2].removesuffix(".esdb")


def _chunks(start: int, stop: int) -> range:
    """Numbers of the chunks that contain bytes [start, stop)."""
    return range(start // CHUNK_BYTES, -(-stop // CHUNK_BYTES))


def _rows(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as ranges [first, last) of adjacent ones."""
    at = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            yield numbers[at], numbers[end - 1] + 1
            at = end
