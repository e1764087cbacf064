"""The async client against a real server: it does what the sync client does without blocking the loop for long."""

from __future__ import annotations

import asyncio
import functools
import socket
import time

import pyarrow as pa
import pytest
from breaking_proxy import BreakingProxy, Fate

from aggregator import InvalidRequestError, OverloadedError, TopicNotFoundError
from aggregator.client import AsyncClient, Retry, Sizing, TruncatedAnswerError, UnavailableError, WriteFailedError
from esformat import ClosedError
from tests.aggregator.client.test_client import events

QUICK = Retry(deadline_s=None, first_s=0.001, longest_s=0.01)


def times(catalog):
    return sorted(catalog.topic("activity").scan().to_table()["timestamp"].cast(pa.int64()).to_pylist())


def test_topics_appends_and_scans(catalog, server):
    """Topics, appends and scans match the catalog itself."""

    async def run():
        async with AsyncClient(server.url, compression="zstd") as client:
            topic = await client.create_topic("web", indexes=["type"])
            receipts = await asyncio.gather(*(topic.append(events(n * 50, 50), str(n % 2)) for n in range(6)))
            assert sum(map(len, receipts)) == 300
            assert (await client.topics()) == ("activity", "web")
            again = await topic.append(events(0, 5), producer="p", sequence=1)
            assert (await topic.append(events(0, 5), producer="p", sequence=1)).first == again.first
            here = catalog.topic("web")
            for question in ({}, {"space": "customer-3", "reverse": True, "limit": 7}, {"columns": ["timestamp"]}):
                found, wanted = topic.scan(**question), here.scan(**question)
                assert (await found.to_table()).equals(wanted.to_table())
                assert [event async for event in found] == list(wanted)
                assert await found.count() == wanted.count()
                assert await found.schema() == wanted.schema
            assert (await client.rename_topic("activity", "moved")).name == "moved"
            await client.delete_topic("moved")
            assert await client.topics() == ("web",)
            assert (await topic.scan_index("type", "page").to_pandas()).shape[0] > 50
            assert (await topic.scan().to_table(fields=["$.none"]))["$.none"].null_count == 305
            assert (await topic.read(from_index=1, limit=2).to_table())["record_index"].to_pylist() == [1, 2]
            with pytest.raises(TopicNotFoundError):
                await client.topic("absent").scan().to_table()
        with pytest.raises(ClosedError):
            await client.topics()

    asyncio.run(run())


def test_breaking_line(server, catalog):
    """Over a breaking connection appends are stored once and truncated answers raise; an absent server raises, too."""
    catalog.topic("activity").append(events(100_000, 20_000))

    async def run(url):
        async with AsyncClient(url, retry=Retry(attempts=100, first_s=0.001, longest_s=0.01)) as client:
            await asyncio.gather(*(client.topic("activity").append(events(n * 30, 30)) for n in range(20)))
            with pytest.raises(TruncatedAnswerError):
                await client.topic("activity").scan().to_table()
        async with AsyncClient("http://127.0.0.1:9", retry=Retry(attempts=2, first_s=0.001)) as client:
            with pytest.raises(UnavailableError):
                await client.topics()

    with BreakingProxy(server.url, lambda n: Fate(down_bytes=40 if n % 2 else 1000, up_bytes=9000)) as proxy:
        asyncio.run(run(proxy.url))
    assert times(catalog)[:600] == list(range(600))
    assert len(times(catalog)) == 20_600


def test_closing_a_writer_while_the_server_hangs():
    """The time limit of `close` applies even if the server never answers; the error contains the unsent events."""

    async def run(url):
        async with AsyncClient(url, timeout_s=60.0) as client:
            writer = client.topic("activity").writer(linger_s=0)
            await writer.add("s", timestamp=1)
            began = time.monotonic()
            with pytest.raises(WriteFailedError) as caught:
                await writer.close(0.3)
            assert time.monotonic() - began < 30
        (unsent,) = caught.value.unsent
        assert (len(unsent.events), unsent.error.maybe_stored, unsent.sequence) == (1, True, 0)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        asyncio.run(run(f"http://127.0.0.1:{listening.getsockname()[1]}"))


def test_writer(server, catalog):
    """Over a breaking connection a writer stores each event once, in order; unwritable events raise an error."""

    async def run(url):
        async with AsyncClient(url) as client:
            topic = client.topic("activity")
            async with topic.writer(sizing=Sizing(min_rows=10, max_rows=100), retry=QUICK) as writer:
                for n in range(500):
                    await writer.add("s", b"x", timestamp=n)
                await writer.add_table(pa.table({"space": ["s"] * 250, "timestamp": range(500, 750)}))
                await writer.flush()
                assert writer.acknowledged == 750
            refusing = topic.writer(when_full="refuse", queue_bytes=1000, linger_s=5)
            await refusing.add("s", timestamp=750)
            with pytest.raises(OverloadedError):
                await refusing.add("s", b"x" * 1000, timestamp=1)
            await refusing.close()
            failing = topic.writer(linger_s=0)
            await failing.add("s", timestamp=5, columns={"extra": object()})
            with pytest.raises(WriteFailedError):
                await failing.flush()
            deep = functools.reduce(lambda inner, _: [inner], range(100), 1)  # nested deeper than Arrow can write
            await failing.add("s", timestamp=5, columns={"extra": deep})
            with pytest.raises(WriteFailedError, match="recursion"):  # an unforeseen error
                await failing.flush()
            await failing.add("s", timestamp=751)
            await failing.close()
            with pytest.raises(ClosedError):
                await failing.add("s", timestamp=5)

    with BreakingProxy(server.url, lambda n: Fate(down_bytes=200 + 150 * (n % 4), up_bytes=20_000)) as proxy:
        asyncio.run(run(proxy.url))
    assert times(catalog) == list(range(752))


def test_closed_without_a_server():
    """Without a server, `close` returns within its time limit and raises with everything unsent."""

    async def run():
        async with AsyncClient("http://127.0.0.1:9") as client:
            writer = client.topic("activity").writer(sizing=Sizing(min_rows=10, max_rows=10), retry=QUICK)
            for n in range(25):
                await writer.add("s", timestamp=n)
            with pytest.raises(WriteFailedError, match="25 events"):
                await writer.close(0.05)

    began = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - began < 60


def test_streams_and_tail(server, catalog):
    """Records, statements and pages work, and a tail runs in the same loop as a writer."""

    async def run():
        async with AsyncClient(server.url) as client:
            await client.write({"app": "web"}, [{"ts": n, "msg": f"m{n}"} for n in range(5)])
            selected = await client.query("SELECT FROM app=web")
            assert [event.data async for event in selected] == [b"m0", b"m1", b"m2", b"m3", b"m4"]
            assert (await client.query("SELECT COUNT FROM app=web")).num_rows == 1
            with pytest.raises(InvalidRequestError):
                await client.query("SHOW")

            async def write():
                for n in range(5, 10):
                    await client.write({"app": "web"}, [{"ts": n, "msg": f"m{n}"}])
                    await asyncio.sleep(0.02)

            writing = asyncio.create_task(write())
            found = []
            async for page in client.tail("SELECT FROM app=web", position="head", timeout_s=120):
                found += page.table["data"].to_pylist()
                if len(found) >= 10:
                    break
            await writing
            assert found == [b"m%d" % n for n in range(10)]
            there = [page async for page in client.tail("SELECT FROM app=web", position="head", timeout_s=0)]
            assert sum(page.table.num_rows for page in there) == 10

    asyncio.run(run())
