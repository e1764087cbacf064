"""The cache makes each value once, stays within its memory, and is thread-safe."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from esformat.core.caches import MANY_DEAD, OVERHEAD_BYTES, Budget, Budgets, Cache


@dataclass
class Thing:
    """A value with a size."""

    size_bytes: int


ENTRY = 50 + OVERHEAD_BYTES  # memory for a value of 50 bytes


def test_made_once():
    """A second request for a key makes nothing, and `find` never does."""
    cache, made = Cache(100 * ENTRY), []

    def make():
        made.append(1)
        return Thing(50)

    assert cache.find("a") is None
    first = cache.get("a", make)
    assert cache.get("a", make) is cache.find("a") is first
    assert len(made) == 1


def test_the_oldest_goes_first():
    """The oldest values are evicted first, and no more than necessary."""
    cache = Cache(10 * ENTRY)
    for n in range(12):
        cache.get(n, lambda: Thing(50))
    assert [n for n in range(12) if cache.find(n) is None] == [0, 1]


def test_memory_is_bounded():
    """The values held never exceed the limit, whatever their sizes."""
    cache = Cache(10_000)
    for n in range(500):
        cache.get(n, lambda n=n: Thing(37 * n % 2000))
        held = [thing.size_bytes for key in range(n + 1) if (thing := cache.find(key))]
        assert sum(held) + OVERHEAD_BYTES * len(held) <= 10_000


def test_what_is_found_stays_while_its_key_is_marked():
    """`find` returns its value even if the key's hash, or another thread, evicts it meanwhile."""
    freed, asked, cache = [], [], Cache(100 * ENTRY)

    class Value:
        def __del__(self):
            freed.append(self)  # keeps it alive, so that a failure does not crash

    class Key:
        def __hash__(self):
            asked.append(1)
            if len(asked) == 2:  # once to look up, once to mark
                cache.close()
            return 1

    key = Key()
    cache.keep(key, Value(), 50)
    asked.clear()
    value = cache.find(key)
    assert (type(value), len(asked), freed) == (Value, 2, [])
    assert cache.find(key) is None


@pytest.mark.parametrize("limit", [0, 4 * ENTRY - 1])
def test_what_would_fill_the_cache_is_not_kept(limit):
    """A value that would fill the cache is not kept, so that it does not evict all others."""
    cache, made = Cache(limit), []
    for _ in range(2):
        assert cache.get("a", lambda: made.append(1) or Thing(50)).size_bytes == 50
    assert len(made) == 2


def test_kept_on_the_side():
    """`keep` adds a value made elsewhere; the first value of a key stays."""
    cache = Cache(100 * ENTRY)
    cache.keep("a", "first", 50)
    cache.keep("a", "second", 50)
    assert cache.find("a") == "first"


def test_closed():
    """A closed cache returns and keeps nothing."""
    cache = Cache(100 * ENTRY)
    cache.get("a", lambda: Thing(50))
    cache.close()
    assert cache.find("a") is None
    assert cache.get("b", lambda: Thing(50)).size_bytes == 50
    assert cache.find("b") is None


def test_an_error_is_not_kept():
    """A failure is not cached: the next request tries again."""
    cache = Cache(100 * ENTRY)

    def fail():
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        cache.get("a", fail)
    assert cache.get("a", lambda: Thing(1)).size_bytes == 1


def test_threads():
    """With many threads, few keys and a small cache, each request gets the value of its key."""
    cache = Cache(5 * ENTRY)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: (n % 13, cache.get(n % 13, lambda: Thing(n % 13)).size_bytes), range(5000)))
    assert all(key == size for key, size in found)


def test_caches_share_a_budget():
    """Caches that share a budget evict the oldest value of any of them and stay within the budget."""
    budget = Budget(10 * ENTRY)
    left, right = Cache(budget), Cache(budget)
    for n in range(6):
        left.get(n, lambda: Thing(50))
        right.get(n, lambda: Thing(50))
    assert budget.held_bytes == 10 * ENTRY
    assert [n for n in range(6) if left.find(n) is None] == [0]
    assert [n for n in range(6) if right.find(n) is None] == [0]


def test_keys_of_caches_do_not_meet():
    """The same key in different caches refers to different values."""
    budget = Budget(100 * ENTRY)
    left, right = Cache(budget), Cache(budget)
    left.keep("a", "left", 50)
    right.keep("a", "right", 50)
    assert (left.find("a"), right.find("a")) == ("left", "right")


@pytest.mark.parametrize("end", ["closed", "forgotten"])
def test_what_a_cache_held_is_free_again(end):
    """A cache that is closed or garbage-collected returns its part of the budget."""
    budget = Budget(10 * ENTRY)
    gone, kept = Cache(budget), Cache(budget)
    for n in range(8):
        gone.get(n, lambda: Thing(50))
    if end == "closed":
        gone.close()
    else:
        del gone
    for n in range(10):
        kept.get(n, lambda: Thing(50))
    assert all(kept.find(n) is not None for n in range(10))
    assert budget.held_bytes == 10 * ENTRY


def test_a_budget_does_not_remember_every_closed_cache():
    """A budget keeps only a bounded number of closed caches: opening and closing many segments costs no memory."""
    budget = Budget(1 << 30)
    for _ in range(5000):
        cache = Cache(budget)
        cache.keep("a", "value", 50)
        cache.close()
    assert budget.held_bytes == 0
    assert len(budget._queue) <= MANY_DEAD + 1


def test_a_smaller_budget_takes_effect_at_once():
    """A smaller budget evicts the oldest values immediately."""
    budget = Budget(10 * ENTRY)
    cache = Cache(budget)
    for n in range(10):
        cache.get(n, lambda: Thing(50))
    budget.resize(4 * ENTRY)
    assert [n for n in range(10) if cache.find(n) is not None] == [6, 7, 8, 9]


def test_budgets_by_kind():
    """The parts of a budget add up to the whole, and are resized together."""
    budgets = Budgets.of(3200)
    caches = [Cache(budget) for budget in budgets]
    for cache in caches:
        for n in range(30):
            cache.keep(n, "value", -150)  # an entry takes 50 bytes, overhead included
    assert budgets.held_bytes == 3200
    budgets.resize(1600)
    assert budgets.held_bytes == 1600


def test_what_is_used_stays():
    """A value that is requested often outlives values that are requested once."""
    cache, made = Cache(20 * ENTRY), []
    for number in range(1000):
        cache.get("often", lambda: made.append(1) or Thing(50))
        cache.get(number, lambda: Thing(50))
    assert len(made) <= 3  # in order of creation it was 50 times
    assert cache.find(0) is None
    assert cache.find(999) is not None


def test_everything_used_is_forgotten_in_turn():
    """If all values were used, the oldest is evicted: none is examined twice."""
    cache = Cache(20 * (OVERHEAD_BYTES + 10))
    for number in range(100):
        cache.keep(number, number, 10)
        assert all(cache.find(held) in (None, held) for held in range(number + 1))
    assert [number for number in range(100) if cache.find(number) is not None] == list(range(80, 100))
