"""The cache: what was made is not made again, memory stays bounded, threads do no harm."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from esformat.cache import OVERHEAD_BYTES, Cache


@dataclass
class Thing:
    """Something of a size."""

    size_bytes: int


ENTRY = 50 + OVERHEAD_BYTES  # what a thing of 50 bytes takes


def test_made_once():
    """A second question for the same key makes nothing; `find` never does."""
    cache, made = Cache(100 * ENTRY), []

    def make():
        made.append(1)
        return Thing(50)

    assert cache.find("a") is None
    first = cache.get("a", make)
    assert cache.get("a", make) is cache.find("a") is first
    assert len(made) == 1


def test_the_oldest_goes_first():
    """What was made first is forgotten first, and no more than must be."""
    cache = Cache(10 * ENTRY)
    for n in range(12):
        cache.get(n, lambda: Thing(50))
    assert [n for n in range(12) if cache.find(n) is None] == [0, 1]


def test_memory_is_bounded():
    """Whatever the sizes, what is held never adds up to more than the limit."""
    cache = Cache(10_000)
    for n in range(500):
        cache.get(n, lambda n=n: Thing(37 * n % 2000))
        held = [thing.size_bytes for key in range(n + 1) if (thing := cache.find(key))]
        assert sum(held) + OVERHEAD_BYTES * len(held) <= 10_000


@pytest.mark.parametrize("limit", [0, 4 * ENTRY - 1])
def test_what_would_fill_the_cache_is_not_kept(limit):
    """One large thing does not push out all others."""
    cache, made = Cache(limit), []
    for _ in range(2):
        assert cache.get("a", lambda: made.append(1) or Thing(50)).size_bytes == 50
    assert len(made) == 2


def test_kept_on_the_side():
    """What was made elsewhere; the first value of a key stays."""
    cache = Cache(100 * ENTRY)
    cache.keep("a", "first", 50)
    cache.keep("a", "second", 50)
    assert cache.find("a") == "first"


def test_closed():
    """It gives and keeps nothing any more."""
    cache = Cache(100 * ENTRY)
    cache.get("a", lambda: Thing(50))
    cache.close()
    assert cache.find("a") is None
    assert cache.get("b", lambda: Thing(50)).size_bytes == 50
    assert cache.find("b") is None


def test_an_error_is_not_kept():
    """What could not be made is tried again."""
    cache = Cache(100 * ENTRY)

    def fail():
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        cache.get("a", fail)
    assert cache.get("a", lambda: Thing(1)).size_bytes == 1


def test_threads():
    """Many threads, few keys, a small cache: everybody gets the thing of their key."""
    cache = Cache(5 * ENTRY)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: (n % 13, cache.get(n % 13, lambda: Thing(n % 13)).size_bytes), range(5000)))
    assert all(key == size for key, size in found)
