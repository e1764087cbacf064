"""The bounded pool: what runs, waits and is refused; iterators run at their reader's pace."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

import pytest
from waiting import PATIENCE_S

from aggregator import Allowance, OverloadedError, QueryCancelledError
from aggregator.base import allowance
from aggregator.server.control.request_scope import RequestScope
from aggregator.server.control.thread_pools import Slow, WorkPool
from esformat import ClosedError


@pytest.fixture
def pool():
    made = WorkPool("read", 1, 1)
    yield made
    made.close()


def test_room(pool):
    """One call runs, one waits, a third is refused immediately; a cancelled call counts while it runs."""
    gate = threading.Event()

    async def work():
        first = asyncio.create_task(pool.run(gate.wait, 60))
        second = asyncio.create_task(pool.run(lambda: "done"))
        await asyncio.sleep(0)  # both have been submitted
        with pytest.raises(OverloadedError) as refused:
            pool.check_room()
        assert refused.value.retry_after_s > 0
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert pool.busy == 2
        gate.set()
        assert await second == "done"
        async with asyncio.timeout(60):
            while pool.busy:
                await asyncio.sleep(0.001)

    asyncio.run(work())


def test_patience():
    """If calls are slow, fewer may wait: about as many as complete within the patience."""
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
    """All items arrive in order, only as many as are requested are produced, and the iterator is closed."""
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
    """Errors before the first item or later reach the reader."""

    def broken(good):
        yield from range(good)
        raise OSError("no disk")

    async def take(good):
        return [item async for item in pool.pull(lambda: broken(good))]

    for good in (0, 1, 2, 5):
        with pytest.raises(OSError, match="no disk"):
            asyncio.run(take(good))
    assert pool.busy == 0


async def until(holds):
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.001)


def submit_request(pool, call):
    """Start a call as a separate request. Returns its task and the request."""

    async def nothing():
        await asyncio.Event().wait()

    request = RequestScope(Allowance(), nothing)

    async def run():
        request.begin()
        return await pool.run(call)

    return asyncio.create_task(run()), request


def test_slow_calls_give_their_place_away():
    """A slow call continues next to quick ones; the next slow one waits for its place, and another is refused."""
    pool = WorkPool("read", 1, 5, slow=Slow(1, after_s=0.02, waiting=1, patience_s=60))
    gates = [threading.Event() for _ in range(3)]

    def slow(gate):
        while not gate.wait(0.005):
            allowance.check()
        return "done"

    async def work():
        first, _ = submit_request(pool, lambda: slow(gates[0]))
        await until(lambda: pool.slow == 1)
        second, _ = submit_request(pool, lambda: slow(gates[1]))
        await until(lambda: pool.slow == 2)
        third, _ = submit_request(pool, lambda: slow(gates[2]))
        with pytest.raises(OverloadedError, match="1 slow reads") as refused:
            await third
        assert refused.value.retry_after_s > 0
        assert await pool.run(lambda: "quick") == "quick"
        gates[0].set()
        assert await first == "done"
        assert await pool.run(lambda: "quick") == "quick"
        gates[1].set()
        assert await second == "done"
        assert (pool.busy, pool.slow) == (0, 0)

    asyncio.run(work())
    pool.close()


def test_a_slow_call_waits_so_long():
    """A slow call without a place within the patience is refused; one that has sent part of its answer waits longer."""
    pool = WorkPool("read", 2, 5, slow=Slow(1, after_s=0.01, waiting=5, patience_s=0.5))
    gate, begun = threading.Event(), threading.Event()

    def slow():
        while not gate.wait(0.005):
            allowance.check()

    def items():
        yield from range(3)
        begun.set()
        slow()
        yield 3

    async def streamed():
        RequestScope(Allowance(), asyncio.Event().wait).begin()
        return [item async for item in pool.pull(items)]

    async def work():
        first, _ = submit_request(pool, slow)
        await until(lambda: pool.slow == 1)
        stream = asyncio.create_task(streamed())
        await until(begun.is_set)
        late, _ = submit_request(pool, slow)
        with pytest.raises(OverloadedError):
            await late
        gate.set()
        await first
        assert await stream == [0, 1, 2, 3]

    asyncio.run(work())
    pool.close()


def test_a_call_that_ends_while_it_waits_for_a_place():
    """A call that waits for a slow place may end before its next check; the rest of its answer continues."""
    pool = WorkPool("read", 2, 5, slow=Slow(1, after_s=0.01, waiting=5, patience_s=60))
    gates = [threading.Event() for _ in range(2)]

    def items():
        yield from range(3)
        gates[1].wait()  # without a check
        yield 3
        allowance.check()
        yield 4

    async def streamed():
        RequestScope(Allowance(), asyncio.Event().wait).begin()
        return [item async for item in pool.pull(items)]

    async def work():
        first, _ = submit_request(pool, gates[0].wait)
        await until(lambda: pool.slow == 1)
        stream = asyncio.create_task(streamed())
        await until(lambda: pool.slow == 2)
        gates[1].set()
        async with asyncio.timeout(PATIENCE_S):
            assert await stream == [0, 1, 2, 3, 4]
        gates[0].set()
        await first

    try:
        asyncio.run(work())
    finally:
        for gate in gates:
            gate.set()
        pool.close()


def test_a_call_ends_with_its_client():
    """When the client leaves, a slow call is cancelled, also one that waits for a place, and its iterator closed."""
    pool = WorkPool("read", 2, 5, slow=Slow(1, after_s=0.01))
    closed = []

    def items():
        try:
            yield from range(3)
            while True:
                allowance.check()
                time.sleep(0.001)
        finally:
            closed.append(True)

    async def work():
        gone = asyncio.Event()

        async def receive():
            await gone.wait()
            return {"type": "http.disconnect"}

        async def streamed():
            RequestScope(Allowance(), receive).begin()
            return [item async for item in pool.pull(items)]

        first, second = asyncio.create_task(streamed()), asyncio.create_task(streamed())
        await until(lambda: pool.slow == 2)
        gone.set()
        assert await asyncio.gather(first, second) == [[0, 1, 2]] * 2
        assert closed == [True, True]
        await until(lambda: pool.busy + pool.slow == 0)

    asyncio.run(work())
    pool.close()


def test_closing_ends_reads():
    """Closing the pool cancels running and queued calls; the iterator of an abandoned answer is closed."""
    pool = WorkPool("read", 1, 5, slow=Slow(1, after_s=60))
    closed, spinning = [], threading.Event()

    def items():
        try:
            yield from range(3)
            spinning.set()
            while True:
                allowance.check()
                time.sleep(0.001)
        finally:
            closed.append(True)

    async def take():
        RequestScope(Allowance(), asyncio.Event().wait).begin()
        return [item async for item in pool.pull(items)]

    async def work():
        given_up = asyncio.create_task(take())
        await until(spinning.is_set)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert closed == [True]
        spinning.clear()
        running = asyncio.create_task(take())
        await until(spinning.is_set)
        waiting = asyncio.create_task(pool.run(lambda: "done"))
        await until(lambda: pool.busy == 2)
        await asyncio.to_thread(pool.close)
        with pytest.raises(QueryCancelledError, match="is stopping"):
            await running
        with pytest.raises(ClosedError):
            await waiting

    asyncio.run(work())
