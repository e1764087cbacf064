"""A bounded cache on the local disk of data read from objects. It survives restarts, and is verified when it is read.

An object is cut into chunks of equal size. Adjacent chunks that were read together form a range, stored in one file:
a checksum of each chunk, then their bytes. A background thread writes the files, so that readers do not wait. Nothing
is synced: a file that a crash left incomplete fails its checksums, and is read from the store again. If the disk is
full or not writable, the cache contains less, and nothing fails.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from threading import Condition
from typing import Generic, NamedTuple, TypeVar

from aggregator.storage.files.checksum import checksum64
from aggregator.storage.files.modes import create_directory, create_file, file_mode_in

CHUNK_BYTES = 128 << 10
"""Smallest read from an object: it transfers faster than a store responds, and contains a few histories."""
MEMORY_BYTES = 32 << 20
"""Limit for the ranges read last: two blocks may share a chunk, and request it shortly after each other. The same
limit applies to data that waits to be written.
"""
FILE_CHUNKS = 64
"""Limit for the chunks of a file, which also takes at most an eighth of the cache."""
_HEADER = struct.Struct(
    "<"  # little-endian, no padding
    "8s"  # magic
    "Q"  # xxh3-64 of the range's name and the checksums that follow: the xxh3-64 of each chunk
)
_MAGIC = b"\x89ESR\r\n\x1a\n"
_NAME = re.compile(r"(\d{6,})-(\d+)")
LULL_S = 0.1
"""Delay before data that was read is written, because the reader needs the GIL and the processors more."""
_FRESH_NS = 1_000_000_000
"""A directory changed this recently may change again without a different timestamp."""

Data = bytes | memoryview
_T = TypeVar("_T")


class ChunkRange(NamedTuple):
    """Chunks [first, last) of the object named by its stem."""

    stem: str
    first: int
    last: int

    @classmethod
    def of(cls, stem: str, first: int, data: Data) -> ChunkRange:
        """The range of the chunks in `data`; only the last chunk of an object is shorter."""
        return cls(stem, first, first + -(-len(data) // CHUNK_BYTES))

    @property
    def path(self) -> str:
        """Path of its file, below the directory."""
        return f"{self.stem}/{self.first:06d}-{self.last - self.first}"


class _ChunkRanges(Generic[_T]):
    """Ranges with a value each, found by any of their chunks, in order of use."""

    def __init__(self) -> None:
        self._held: OrderedDict[ChunkRange, tuple[_T, int]] = OrderedDict()
        self._by_chunk: dict[str, dict[int, ChunkRange]] = {}
        self.size_bytes = 0

    def __contains__(self, chunk_range: ChunkRange) -> bool:
        return chunk_range in self._held

    def has(self, stem: str, number: int) -> bool:
        """Whether a chunk is present."""
        return number in self._by_chunk.get(stem, ())

    def find(self, stem: str, number: int) -> tuple[ChunkRange, _T] | None:
        """The range of a chunk, marked as just used."""
        chunk_range = self._by_chunk.get(stem, {}).get(number)
        if chunk_range is None:
            return None
        self._held.move_to_end(chunk_range)
        return chunk_range, self._held[chunk_range][0]

    def add(self, chunk_range: ChunkRange, value: _T, size_bytes: int) -> None:
        """Add a new range. Chunks that it shares with others are found in it from now on."""
        self._held[chunk_range] = value, size_bytes
        self._by_chunk.setdefault(chunk_range.stem, {}).update(
            dict.fromkeys(range(chunk_range.first, chunk_range.last), chunk_range)
        )
        self.size_bytes += size_bytes

    def drop(self, chunk_range: ChunkRange) -> None:
        """Remove a range, if present."""
        _, size_bytes = self._held.pop(chunk_range, (None, 0))
        self.size_bytes -= size_bytes
        chunks = self._by_chunk.get(chunk_range.stem, {})
        for number in range(chunk_range.first, chunk_range.last):
            if chunks.get(number) == chunk_range:
                del chunks[number]
        if not chunks:
            self._by_chunk.pop(chunk_range.stem, None)

    def oldest(self) -> ChunkRange | None:
        """The least recently used range."""
        return next(iter(self._held), None)

    def of(self, stem: str) -> list[ChunkRange]:
        """The ranges of an object."""
        return [chunk_range for chunk_range in self._held if chunk_range.stem == stem]


@cache
def _keepers(_process: int) -> ThreadPoolExecutor:
    """The threads that write cached data, for all caches of a process, which exits only when everything is written."""
    return ThreadPoolExecutor(4, thread_name_prefix="aggregator-keep")


class RangeCache:
    """Cached chunks of objects. Thread-safe."""

    def __init__(self, directory: Path, limit_bytes: int, *, read_only: bool = False) -> None:
        """directory: created on the first write. limit_bytes: of files. read_only: another process writes them."""
        self._directory, self._limit, self._read_only = directory, limit_bytes, read_only
        self._lock = Condition()
        self._files: _ChunkRanges[None] = _ChunkRanges()
        self._memory: _ChunkRanges[Data] = _ChunkRanges()
        self._waiting: OrderedDict[ChunkRange, Data] = OrderedDict()  # to be written
        self._waiting_bytes = 0
        self._writing: dict[ChunkRange, Data] = {}
        self._keeper = 0  # the process whose thread writes the waiting data, or 0 if nothing waits
        self._settling = 0  # threads in `settle`
        self._seen: dict[str, int] = {}  # in a reader: by object, the last known change of its directory
        self.hits = self.misses = 0
        self.trouble: str | None = None
        """Why the last write failed; None if it succeeded."""
        self._load_files()

    @property
    def size_bytes(self) -> int:
        """Size of the files."""
        return self._files.size_bytes

    @cached_property
    def _mode(self) -> int:
        return file_mode_in(self._directory)

    def _load_files(self) -> None:
        found: list[tuple[float, ChunkRange, int]] = []
        with contextlib.suppress(OSError):
            for folder in os.scandir(self._directory):
                found += self._files_of(folder.name) if folder.is_dir() else ()
        for _, chunk_range, size in sorted(found):
            self._files.add(chunk_range, None, size)
        if not self._read_only:
            with self._lock:
                self._shrink(self._limit)

    def _files_of(self, stem: str) -> Iterator[tuple[float, ChunkRange, int]]:
        """The files of an object: modification time, range and size of each. Deletes other files. Raises OSError."""
        for entry in os.scandir(self._directory / stem):
            name = _NAME.fullmatch(entry.name)
            if name is not None and 0 < int(name[2]) <= FILE_CHUNKS:
                status, first = entry.stat(), int(name[1])
                yield status.st_mtime, ChunkRange(stem, first, first + int(name[2])), status.st_size
            elif not self._read_only:
                Path(entry.path).unlink(missing_ok=True)

    def _reload_files(self, stem: str) -> None:
        """Check which files of an object the process that writes the cache has added."""
        with contextlib.suppress(OSError):
            changed = (self._directory / stem).stat().st_mtime_ns
            if self._seen.get(stem) == changed and time.time_ns() - changed > _FRESH_NS:
                return
            self._seen[stem] = changed
            for _, chunk_range, size in self._files_of(stem):
                if chunk_range not in self._files:
                    self._files.add(chunk_range, None, size)

    # ------------------------------------------------------------ reading

    def lacks(self, stem: str, numbers: range) -> list[int]:
        """Those of the chunks that appear to be missing."""
        with self._lock:
            missing = self._missing(stem, numbers)
            if missing and self._read_only:
                self._reload_files(stem)
                missing = self._missing(stem, missing)
            return missing

    def _missing(self, stem: str, numbers: Iterable[int]) -> list[int]:
        places = self._memory, self._files
        return [number for number in numbers if not any(place.has(stem, number) for place in places)]

    def find(self, stem: str, number: int, last: int | None = None) -> tuple[int, Data] | None:
        """A chunk of an object, with adjacent chunks up to `last` that are found with it: the number of the first one,
        which may precede it, and their bytes. None if it must be read from the store.
        """
        last = number + 1 if last is None else last
        with self._lock:
            held = self._memory.find(stem, number)
            if held is not None:
                self.hits += 1
                return held[0].first, held[1]
            if self._read_only and not self._files.has(stem, number):
                self._reload_files(stem)
            filed = self._files.find(stem, number)
        data = None if filed is None else self._read(filed[0], number, min(last, filed[0].last))
        with self._lock:
            if data is None:
                self.misses += 1
                if filed is not None:
                    self._drop(filed[0])
                return None
            self.hits += 1
            self._remember(ChunkRange.of(stem, number, data), data)
        return number, data

    # ------------------------------------------------------------ writing

    def remember(self, stem: str, first: int, data: Data) -> None:
        """Cache chunks from `first` on in memory; `keep` and `keep_later` write them to disk."""
        with self._lock:
            self._remember(ChunkRange.of(stem, first, data), data)

    def keep_later(self, stem: str, first: int, data: Data) -> None:
        """Write chunks from `first` on in the background, or now if too much data is waiting. Never raises."""
        chunk_range = ChunkRange.of(stem, first, data)
        with self._lock:
            self._remember(chunk_range, data)
            if self._read_only or chunk_range in self._waiting:
                return
            waits = self._waiting_bytes + len(data) <= MEMORY_BYTES
            if waits:
                self._waiting[chunk_range] = data
                self._waiting_bytes += len(data)
            begins = waits and self._keeper != os.getpid()
            if begins:
                self._keeper = os.getpid()
        if not waits:
            self.keep(stem, first, data)
        if begins:
            try:
                _keepers(os.getpid()).submit(self._keep_waiting)
            except RuntimeError:  # the program is ending
                self._keep_waiting()

    def _keep_waiting(self) -> None:
        """Write the waiting data after a short delay, until nothing waits."""
        try:
            with self._lock:
                self._lock.wait_for(lambda: self._settling, LULL_S)
            while (next_ := self._next_waiting()) is not None:
                self._keep(*next_)
        except BaseException:
            with self._lock:
                self._waiting.clear()
                self._next_waiting()
            raise

    def _next_waiting(self) -> tuple[ChunkRange, Data] | None:
        """The next data to write; None if nothing waits, which ends the background writing."""
        with self._lock:
            while self._waiting:
                chunk_range, data = self._waiting.popitem(last=False)
                self._waiting_bytes -= len(data)
                if self._begin(chunk_range, data):
                    return chunk_range, data
            self._waiting_bytes = self._keeper = 0
            self._lock.notify_all()
            return None

    def keep(self, stem: str, first: int, data: Data) -> None:
        """Write chunks from `first` on, dropping the least recently used ones to make room. Never raises."""
        chunk_range = ChunkRange.of(stem, first, data)
        with self._lock:
            self._remember(chunk_range, data)
            begun = self._begin(chunk_range, data)
        if begun:
            self._keep(chunk_range, data)

    def _begin(self, chunk_range: ChunkRange, data: Data) -> bool:
        """Whether this thread should write the range, because no other thread does."""
        if self._read_only or chunk_range in self._writing:
            return False
        self._writing[chunk_range] = data
        return True

    def _keep(self, chunk_range: ChunkRange, data: Data) -> None:
        """Write a range, split into files of at most the allowed size."""

        def is_wanted() -> bool:
            return self._writing.get(chunk_range) is data

        most = max(1, min(FILE_CHUNKS, self._limit // (8 * CHUNK_BYTES)))
        try:
            for first in range(chunk_range.first, chunk_range.last, most):
                start = (first - chunk_range.first) * CHUNK_BYTES
                part = memoryview(data)[start : start + most * CHUNK_BYTES]
                self._keep_file(ChunkRange.of(chunk_range.stem, first, part), part, is_wanted)
        finally:
            with self._lock:
                if is_wanted():
                    del self._writing[chunk_range]

    def _keep_file(self, chunk_range: ChunkRange, data: memoryview, is_wanted: Callable[[], bool]) -> None:
        """Write one file, and register it. is_wanted: whether it was not dropped; called under the lock."""
        size = _head_bytes(chunk_range) + len(data)
        with self._lock:
            if size > self._limit or chunk_range in self._files or not is_wanted():
                return
            self._shrink(self._limit - size)
        path = self._directory / chunk_range.path
        try:
            self._write(path, [_head(chunk_range, data), data])
            self.trouble = None
        except OSError as error:
            self.trouble = f"the cache of the store cannot be written: {error.strerror or error}"
            with self._lock:
                self._shrink(self.size_bytes * 3 // 4)  # free space for more important data
            return
        with self._lock:
            if chunk_range in self._files:  # another thread wrote it, too
                return
            if is_wanted():
                self._files.add(chunk_range, None, size)
                self._shrink(self._limit)
            else:  # it was dropped meanwhile
                path.unlink(missing_ok=True)

    def settle(self) -> None:
        """Wait until all data is written."""
        with self._lock:
            if self._keeper == os.getpid():  # else nothing waits, or only in another process
                self._settling += 1
                self._lock.notify_all()
                self._lock.wait_for(lambda: not self._keeper)
                self._settling -= 1

    def forget(self, stem: str) -> None:
        """Drop all chunks of an object, because it was deleted or its data was invalid."""
        with self._lock:
            for chunk_range in self._memory.of(stem):
                self._memory.drop(chunk_range)
            for chunk_range in [each for each in self._waiting if each.stem == stem]:
                self._waiting_bytes -= len(self._waiting.pop(chunk_range))
            self._writing = {each: data for each, data in self._writing.items() if each.stem != stem}
            if not self._read_only:
                for chunk_range in self._files.of(stem):
                    self._drop(chunk_range)
                with contextlib.suppress(OSError):
                    (self._directory / stem).rmdir()

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._memory, self._files = _ChunkRanges(), _ChunkRanges()
            self._waiting.clear()
            self._writing.clear()
            self._waiting_bytes = 0
            shutil.rmtree(self._directory, ignore_errors=True)

    # ------------------------------------------------------------ files; under the lock, except reading and writing

    def _read(self, chunk_range: ChunkRange, number: int, last: int) -> memoryview | None:
        """Chunks [number, last) of a file; None if they are incomplete or damaged."""
        length = _head_bytes(chunk_range)
        try:
            file = os.open(self._directory / chunk_range.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                head = os.pread(file, length, 0)
                at = (number - chunk_range.first) * CHUNK_BYTES
                data = memoryview(os.pread(file, (last - number) * CHUNK_BYTES, length + at))
            finally:
                os.close(file)
        except OSError:
            return None
        if len(head) < length or head[: _HEADER.size] != _signed(chunk_range, head[_HEADER.size :]):
            return None
        checks = islice(
            struct.iter_unpack("<Q", head[_HEADER.size :]), number - chunk_range.first, last - chunk_range.first
        )
        return data if [check for (check,) in checks] == _checks(data) else None

    def _write(self, path: Path, parts: list[bytes | memoryview]) -> None:
        """Write a file. Its checksums show whether it is complete. Raises OSError."""
        flags = os.O_WRONLY | os.O_TRUNC
        try:
            file = create_file(path, flags, self._mode)
        except FileNotFoundError:
            create_directory(path.parent)
            file = create_file(path, flags, self._mode)
        try:
            if os.writev(file, parts) < sum(map(len, parts)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)

    def _remember(self, chunk_range: ChunkRange, data: Data) -> None:
        if chunk_range not in self._memory:
            self._memory.add(chunk_range, data, len(data))
            while self._memory.size_bytes > MEMORY_BYTES and (oldest := self._memory.oldest()) is not None:
                self._memory.drop(oldest)

    def _drop(self, chunk_range: ChunkRange) -> None:
        if chunk_range in self._files:
            self._files.drop(chunk_range)
            if not self._read_only:
                with contextlib.suppress(OSError):
                    (self._directory / chunk_range.path).unlink()

    def _shrink(self, limit_bytes: int) -> None:
        while self.size_bytes > limit_bytes and (oldest := self._files.oldest()) is not None:
            self._drop(oldest)


def _head_bytes(chunk_range: ChunkRange) -> int:
    return _HEADER.size + 8 * (chunk_range.last - chunk_range.first)


def _head(chunk_range: ChunkRange, data: Data) -> bytes:
    """The header and checksums that precede the bytes of a range."""
    checks = _checks(data)
    stored = struct.pack(f"<{len(checks)}Q", *checks)
    return _signed(chunk_range, stored) + stored


def _signed(chunk_range: ChunkRange, checks: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, checksum64(chunk_range.path.encode() + checks))


def _checks(data: Data) -> list[int]:
    """The checksum of each chunk."""
    view = memoryview(data)
    return [checksum64(view[at : at + CHUNK_BYTES]) for at in range(0, len(view), CHUNK_BYTES)]
