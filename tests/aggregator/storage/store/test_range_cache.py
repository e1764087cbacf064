"""What was read of objects, kept on the disk: bounded, checked, there again after a restart."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from aggregator.storage.store import range_cache
from aggregator.storage.store.range_cache import RangeCache

LIMIT = 1 << 20


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are found in files alone."""
    monkeypatch.setattr(range_cache, "MEMORY_BYTES", 0)


def test_a_chunk_is_found_after_a_restart(tmp_path):
    cache = RangeCache(tmp_path / "cache", LIMIT)
    assert cache.find("a", 3) is None
    cache.keep("a", 3, b"bytes")
    for again in (cache, RangeCache(tmp_path / "cache", LIMIT), RangeCache(tmp_path / "cache", LIMIT, read_only=True)):
        assert again.has("a", 3)
        assert again.find("a", 3) == b"bytes"
        assert again.find("b", 3) is None is again.find("a", 2)
        assert (again.hits, again.misses) == (1, 2 + (again is cache))


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:20] + b"?" + b[21:], lambda b: b + b"?"]
)
def test_a_damaged_file_is_not_taken(tmp_path, damage):
    """It is read from the store again."""
    cache = RangeCache(tmp_path / "cache", LIMIT)
    cache.keep("a", 0, bytes(1000))
    (path,) = files(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.find("a", 0) is None
    assert (files(tmp_path), cache.size_bytes) == ([], 0)
    cache.keep("a", 0, bytes(1000))
    assert cache.find("a", 0) == bytes(1000)


@pytest.mark.usefixtures("no_memory")
def test_a_file_of_another_name_is_not_taken(tmp_path):
    """Whole as it is: it holds other bytes."""
    cache = RangeCache(tmp_path / "cache", LIMIT)
    cache.keep("a", 0, b"one")
    cache.keep("a", 1, b"two")
    one, two = files(tmp_path)
    two.replace(one)
    assert cache.find("a", 0) is None


@pytest.mark.usefixtures("no_memory")
def test_it_stays_within_its_limit(tmp_path):
    """What was not used for longest goes first, also at the next opening with a lower limit."""
    cache = RangeCache(tmp_path / "cache", 10_000)
    for number in range(20):
        cache.keep("a", number, bytes(1000))
        assert cache.find("a", 0) is not None
    assert sum(path.stat().st_size for path in files(tmp_path)) == cache.size_bytes <= 10_000
    assert [path.name for path in files(tmp_path)] == ["000000", *(f"{n:06d}" for n in range(12, 20))]
    assert RangeCache(tmp_path / "cache", 3000).size_bytes <= 3000
    assert len(files(tmp_path)) == 2


def test_none_at_all(tmp_path):
    cache = RangeCache(tmp_path / "cache", 0)
    cache.keep("a", 0, b"bytes")
    assert files(tmp_path) == []


@pytest.mark.usefixtures("no_memory")
def test_a_full_disk(tmp_path, monkeypatch):
    """Costs what is kept, nothing else; the cache then makes room."""
    cache = RangeCache(tmp_path / "cache", LIMIT)
    for number in range(8):
        cache.keep("a", number, bytes(1000))

        def refuse(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(Path, "replace", refuse)
        cache.keep("a", 8, bytes(1000))
    assert "No space left" in str(cache.trouble)
    assert cache.find("a", 8) is None
    assert 0 < len(files(tmp_path)) < 8
    cache.keep("a", 8, bytes(1000))
    assert (cache.trouble, cache.find("a", 8)) == (None, bytes(1000))


def test_who_only_reads_changes_nothing(tmp_path):
    cache = RangeCache(tmp_path / "cache", LIMIT)
    cache.keep("a", 0, b"bytes")
    reader = RangeCache(tmp_path / "cache", 1, read_only=True)
    reader.keep("a", 1, b"more")
    reader.forget("a")
    assert len(files(tmp_path)) == 1
    cache.keep("a", 2, b"later")
    assert reader.has("a", 2)
    assert reader.find("a", 2) == b"later"


def test_an_object_is_forgotten(tmp_path):
    cache = RangeCache(tmp_path / "cache", LIMIT)
    for stem in ("a", "b"):
        cache.keep(stem, 0, b"bytes")
    cache.forget("a")
    assert (cache.find("a", 0), cache.find("b", 0)) == (None, b"bytes")
    assert [path.parent.name for path in files(tmp_path)] == ["b"]


def test_leftovers_of_a_crash_go(tmp_path):
    cache = RangeCache(tmp_path / "cache", LIMIT)
    cache.keep("a", 0, b"bytes")
    (tmp_path / "cache" / "a" / ".000001.partial").write_bytes(b"half")
    RangeCache(tmp_path / "cache", LIMIT)
    assert [path.name for path in files(tmp_path)] == ["000000"]
