"""The bounded pool: what runs, what waits, what is refused; iterators pulled at their reader's pace."""

from __future__ import annotations

import asyncio
import threading

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
        first = asyncio.create_task(pool.run(gate.wait, 20))
        second = asyncio.create_task(pool.run(lambda: "done"))
        await asyncio.sleep(0.05)
        with pytest.raises(OverloadedError) as refused:
            await pool.run(lambda: None)
        assert refused.value.retry_after_s == 1.0
        first.cancel()
        await asyncio.sleep(0.05)
        assert (pool.busy, pool.shed) == (2, 1)
        gate.set()
        assert await second == "done"
        await asyncio.sleep(0.05)
        assert pool.busy == 0

    asyncio.run(work())


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
            closed.append(True)

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
    assert closed == [True]
    made.clear()
    assert asyncio.run(take(1)) == list(range(min(length, 1)))
    assert len(made) <= 2
    assert closed == [True, True]


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
