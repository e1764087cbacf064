"""The bounded pool: what runs, what waits, what is refused; iterators pulled at their reader's pace."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import pytest

from aggregator import OverloadedError
from aggregator.server.work import WorkPool


@pytest.fixture
def pool():
    made = WorkPool("read", 1, 1)
    yield made
    made.close()


def test_room(pool):
    """One runs, one waits, the third is refused at once; a call that nobody waits for still counts while it runs."""
    gate = threading.Event()

    async def work():
        first = asyncio.create_task(pool.run(gate.wait, 60))
        second = asyncio.create_task(pool.run(lambda: "done"))
        await asyncio.sleep(0)  # both are on their way
        with pytest.raises(OverloadedError) as refused:
            pool.check_room()
        assert refused.value.retry_after_s > 0
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert (pool.busy, pool.shed) == (2, 1)
        gate.set()
        assert await second == "done"
        async with asyncio.timeout(60):
            while pool.busy:
                await asyncio.sleep(0.001)

    asyncio.run(work())


def test_patience():
    """Where calls take long, fewer may wait: about as many as are done within the patience."""
    pool = WorkPool("append", 2, 100, patience_s=0.2)
    gate = threading.Event()

    async def work():
        for _ in range(40):
            await pool.run(lambda: None)
        quick = [asyncio.create_task(pool.run(gate.wait, 60)) for _ in range(30)]
        await asyncio.sleep(0)
        assert pool.busy == 30
        pool.check_room()
        gate.set()
        await asyncio.gather(*quick)
        for _ in range(30):
            await pool.run(time.sleep, 0.02)
        gate.clear()
        slow = []
        with contextlib.suppress(OverloadedError):
            while len(slow) < 60:
                pool.check_room()
                slow.append(asyncio.create_task(pool.run(gate.wait, 60)))
                await asyncio.sleep(0)
        assert 3 <= len(slow) <= 30
        gate.set()
        await asyncio.gather(*slow)

    asyncio.run(work())
    pool.close()


@pytest.mark.parametrize("length", [0, 1, 2, 3, 9])
def test_pull(pool, length):
    """All items come in order, as many as are asked for are made, and the iterator is closed."""
    made, closed = [], []

    def items():
        try:
            for number in range(length):
                made.append(number)
                yield number
        finally:
            closed.append(threading.current_thread().name)

    async def take(count):
        found = []
        pulled = pool.pull(items)
        async for item in pulled:
            found.append(item)
            if len(found) == count:
                break
        await pulled.aclose()
        return found

    assert asyncio.run(take(99)) == list(range(length))
    assert closed == ["read-_0"]  # by a thread of the pool
    made.clear()
    assert asyncio.run(take(1)) == list(range(min(length, 1)))
    assert len(made) <= 2
    assert closed == ["read-_0"] * 2


def test_failures_are_raised(pool):
    """What goes wrong before the first item, or later, reaches the reader."""

    def broken(good):
        yield from range(good)
        raise OSError("no disk")

    async def take(good):
        return [item async for item in pool.pull(lambda: broken(good))]

    for good in (0, 1, 2, 5):
        with pytest.raises(OSError, match="no disk"):
            asyncio.run(take(good))
    assert pool.busy == 0
