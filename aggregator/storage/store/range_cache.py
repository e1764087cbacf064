"""A bounded cache on the local disk of what was read of objects. It survives restarts, and is checked as it is read.

An object is cut into chunks of one size; each that was read is a file: a header, and its bytes. Nothing is synced: what
a crash leaves half written is known by its checksum, and read from the store again. Where the disk is full or cannot be
written, the cache holds less, and nothing fails.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from threading import Lock

from aggregator.storage.files.checksum import hasher64
from aggregator.storage.files.layout import PARTIAL, partial_of
from aggregator.storage.files.modes import create_directory, create_file, file_mode_in

CHUNK_BYTES = 128 << 10
"""What is read of an object at least: in less time than a store takes to answer at all, as much as a few histories."""
MEMORY_BYTES = 32 << 20
"""Of chunks that were read last: those that two blocks share are asked for twice in a moment."""
_HEADER = struct.Struct(
    "<"  # little-endian, no padding
    "8s"  # magic
    "Q"  # xxh3-64 of the chunk's name and its bytes
)
_MAGIC = b"\x89ESR\r\n\x1a\n"
_Key = tuple[str, int]


class RangeCache:
    """Chunks of objects. Safe to share between threads."""

    def __init__(self, directory: Path, limit_bytes: int, *, read_only: bool = False) -> None:
        """directory: made when something is kept. limit_bytes: of the files. read_only: another process keeps it."""
        self._directory, self._limit, self._read_only = directory, limit_bytes, read_only
        self._lock = Lock()
        self._sizes: OrderedDict[_Key, int] = OrderedDict()  # of files, the one that was used last at the end
        self._memory: OrderedDict[_Key, bytes] = OrderedDict()
        self._held = 0
        self.size_bytes = 0
        self.hits = self.misses = 0
        self.trouble: str | None = None
        """Why nothing could be kept when it was last tried."""
        self._look()

    @cached_property
    def _mode(self) -> int:
        return file_mode_in(self._directory)

    def _look(self) -> None:
        found: list[tuple[float, _Key, int]] = []
        with contextlib.suppress(OSError):
            for folder in os.scandir(self._directory):
                for entry in os.scandir(folder.path) if folder.is_dir() else ():
                    if entry.name.isdecimal():
                        status = entry.stat()
                        found.append((status.st_mtime, (folder.name, int(entry.name)), status.st_size))
                    elif entry.name.endswith(PARTIAL) and not self._read_only:
                        Path(entry.path).unlink(missing_ok=True)
        for _, key, size in sorted(found):
            self._sizes[key] = size
            self.size_bytes += size
        if not self._read_only:
            with self._lock:
                self._shrink(self._limit)

    def has(self, stem: str, number: int) -> bool:
        """Whether a chunk seems to be there."""
        return (stem, number) in self._memory or (stem, number) in self._sizes or self._is_there(stem, number)

    def _is_there(self, stem: str, number: int) -> bool:
        """Whether another process, which keeps the cache, has it by now."""
        return self._read_only and self._path((stem, number)).exists()

    def find(self, stem: str, number: int) -> bytes | None:
        """A chunk of an object; None where it must be read from the store."""
        key = (stem, number)
        with self._lock:
            data = self._memory.get(key)
            if data is not None:
                self._memory.move_to_end(key)
                self.hits += 1
                return data
            there = key in self._sizes
        if there or self._is_there(stem, number):
            data = self._read(key)
        with self._lock:
            if data is None:
                self.misses += 1
                self._drop(key)
                return None
            self.hits += 1
            if key in self._sizes:
                self._sizes.move_to_end(key)
            self._remember(key, data)
        return data

    def remember(self, stem: str, number: int, data: bytes) -> None:
        """Have a chunk at hand in memory; `keep` brings it to the disk."""
        with self._lock:
            self._remember((stem, number), data)

    def keep(self, stem: str, number: int, data: bytes) -> None:
        """Keep a chunk, and for it let go of those that were not used for longest. Never raises."""
        key, size = (stem, number), len(data) + _HEADER.size
        with self._lock:
            self._remember(key, data)
            if self._read_only or size > self._limit or key in self._sizes:
                return
            self._shrink(self._limit - size)
            self._sizes[key] = size
            self.size_bytes += size
        try:
            self._write(self._path(key), key, data)
            self.trouble = None
        except OSError as error:
            self.trouble = f"what is read of the store cannot be kept: {error.strerror or error}"
            with self._lock:
                self._drop(key)
                self._shrink(self.size_bytes * 3 // 4)  # room for what matters more

    def forget(self, stem: str) -> None:
        """Let go of all chunks of an object, as it is gone or did not turn out well."""
        with self._lock:
            for key in [key for key in self._memory if key[0] == stem]:
                self._held -= len(self._memory.pop(key))
            if not self._read_only:
                for key in [key for key in self._sizes if key[0] == stem]:
                    self._drop(key)
                with contextlib.suppress(OSError):
                    (self._directory / stem).rmdir()

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._memory.clear()
            self._sizes.clear()
            self._held = self.size_bytes = 0
            shutil.rmtree(self._directory, ignore_errors=True)

    # ------------------------------------------------------------ files; under the lock, but for reading and writing

    def _path(self, key: _Key) -> Path:
        return self._directory / key[0] / f"{key[1]:06d}"

    def _read(self, key: _Key) -> bytes | None:
        try:
            with self._path(key).open("rb", buffering=0) as file:
                header, data = file.read(_HEADER.size), file.read()
        except OSError:
            return None
        return data if header == _header(key, data) else None

    def _write(self, path: Path, key: _Key, data: bytes) -> None:
        create_directory(path.parent)
        partial = partial_of(path)
        try:
            with os.fdopen(create_file(partial, os.O_WRONLY, self._mode), "wb") as file:
                file.write(_header(key, data))
                file.write(data)
            partial.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise

    def _remember(self, key: _Key, data: bytes) -> None:
        if key not in self._memory:
            self._memory[key] = data
            self._held += len(data)
            while self._held > MEMORY_BYTES:
                self._held -= len(self._memory.popitem(last=False)[1])

    def _drop(self, key: _Key) -> None:
        size = self._sizes.pop(key, None)
        if size is not None:
            self.size_bytes -= size
            with contextlib.suppress(OSError):
                self._path(key).unlink()

    def _shrink(self, limit_bytes: int) -> None:
        while self.size_bytes > limit_bytes and self._sizes:
            self._drop(next(iter(self._sizes)))


def _header(key: _Key, data: bytes) -> bytes:
    hasher = hasher64()
    hasher.update(f"{key[0]}/{key[1]}/".encode())
    hasher.update(data)
    return _HEADER.pack(_MAGIC, hasher.intdigest())
