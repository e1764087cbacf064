"""Appends wait for room in order, for a limited time."""

from __future__ import annotations

import asyncio

import pytest

from aggregator import DiskFullError, OverloadedError
from aggregator.server.control import waiting_room
from aggregator.server.control.waiting_room import AT_ONCE, WaitingRoom
from esformat import ClosedError


class Memory:
    """A memory with some free bytes, of which tasks take some themselves."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.full_disk = False

    def check(self, length: int | None) -> None:
        if self.full_disk:
            raise DiskFullError("full", retry_after_s=1)
        if length is not None and length > self.free:
            raise OverloadedError("no room", retry_after_s=1)


async def enter_all(room, lengths):
    """Start tasks that wait in this order."""
    tasks = []
    for length in lengths:
        tasks.append(asyncio.create_task(room.enter(length)))
        await asyncio.sleep(0)
    return tasks


def done(tasks):
    return [task.done() for task in tasks]


async def until_done(tasks, expected):
    async with asyncio.timeout(60):
        while done(tasks) != expected:
            await asyncio.sleep(0.001)


def test_where_there_is_room_nobody_waits():
    """With room nobody waits; an append that needs no memory does not wait for it either."""
    memory = Memory(10)

    async def work():
        room = WaitingRoom(memory.check, 60)
        await room.enter(10)
        memory.free = 0
        await room.enter(None)
        assert room.waiting == 0

    asyncio.run(work())


def test_first_come_first_let_in():
    """Appends enter together as far as there is room; a small one does not pass a large one."""
    memory = Memory(0)

    async def work():
        room = WaitingRoom(memory.check, 60)
        tasks = await enter_all(room, [5, 50, 1, 1])
        await asyncio.sleep(0.05)
        assert room.waiting == 4
        memory.free = 49
        await until_done(tasks, [True, False, False, False])
        memory.free = 40
        await asyncio.sleep(0.05)
        assert done(tasks) == [True, False, False, False]
        memory.free = 51
        await until_done(tasks, [True, True, True, False])
        memory.free = 1
        await until_done(tasks, [True, True, True, True])
        assert await asyncio.gather(*tasks) == [None] * 4

    asyncio.run(work())


def test_a_look_lets_few_in(monkeypatch):
    """Only a few enter per check, because their memory is known only once their bodies arrive."""
    monkeypatch.setattr(waiting_room, "POLL_S", 0.2)
    memory = Memory(0)

    async def work():
        room = WaitingRoom(memory.check, 60)
        tasks = await enter_all(room, [1] * (AT_ONCE + 8))
        memory.free = 1000
        await until_done(tasks, [True] * AT_ONCE + [False] * 8)
        await asyncio.gather(*tasks)

    asyncio.run(work())


def test_patience():
    """An append that waited in vain gets the reason; a later one can still enter."""
    memory = Memory(0)

    async def work():
        room = WaitingRoom(memory.check, 0.05)
        (first,) = await enter_all(room, [5])
        with pytest.raises(OverloadedError, match="no room"):
            await first
        (second,) = await enter_all(room, [5])
        memory.free = 5
        await second

    asyncio.run(work())


def test_no_more_than_may_wait(monkeypatch):
    """Beyond the maximum number waiting, the next append is refused immediately."""
    monkeypatch.setattr(waiting_room, "PLACES", 2)
    memory = Memory(0)

    async def work():
        room = WaitingRoom(memory.check, 60)
        tasks = await enter_all(room, [1, 1])
        assert room.is_full
        with pytest.raises(OverloadedError):
            await room.enter(1)
        memory.free = 2
        await asyncio.gather(*tasks)
        assert not room.is_full

    asyncio.run(work())


def test_a_full_disk_is_not_waited_for():
    """No append, new or waiting, waits for a full disk."""
    memory = Memory(0)

    async def work():
        room = WaitingRoom(memory.check, 60)
        (waits,) = await enter_all(room, [1])
        memory.full_disk = True
        with pytest.raises(DiskFullError):
            await waits
        with pytest.raises(DiskFullError):
            await room.enter(1)

    asyncio.run(work())


def test_who_gives_up_is_passed_over():
    """A cancelled append does not delay others."""
    memory = Memory(0)

    async def work():
        room = WaitingRoom(memory.check, 60)
        first, second = await enter_all(room, [50, 1])
        first.cancel()
        memory.free = 1
        await second
        assert room.waiting == 0

    asyncio.run(work())


def test_the_server_stops():
    """When the server stops, waiting ends, and none begins."""
    memory = Memory(0)

    async def work():
        room = WaitingRoom(memory.check, 60)
        (waits,) = await enter_all(room, [1])
        room.close()
        with pytest.raises(ClosedError):
            await waits
        with pytest.raises(OverloadedError):
            await room.enter(1)

    asyncio.run(work())
