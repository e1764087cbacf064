"""Cached ranges of objects on disk: bounded, checked, available after a restart."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from threading import Event, Thread

import pytest

from aggregator.storage.store import range_cache
from aggregator.storage.store.range_cache import CHUNK_BYTES, RangeCache

LIMIT = 1 << 20


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find chunks in files only."""
    monkeypatch.setattr(range_cache, "MEMORY_BYTES", 0)


def test_a_chunk_is_found_after_a_restart(tmp_path):
    cache = RangeCache(tmp_path / "cache", LIMIT)
    assert cache.find("a", 3) is None
    cache.keep("a", 3, b"bytes")
    for again in (cache, RangeCache(tmp_path / "cache", LIMIT), RangeCache(tmp_path / "cache", LIMIT, read_only=True)):
        assert again.lacks("a", range(2, 5)) == [2, 4]
        assert again.find("a", 3) == (3, b"bytes")
        assert again.find("b", 3) is None is again.find("a", 2)
        assert (again.hits, again.misses) == (1, 2 + (again is cache))


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:20] + b"?" + b[21:], lambda b: b + b"?"]
)
def test_a_damaged_file_is_not_taken(tmp_path, damage):
    """A damaged file is ignored, and its chunk is read from the store again."""
    cache = RangeCache(tmp_path / "cache", LIMIT)
    cache.keep("a", 0, bytes(1000))
    (path,) = files(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.find("a", 0) is None
    assert (files(tmp_path), cache.size_bytes) == ([], 0)
    cache.keep("a", 0, bytes(1000))
    assert cache.find("a", 0) == (0, bytes(1000))


@pytest.mark.usefixtures("no_memory")
def test_a_file_of_another_name_is_not_taken(tmp_path):
    """An intact file under another's name is ignored, because it contains other bytes."""
    cache = RangeCache(tmp_path / "cache", LIMIT)
    cache.keep("a", 0, b"one")
    cache.keep("a", 1, b"two")
    one, two = files(tmp_path)
    two.replace(one)
    assert cache.find("a", 0) is None


@pytest.mark.usefixtures("no_memory")
def test_it_stays_within_its_limit(tmp_path):
    """The least recently used chunks are removed first, also on reopening with a lower limit."""
    cache = RangeCache(tmp_path / "cache", 10_000)
    for number in range(20):
        cache.keep("a", number, bytes(1000))
        assert cache.find("a", 0) is not None
    assert sum(path.stat().st_size for path in files(tmp_path)) == cache.size_bytes <= 10_000
    assert [path.name for path in files(tmp_path)] == ["000000-1", *(f"{n:06d}-1" for n in range(12, 20))]
    assert RangeCache(tmp_path / "cache", 3000).size_bytes <= 3000
    assert len(files(tmp_path)) == 2


def test_none_at_all(tmp_path):
    cache = RangeCache(tmp_path / "cache", 0)
    cache.keep("a", 0, b"bytes")
    assert files(tmp_path) == []


@pytest.mark.usefixtures("no_memory")
def test_a_full_disk(tmp_path, monkeypatch):
    """A full disk only costs cached data; the cache then makes room."""
    cache = RangeCache(tmp_path / "cache", LIMIT)
    for number in range(8):
        cache.keep("a", number, bytes(1000))

        def refuse(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "writev", refuse)
        cache.keep("a", 8, bytes(1000))
    assert "No space left" in str(cache.trouble)
    assert cache.find("a", 8) is None
    assert 0 < len(files(tmp_path)) < 8
    cache.keep("a", 8, bytes(1000))
    assert (cache.trouble, cache.find("a", 8)) == (None, (8, bytes(1000)))


def test_who_only_reads_changes_nothing(tmp_path):
    cache = RangeCache(tmp_path / "cache", LIMIT)
    cache.keep("a", 0, b"bytes")
    reader = RangeCache(tmp_path / "cache", 1, read_only=True)
    reader.keep("a", 1, b"more")
    reader.forget("a")
    assert len(files(tmp_path)) == 1
    cache.keep("a", 2, b"later")
    assert reader.lacks("a", range(1, 3)) == [1]
    assert reader.find("a", 2) == (2, b"later")


def test_an_object_is_forgotten(tmp_path):
    cache = RangeCache(tmp_path / "cache", LIMIT)
    for stem in ("a", "b"):
        cache.keep(stem, 0, b"bytes")
    cache.forget("a")
    assert (cache.find("a", 0), cache.find("b", 0)) == (None, (0, b"bytes"))
    assert [path.parent.name for path in files(tmp_path)] == ["b"]


def test_leftovers_of_a_crash_go(tmp_path):
    """Half-written files are recognised when read; files with other names are deleted immediately."""
    cache = RangeCache(tmp_path / "cache", LIMIT)
    cache.keep("a", 0, bytes(1000))
    half = tmp_path / "cache" / "a" / "000001-1"
    half.write_bytes((tmp_path / "cache" / "a" / "000000-1").read_bytes()[:500])
    (tmp_path / "cache" / "a" / ".000002.partial").write_bytes(b"half")
    again = RangeCache(tmp_path / "cache", LIMIT)
    assert [path.name for path in files(tmp_path)] == ["000000-1", "000001-1"]
    assert again.find("a", 1) is None
    assert [path.name for path in files(tmp_path)] == ["000000-1"]


def chunks(count: int, last_bytes: int = CHUNK_BYTES) -> bytes:
    """Chunks with different contents, of which the last may be short."""
    return b"".join(bytes([number]) * CHUNK_BYTES for number in range(1, count)) + bytes([count]) * last_bytes


@pytest.mark.usefixtures("no_memory")
def test_a_chunk_range_is_one_file(tmp_path):
    """A row of chunks is one file, of which any part can be found without reading more."""
    cache, data = RangeCache(tmp_path / "cache", 16 * LIMIT), chunks(5, 77)
    cache.keep("a", 10, memoryview(data))
    assert [path.name for path in files(tmp_path)] == ["000010-5"]
    for again in (cache, RangeCache(tmp_path / "cache", 16 * LIMIT)):
        assert again.lacks("a", range(8, 17)) == [8, 9, 15, 16]
        for first in range(10, 15):
            for last in range(first + 1, 17):
                part = data[(first - 10) * CHUNK_BYTES : (last - 10) * CHUNK_BYTES]
                assert again.find("a", first, last) == (first, part)


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("at", [3, 17, 55, 56, 57 + 2 * CHUNK_BYTES])
def test_a_chunk_range_with_a_byte_flipped(tmp_path, at):
    """A flipped byte in the file's description invalidates all of it; in a chunk, that chunk."""
    cache = RangeCache(tmp_path / "cache", 16 * LIMIT)
    cache.keep("a", 0, chunks(5))
    (path,) = files(tmp_path)
    stored = bytearray(path.read_bytes())
    stored[at] ^= 1
    path.write_bytes(stored)
    damaged = range(5) if at < 56 else [(at - 56) // CHUNK_BYTES]
    for number in set(range(5)) - set(damaged):
        assert cache.find("a", number) is not None
    assert cache.find("a", damaged[0]) is None
    assert files(tmp_path) == []


@pytest.mark.usefixtures("no_memory")
def test_a_small_cache_has_small_files(tmp_path):
    """A small cache has small files, so that an eviction never removes everything."""
    cache, data = RangeCache(tmp_path / "cache", 16 * CHUNK_BYTES), chunks(20)
    cache.keep("a", 0, data)
    assert {path.name.partition("-")[2] for path in files(tmp_path)} == {"2"}
    assert 12 * CHUNK_BYTES < cache.size_bytes <= 16 * CHUNK_BYTES
    assert cache.find("a", 18, 20) == (18, data[18 * CHUNK_BYTES :])


def test_chunk_ranges_that_overlap(tmp_path, monkeypatch):
    """With overlapping files every chunk is found, and the size counts all files."""
    monkeypatch.setattr(range_cache, "MEMORY_BYTES", 0)
    cache, data = RangeCache(tmp_path / "cache", 16 * LIMIT), chunks(6)
    cache.keep("a", 0, data[: 4 * CHUNK_BYTES])
    cache.keep("a", 2, data[2 * CHUNK_BYTES :])
    for number in range(6):
        assert cache.find("a", number) == (number, data[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES])
    assert cache.size_bytes == sum(path.stat().st_size for path in files(tmp_path))


def slowly(monkeypatch: pytest.MonkeyPatch) -> tuple[Event, Event]:
    """Files are written when the second event is set; the first event signals that a write is about to start."""
    begun, go, write = Event(), Event(), os.writev

    def writev(file, parts):
        begun.set()
        assert go.wait(30)
        return write(file, parts)

    monkeypatch.setattr(os, "writev", writev)
    return begun, go


def test_nobody_waits_for_the_disk(tmp_path, monkeypatch):
    """Chunks are found immediately and written by another thread; `settle` waits for that."""
    cache = RangeCache(tmp_path / "cache", 16 * LIMIT)
    begun, go = slowly(monkeypatch)
    for number in range(3):
        cache.keep_later("a", number, b"bytes")
        assert cache.find("a", number) == (number, b"bytes")
    assert begun.wait(30)
    assert cache.size_bytes == 0
    go.set()
    cache.settle()
    assert [path.name for path in files(tmp_path)] == ["000000-1", "000001-1", "000002-1"]
    assert RangeCache(tmp_path / "cache", LIMIT).find("a", 1) == (1, b"bytes")


def test_readers_go_first(tmp_path, monkeypatch):
    """Writing leaves readers a moment first, unless somebody waits for it."""
    monkeypatch.setattr(range_cache, "LULL_S", 3600.0)
    cache = RangeCache(tmp_path / "cache", 16 * LIMIT)
    cache.keep_later("a", 0, b"bytes")
    time.sleep(0.05)
    assert files(tmp_path) == []
    cache.settle()
    assert [path.name for path in files(tmp_path)] == ["000000-1"]


def test_a_writer_that_fails(tmp_path, monkeypatch):
    """If the writing thread fails, as for lack of memory, nobody waits forever, and later chunks are kept."""
    cache = RangeCache(tmp_path / "cache", 16 * LIMIT)

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(os, "writev", fail)
        for number in range(2):
            cache.keep_later("a", number, b"bytes")
        cache.settle()
    assert files(tmp_path) == []
    cache.keep_later("a", 2, b"bytes")
    cache.settle()
    assert [path.name for path in files(tmp_path)] == ["000002-1"]


def test_what_waits_is_bounded(tmp_path, monkeypatch):
    """The queue of writes is bounded: if reading is faster than writing, the reader writes."""
    monkeypatch.setattr(range_cache, "MEMORY_BYTES", 2 * CHUNK_BYTES)
    cache = RangeCache(tmp_path / "cache", 16 * LIMIT)
    begun, go = slowly(monkeypatch)
    cache.keep_later("a", 0, chunks(1))
    assert begun.wait(30)
    for number in (1, 2):
        cache.keep_later("a", number, chunks(1))
    waiting = Thread(target=cache.keep_later, args=("a", 3, chunks(1)))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    go.set()
    waiting.join()
    cache.settle()
    assert [path.name for path in files(tmp_path)] == [f"{number:06d}-1" for number in range(4)]


@pytest.mark.parametrize("forget", [lambda cache: cache.forget("a"), lambda cache: cache.clear()])
def test_what_is_forgotten_is_not_written(tmp_path, monkeypatch, forget):
    """A forgotten object's chunks are not written, neither queued ones nor the one in progress; later ones are."""
    cache = RangeCache(tmp_path / "cache", 16 * LIMIT)
    begun, go = slowly(monkeypatch)
    for number in range(3):
        cache.keep_later("a", number, b"damaged")
    assert begun.wait(30)
    forget(cache)
    assert [cache.find("a", number) for number in range(3)] == [None] * 3
    go.set()
    cache.keep_later("a", 2, b"bytes")
    cache.settle()
    again = RangeCache(tmp_path / "cache", LIMIT)
    assert [again.find("a", number) for number in range(3)] == [None, None, (2, b"bytes")]
    assert [path.name for path in files(tmp_path)] == ["000002-1"]


@pytest.mark.usefixtures("no_memory")
def test_who_only_reads_leaves_damage_alone(tmp_path):
    """A cache opened only for reading leaves damaged files, which another process may be writing."""
    cache = RangeCache(tmp_path / "cache", LIMIT)
    cache.keep("a", 0, b"bytes")
    reader = RangeCache(tmp_path / "cache", LIMIT, read_only=True)
    (path,) = files(tmp_path)
    stored = path.read_bytes()
    path.write_bytes(stored[:-1])
    assert reader.find("a", 0) is None
    path.write_bytes(stored)
    assert cache.find("a", 0) == (0, b"bytes")
