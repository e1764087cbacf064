"""Clients of several servers of one catalog find the right one and store everything once."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from ports import free_port
from served import served

import aggregator
from aggregator import BehindError, InvalidRequestError, ReadOnlyError
from aggregator.client import AsyncClient, Client, Retry, UnavailableError
from aggregator.client.following import Follower
from aggregator.client.http.attempts import Attempts
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http

BRIEF = Retry(deadline_s=0.5, first_s=0.01)


def rows(*times):
    return [{"space": "a", "timestamp": time} for time in times]


@contextlib.contextmanager
def copied(url, path):
    """A server over a copy of another server's catalog, and its follower."""
    with Follower(url, path) as follower:
        assert follower.wait_until_whole(60)
        with (
            aggregator.open(path, read_only=True) as copy,
            RunningServer(copy, Settings(http=Http(bind="127.0.0.1:0"))) as server,
        ):
            yield server, follower


def nobody():
    return f"http://127.0.0.1:{free_port()}"


def test_the_one_that_takes_appends_is_found(tmp_path):
    """Among an absent server, a follower and a writer, in any order, the client finds the writer."""
    with served(tmp_path / "data") as server, copied(server.url, tmp_path / "copy") as (copy, _):
        for urls in ([nobody(), copy.url, server.url], [copy.url, server.url], [server.url, copy.url]):
            with Client(urls) as client:
                client.create_topic("t")
                assert len(client.topic("t").append(rows(1))) == 1
        with Client([copy.url, nobody()], retry=BRIEF) as client:
            assert client.topics() == ("t",)
            with pytest.raises((ReadOnlyError, UnavailableError)):
                client.topic("t").append(rows(1))

    async def asynchronously():
        async with AsyncClient([nobody(), server.url]) as client:
            return await client.topic("t").append(rows(2))

    with served(tmp_path / "data") as server:
        assert len(asyncio.run(asynchronously())) == 1
        assert server.catalog.topic("t").scan().count() == 4


def test_a_writer_goes_on_when_the_follower_was_promoted(tmp_path):
    """A writer continues with the promoted follower: copied events are there once, and the others are sent to it."""
    copy, sent = tmp_path / "copy", 400
    address = f"127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as first:
        server = first.enter_context(served(tmp_path / "data"))
        server.catalog.create_topic("t")
        follower = first.enter_context(Follower(server.url, copy))
        assert follower.wait_until_whole(60)
        with Client([server.url, f"http://{address}"]) as client:
            writer = client.topic("t").writer(linger_s=0.01, in_flight=1)
            for time in range(sent // 2):
                writer.add("a", timestamp=time)
            writer.flush()
            follower.wait_until_caught_up()
            first.close()
            adding = threading.Thread(target=lambda: [
                writer.add("a", timestamp=time) for time in range(sent // 2, sent)
            ])  # fmt: skip
            adding.start()
            aggregator.promote(copy)
            with (
                aggregator.open(copy) as catalog,
                RunningServer(catalog, Settings(http=Http(bind=address))),
            ):
                adding.join()
                writer.close()
                times = catalog.topic("t").read().to_table()["timestamp"].cast("int64").to_pylist()
    assert times == list(range(sent))


def test_a_tail_outlasts_the_server_it_came_from(tmp_path):
    """A tail waits if the follower lacks the last record it returned, and continues after the promotion."""
    copy, second = tmp_path / "copy", f"127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as first:
        server = first.enter_context(served(tmp_path / "data"))
        with contextlib.closing(Client([server.url, f"http://{second}"])) as client:
            client.write({"app": "x"}, [{"msg": "copied"}])
            with copied(server.url, copy):
                pass
            client.write({"app": "x"}, [{"msg": "not copied"}])
            tail = client.tail("SELECT FROM app = x", position="head", timeout_s=60)
            records = iter(tail)
            assert [next(records).data for _ in range(2)] == [b"copied", b"not copied"]
            first.close()
            with (
                aggregator.open(copy, read_only=True) as catalog,
                RunningServer(catalog, Settings(http=Http(bind=second))) as behind,
                Client(behind.url, retry=BRIEF) as other,
            ):
                with pytest.raises(BehindError, match="ahead of this copy"):
                    list(catalog.query(f"SELECT FROM app = x POSITION {tail.position}"))
                with pytest.raises(UnavailableError, match="ahead of this copy"):
                    other.page("SELECT FROM app = x", tail.position)
                found = []
                waiting = threading.Thread(target=lambda: found.append(next(records).data))
                waiting.start()
                waiting.join(0.5)
            aggregator.promote(copy)
            with aggregator.open(copy) as catalog, RunningServer(catalog, Settings(http=Http(bind=second))):
                catalog.write({"app": "x"}, [{"msg": "later"}])
                waiting.join(60)
                assert found == [b"later"]


def test_attempts_of_one_round_wait_for_nothing():
    """Attempts within one round over the servers do not wait; between rounds the wait is that for one server."""
    attempts = Attempts(Retry(first_s=100.0, longest_s=1000.0, deadline_s=None), repeatable=True, servers=3)
    gone = UnavailableError("gone", status=None, maybe_stored=False)
    assert [attempts.wait_s(gone) > 0 for _ in range(9)] == [False, False, True] * 3
    with pytest.raises(ReadOnlyError):
        Attempts(Retry(), repeatable=True).wait_s(ReadOnlyError("it follows"))
    with pytest.raises(UnavailableError):
        Attempts(Retry(), repeatable=False, servers=2).wait_s(UnavailableError("lost", status=None, maybe_stored=True))


@pytest.mark.parametrize("urls", [[], ["http://a", "ftp://b"], ["http://a", "http://u:p@b"]])
def test_each_address_is_checked(urls):
    with pytest.raises(InvalidRequestError):
        Client(urls)
