"""Events appeared twice: a batch whose response was lost was stored, and stored again in halves under other keys.

The next server, or the same one after a restart, accepted only smaller bodies and returned 413, which says nothing
about the attempt before it.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import pytest
from breaking_proxy import BreakingProxy, Fate

import aggregator
from aggregator import SequenceConflictError
from aggregator.client import AsyncClient, BodyTooLargeError, Client, Retry, UnavailableError, WriteFailedError
from aggregator.client.http.attempts import Attempts
from aggregator.client.http.errors import error_of
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http

ROWS = [{"space": "s", "timestamp": n, "data": b"x" * 1000} for n in range(100)]


@contextmanager
def roomy_and_small(tmp_path):
    """A topic, a server whose first response is lost, and one that accepts only smaller bodies."""
    limits = Http(bind="127.0.0.1:0", drain_s=1.0), Http(bind="127.0.0.1:0", drain_s=1.0, max_append_bytes=60_000)
    with (
        aggregator.open(tmp_path / "data") as catalog,
        RunningServer(catalog, Settings(http=limits[0])) as roomy,
        RunningServer(catalog, Settings(http=limits[1])) as small,
        BreakingProxy(roomy.url, lambda n: Fate(down_bytes=10 if n == 0 else None)) as proxy,
    ):
        yield catalog.create_topic("t"), proxy.url, small.url


def repeated(url, unsent):
    with Client(url) as client:
        return client.topic("t").append(unsent.events, producer=unsent.producer, sequence=unsent.sequence)


def test_a_writer(tmp_path):
    """The writer reports the batch as possibly stored, with its key; later batches continue."""
    with roomy_and_small(tmp_path) as (topic, roomy, small), Client([roomy, small]) as client:
        writer = client.topic("t").writer(linger_s=60)
        for row in ROWS:
            writer.add_row(row)
        with pytest.raises(WriteFailedError) as caught:
            writer.flush()
        (unsent,) = caught.value.unsent
        assert (unsent.error.maybe_stored, unsent.error.status, unsent.events) == (True, 413, ROWS)
        for row in ROWS:  # too large as well, but never stored: sent in halves
            writer.add_row(row | {"space": "later"})
        writer.close()
        assert repeated(roomy, unsent).duplicate
        assert [topic.scan(space=space).count() for space in ("s", "later")] == [100, 100]


def test_a_writer_of_asyncio(tmp_path):
    """The asyncio writer does the same."""

    async def write(urls):
        async with AsyncClient(urls) as client:
            writer = client.topic("t").writer(linger_s=60)
            for row in ROWS:
                await writer.add_row(row)
            with pytest.raises(WriteFailedError) as caught:
                await writer.close()
            return caught.value.unsent

    with roomy_and_small(tmp_path) as (topic, roomy, small):
        (unsent,) = asyncio.run(write([roomy, small]))
        assert unsent.error.maybe_stored
        assert repeated(roomy, unsent).duplicate
        assert topic.scan().count() == 100


def test_an_append(tmp_path):
    """`append` says that the batch may be stored; without an earlier attempt, that it is not."""
    with roomy_and_small(tmp_path) as (topic, roomy, small):
        with Client([roomy, small]) as client, pytest.raises(UnavailableError) as caught:
            client.topic("t").append(ROWS)
        assert (caught.value.maybe_stored, caught.value.status) == (True, 413)
        with Client([small, roomy]) as client, pytest.raises(BodyTooLargeError):
            client.topic("t").append(ROWS)
        assert topic.scan().count() == 100


@pytest.mark.parametrize("status", [401, 403, 413])
def test_what_is_said_at_the_door(status):
    """A refusal before an append is read does not deny earlier attempts; a query is refused as usual."""
    for stores, kind in ((True, UnavailableError), (False, type(error_of(status, {}, b"", subject="/")))):
        attempts = Attempts(Retry(), repeatable=True, stores=stores)
        attempts.wait_s(UnavailableError("lost", status=None, maybe_stored=True))
        with pytest.raises(kind) as caught:
            attempts.wait_s(error_of(status, {}, b"", subject="/"))
        if stores:
            assert (caught.value.maybe_stored, caught.value.status) == (True, status)


def test_the_key_of_what_failed_is_good_for_long(tmp_path):
    """The key of a failed batch stays usable, however many batches followed: the server remembers 64 of a producer,
    so no other batch uses this one.
    """
    with roomy_and_small(tmp_path) as (topic, roomy, small), Client([roomy, small]) as client:
        writer = client.topic("t").writer(linger_s=60)
        for row in ROWS:
            writer.add_row(row)
        with pytest.raises(WriteFailedError) as caught:
            writer.flush()
        for n in range(70):
            writer.add("later", timestamp=n)
            writer.flush()
        writer.close()
        assert repeated(roomy, caught.value.unsent[0]).duplicate
        with pytest.raises(SequenceConflictError):
            client.topic("t").append(ROWS[:1], producer=caught.value.unsent[0].producer, sequence=0)
        assert topic.scan().count() == 170
