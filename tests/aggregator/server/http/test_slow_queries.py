"""Slow queries: others are answered meanwhile, and they end with their client, their time limit or the server."""

from __future__ import annotations

import contextlib
import json
import random
import select
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from effort import long
from served import Spawned, served
from waiting import PATIENCE_S, until

import aggregator
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http, Work
from aggregator.server.control.thread_pools import Slow

SLOW = "SELECT COUNT WHERE msg MATCHES 'a.{380}b'"  # RE2 takes 15 µs per byte: two minutes for all records
QUICK = "SELECT WHERE msg = 'a' LIMIT 1"
SOON_S = 60.0  # a quick query on a busy machine: still less than a slow one
WORDS = {"content-type": "text/plain"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with records for which the slow pattern is slow."""
    path = tmp_path_factory.mktemp("slow") / "data"
    chance, letters = random.Random(1), bytes(b"ax"[byte & 1] for byte in range(256))
    with aggregator.open(path) as catalog:
        for _ in range(2):
            texts = (chance.randbytes(1000).translate(letters).decode() for _ in range(4000))
            catalog.write({"app": "web"}, [{"ts": ts, "msg": text} for ts, text in enumerate(texts)])
            catalog.seal()
    return path


@contextlib.contextmanager
def asking(url: str, count: int, statement: str = SLOW) -> Iterator[list[HTTPConnection]]:
    """Send this many queries; their clients leave at the end."""
    where = urlsplit(url)
    clients = [HTTPConnection(str(where.hostname), where.port, timeout=PATIENCE_S) for _ in range(count)]
    try:
        for client in clients:
            client.request("POST", "/v1/query", statement, WORDS)
        yield clients
    finally:
        for client in clients:
            client.close()


def ask(url: str, statement: str, timeout: float = PATIENCE_S) -> httpx.Response:
    return httpx.post(f"{url}/v1/query", content=statement, headers=WORDS, timeout=timeout)


def under_way(server: RunningServer) -> int:
    return server.context.reads.busy + server.context.reads.slow


def test_two_that_nobody_waits_for(data):
    """Two slow queries whose clients leave immediately: other reads are answered, and the work ends soon."""
    with served(data) as server, httpx.Client(base_url=server.url, timeout=SOON_S) as web:
        with asking(server.url, 2):
            pass
        for _ in range(5):
            assert web.post("/v1/query", content=QUICK, headers=WORDS).status_code == 200
        until(lambda: under_way(server) == 0, SOON_S)


LARGE = ["SELECT COUNT WHERE msg MATCHES '(.*a){900}b'", "SELECT COUNT WHERE msg" + "[0]" * 5_000 + " = 1",
         "SELECT COUNT WHERE msg" + ".a" * 20_000 + " = 1", "SELECT '" + "{ts}" * 2_000 + "'"]  # fmt: skip


@pytest.mark.parametrize("statement", LARGE, ids=[statement[:40] for statement in LARGE])
def test_large_statements_are_refused(data, statement):
    """A statement that would cost much for each record is refused before any is read, with the limit."""
    with served(data) as server:
        answer = ask(server.url, statement)
        assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-request")
        assert "more than" in answer.json()["detail"]


ROUTES = ["/v1/topics/logs/events?limit=1", "/v1/topics/logs/partitions/0/records?limit=1", "/v1/stats", "/topics",
          "/topic/logs/partition/0/records?start=0&page_size=1", "/v1/pipes", "/metrics"]  # fmt: skip


def test_slow_ones_leave_room(data, monkeypatch):
    """With more slow queries than places, quick ones are answered on every reading route."""
    settings = Settings(work=Work(slow_reads=1))
    with served(data, settings) as server, httpx.Client(base_url=server.url, timeout=SOON_S) as web:
        monkeypatch.setattr(server.context.reads, "_slow", Slow(1, after_s=1.0))  # quick ones may have to wait, too
        with asking(server.url, 5):
            until(lambda: server.context.reads.slow == 5)
            for route in ROUTES:
                assert web.get(route).status_code == 200, route


def test_too_many_are_refused(data, monkeypatch):
    """If no place for a slow query becomes free in time, it gets 429 with Retry-After."""
    with served(data, Settings(work=Work(slow_reads=1))) as server:
        monkeypatch.setattr(server.context.reads, "_slow", Slow(1, 0.05, waiting=1, patience_s=0.1))
        with asking(server.url, 3) as clients:
            answered: list[HTTPConnection] = []
            while len(answered) < 2:
                waiting = [client.sock for client in clients if client not in answered]
                ready, _, _ = select.select(waiting, [], [], PATIENCE_S)
                assert ready
                answered += [client for client in clients if client.sock in ready]
            for client in answered:
                answer = client.getresponse()
                assert (answer.status, json.load(answer)["type"]) == (429, "/problems/overloaded")
                assert int(answer.headers["retry-after"]) >= 1
                client.close()


LIMITS = [
    (Work(query_s=0.5), SLOW, "more than 0.5 seconds"),
    (Work(query_bytes=100_000), "SELECT COUNT GROUP BY msg", "100,000 bytes of memory"),
    (Work(query_bytes=100_000), "SELECT WHERE msg PREFIX a", "100,000 bytes of memory"),
]


@pytest.mark.parametrize(("work", "statement", "told"), LIMITS)
def test_limits(data, work, statement, told):
    """A query that exceeds a limit is ended, and its client learns which limit."""
    with served(data, Settings(work=work)) as server:
        began = time.monotonic()
        answer = ask(server.url, statement)
        assert (answer.status_code, answer.json()["type"]) == (400, "/problems/query-limit")
        assert told in answer.json()["detail"]
        assert answer.json()["hint"]
        assert time.monotonic() - began < SOON_S
        assert ask(server.url, QUICK).status_code == 200


@long
def test_stops_while_one_runs(data):
    """SIGTERM ends the server within its limit despite a slow query, whose client is told."""
    with Spawned(data, "--set", "http.drain=3s") as server, asking(server.url, 1) as clients:
        until(lambda: "aggregator_slow_read_calls 1.0" in httpx.get(f"{server.url}/metrics").text)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < SOON_S
        answer = clients[0].getresponse()
        assert (answer.status, json.load(answer)["detail"]) == (503, "the server is stopping")
    assert not [line for line in server.told if line["level"] in ("warning", "error")]


def test_a_stop_waits_for_nobody_who_left(data):
    """A stop does not wait for queries whose clients have left, however long it may wait for others."""
    with served(data, Settings(http=Http(drain_s=60))) as server:
        with asking(server.url, 1):
            until(lambda: under_way(server) > 0)
        began = time.monotonic()
    assert time.monotonic() - began < SOON_S
