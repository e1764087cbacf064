"""Asyncio appends: many at the same time without a thread each, and each gets its own result."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import aggregator
from aggregator.engine.ingest import event_loop
from aggregator.engine.ingest import reserve as reserve_module
from aggregator.errors import LogFailedError, OverloadedError
from aggregator.storage.log import log as log_module
from aggregator.storage.log.entry import Action
from aggregator.storage.manifest import Manifest
from esformat import ClosedError, InvalidEventError

COLUMNS = pa.schema({"space": pa.string(), "timestamp": pa.timestamp("us", "UTC"), "data": pa.binary()})


def batch(number, space="a", data=b"x"):
    times = pa.array([number], pa.timestamp("us", "UTC"))
    return pa.record_batch([pa.array([space]), times, pa.array([data], pa.binary())], schema=COLUMNS)


@pytest.fixture
def catalog(tmp_path, quiet):
    with aggregator.open(tmp_path / "data") as catalog:
        yield catalog


@pytest.fixture
def topic(catalog):
    """A topic that knows the columns and has two events at time 0."""
    topic = catalog.create_topic("t")
    topic.append(batch(0))
    topic.append(batch(0))
    return topic


def frames(catalog):
    (topic,) = catalog._backend.state.topics.values()
    return [batch.rows for partition in topic.partitions.values() for batch in partition.memtable.batches]


def times(topic):
    return [event.timestamp for event in topic.scan()]


async def all_of(topic, numbers, **options):
    return await asyncio.gather(*(topic.append_async(batch(number), **options) for number in numbers))


def test_those_of_one_turn_are_one_frame(catalog, topic):
    """Appends of one loop iteration share a frame and get record indexes in call order, without a thread each."""
    before = threading.active_count()
    receipts = asyncio.run(all_of(topic, range(1, 1001)))
    assert [receipt.first for receipt in receipts] == list(range(2, 1002))
    assert frames(catalog) == [1, 1, 1000]
    assert times(topic) == [0, 0, *range(1, 1001)]
    assert threading.active_count() <= before + 1  # the log's own


def test_one_after_another(catalog, topic):
    """Each awaited append is stored, and a new loop can continue."""

    async def append(number):
        receipt = await topic.append_async(batch(number))
        assert times(topic)[-1] == number
        return receipt.first

    assert [asyncio.run(append(number)) for number in range(1, 4)] == [2, 3, 4]


def test_what_takes_a_thread(topic):
    """Named batches, new partitions and columns, tables and rows are stored as `append` would store them."""

    async def append():
        named = await topic.append_async(batch(1), producer="p", sequence=1)
        again = await topic.append_async(batch(1), producer="p", sequence=1)
        assert (again.first, again.duplicate) == (named.first, True)
        assert (await topic.append_async(batch(2), "new")).first == 0
        await topic.append_async(pa.table({"space": ["a"], "timestamp": [3], "n": [1]}))
        await topic.append_async([{"space": "a", "timestamp": 4}])
        await topic.append_async([next(iter(topic.scan()))])
        await topic.append_async(pa.Table.from_batches([batch(number) for number in range(6, 200)]))
        assert len(await topic.append_async([])) == 0

    asyncio.run(append())
    assert sorted(times(topic)) == [0, 0, 0, *range(1, 5), *range(6, 200)]


def test_indexes_are_reserved_beside_the_loop(tmp_path, quiet, monkeypatch):
    """Reserving record indexes in the manifest, which takes milliseconds without syncs, does not block the loop."""
    reserving = []
    reserve = Manifest.reserve

    def noted(manifest, ends):
        reserving.append(threading.current_thread())
        reserve(manifest, ends)

    monkeypatch.setattr(Manifest, "reserve", noted)
    monkeypatch.setattr(reserve_module, "FIRST", 8)
    with aggregator.open(tmp_path / "data", durability="none") as catalog:
        topic = catalog.create_topic("t")
        topic.append(batch(0))
        topic.append(batch(0))
        reserving.clear()
        for number in range(2, 42, 4):
            receipts = asyncio.run(all_of(topic, range(4)))
            assert [receipt.first for receipt in receipts] == list(range(number, number + 4))
    assert reserving
    assert threading.main_thread() not in reserving


def test_who_is_refused(catalog, topic):
    """An event that cannot be stored is an error for its own append only."""

    async def append():
        appends = [topic.append_async(batch(1)), topic.append_async(batch(2, space=None)), topic.append_async(batch(3))]
        return await asyncio.gather(*appends, return_exceptions=True)

    first, second, third = asyncio.run(append())
    assert (first.first, third.first) == (2, 3)
    assert isinstance(second, InvalidEventError)
    assert times(topic) == [0, 0, 1, 3]


def test_no_room(tmp_path, quiet):
    """Without room, appends are refused immediately, and only stored events use memory."""
    with aggregator.open(tmp_path / "data", limits={"memory_bytes": "64KiB"}) as catalog:
        topic = catalog.create_topic("t")
        data = b"x" * 10_000
        topic.append(batch(0, data=data))
        topic.append(batch(0, data=data))

        async def append():
            appends = (topic.append_async(batch(number, data=data)) for number in range(1, 10))
            return await asyncio.gather(*appends, return_exceptions=True)

        outcomes = asyncio.run(append())
        refused = [each for each in outcomes if isinstance(each, OverloadedError)]
        assert 1 <= len(refused) < 9
        assert len(refused) + topic.scan().count() == 11
        catalog.seal()
        assert catalog._backend.budget.held_bytes == 0


def test_a_write_that_fails(catalog, topic, monkeypatch):
    """If a write fails, every append gets the error, nothing is kept, and the next append is accepted."""
    held = catalog._backend.budget.held_bytes

    def fail(self, buffers, end):
        raise OSError(28, "No space left on device")

    async def append():
        return await asyncio.gather(*(topic.append_async(batch(n)) for n in range(1, 20)), return_exceptions=True)

    with monkeypatch.context() as broken:
        broken.setattr(log_module.Log, "_commit", fail)
        outcomes = asyncio.run(append())
    assert len(outcomes) == 19
    assert all(isinstance(each, LogFailedError) for each in outcomes)
    assert catalog._backend.budget.held_bytes == held
    assert asyncio.run(all_of(topic, [9]))[0].first == 2
    assert times(topic) == [0, 0, 9]


def test_beside_threads(catalog, topic):
    """Async and threaded appends share one log: none waits forever, and every event is stored once."""

    async def append(task):
        for number in range(50):
            await topic.append_async(batch(1000 + task * 50 + number))

    async def tasks():
        await asyncio.gather(*map(append, range(20)))

    with ThreadPoolExecutor(8) as pool:
        appends = [
            pool.submit(lambda n=n: [topic.append(batch(3000 + 50 * n + i)) for i in range(50)]) for n in range(8)
        ]
        asyncio.run(tasks())
        for each in appends:
            each.result()
    assert sorted(times(topic)) == [0, 0, *range(1000, 2000), *range(3000, 3400)]


def test_cancelled_while_it_waits(catalog, topic):
    """A cancelled append gets no result, but its events are stored and their memory is counted once."""
    leading, go = threading.Event(), threading.Event()

    def wait():
        leading.set()
        assert go.wait(60)

    async def cancel():
        task = asyncio.ensure_future(topic.append_async(batch(1)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        await topic.append_async(batch(2))

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(catalog._backend.log.append, Action(wait))
        assert leading.wait(60)
        asyncio.run(cancel())
        first.result()
    assert times(topic) == [0, 0, 1, 2]
    (partition,) = catalog._backend.state.topics["t"].partitions.values()
    assert catalog._backend.budget.held_bytes == partition.memtable.size_bytes


def test_a_loop_that_ends_first(catalog, topic):
    """Closing a loop while its append waits breaks nothing, and the loop is not kept alive."""
    leading, go = threading.Event(), threading.Event()

    def wait():
        leading.set()
        assert go.wait(60)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(catalog._backend.log.append, Action(wait))
        assert leading.wait(60)
        loop = asyncio.new_event_loop()
        task = loop.create_task(topic.append_async(batch(1)))
        loop.run_until_complete(asyncio.sleep(0.01))
        task.cancel()
        loop.close()
        go.set()
        first.result()
    assert topic.append(batch(2)).first == 3
    assert times(topic) == [0, 0, 1, 2]
    del loop, task
    gc.collect()
    assert not [each for each in event_loop._QUEUES if each.is_closed()]


def test_a_closed_catalog(tmp_path):
    """Appends that wait when the catalog closes are stored first; later ones raise."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        topic.append(batch(0))

        async def append():
            waiting = [asyncio.ensure_future(topic.append_async(batch(number))) for number in range(1, 200)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await asyncio.to_thread(catalog.close)
            return await asyncio.gather(*waiting, return_exceptions=True)

        outcomes = asyncio.run(append())
        with pytest.raises(ClosedError):
            asyncio.run(all_of(topic, [500]))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("aggregator-log")]
    stored = [number for number, each in enumerate(outcomes, 1) if not isinstance(each, Exception)]
    assert all(isinstance(each, ClosedError) for each in outcomes if isinstance(each, Exception))
    with aggregator.open(tmp_path / "data") as again:
        assert times(again.topic("t")) == [0, *stored]
