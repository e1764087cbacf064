"""Appends without room wait; if too many wait, they are refused at their headers: cheaply, in order, and without harm
to the connection.
"""

from __future__ import annotations

import gzip
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from served import served
from waiting import until

from aggregator.server import Settings
from aggregator.server.config.settings import Work
from aggregator.server.control import waiting_room
from aggregator.server.http import admission, connection
from aggregator.server.http.body import Body

LINE = b'{"space": "a", "timestamp": 1}\n'
PATH = "/v1/topics/t/events"
TYPE = {"content-type": "application/x-ndjson"}
QUERY = {"content-type": "text/plain"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("admission") / "data") as running:
        httpx.put(f"{running.url}/v1/topics/t", json={}).raise_for_status()
        httpx.post(running.url + PATH, content=LINE, headers=TYPE).raise_for_status()  # the path is known from now on
        yield running


@pytest.fixture
def full(server, monkeypatch):
    """A server without room for appends, or for waiting. Returns the list of early refusals."""
    refused = []
    decide = admission.Admission.refusal

    def seen(self, method, url, headers):
        answer = decide(self, method, url, headers)
        if answer is not None:
            refused.append(url)
        return answer

    monkeypatch.setattr(admission.Admission, "refusal", seen)
    monkeypatch.setattr(server.context.appends._counts, "busy", server.context.appends.capacity)
    monkeypatch.setattr(waiting_room, "PLACES", 0)
    monkeypatch.setattr(server.context.waiting_room, "_patience_s", 0.1)  # of a request admitted earlier
    return refused


def talk(server, *requests):
    """Send requests together over one connection. Returns everything received until the connection is idle."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=120) as made:
        made.sendall(b"".join(requests))
        received = b""
        while received.count(b"HTTP/1.1 ") < len(requests) or not received.endswith(b"}"):
            piece = made.recv(65536)
            if not piece:
                break
            received += piece
    return received


def append(body, *headers):
    lines = [f"POST {PATH} HTTP/1.1", "host: x", "content-type: application/x-ndjson", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_appends_wait_for_room(server, monkeypatch):
    """Appends wait with their bodies unread and are stored once there is room; other requests do not wait."""
    counts = server.context.appends._counts
    monkeypatch.setattr(counts, "busy", server.context.appends.capacity)
    body = LINE * 40_000  # more than a connection buffers before somebody reads it
    with ThreadPoolExecutor(3) as senders:
        sent = [senders.submit(httpx.post, server.url + PATH, content=body, headers=TYPE, timeout=60) for _ in range(3)]
        until(lambda: server.context.waiting_room.waiting == 3)
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        told = httpx.get(f"{server.url}/metrics").text
        assert "\naggregator_waiting_appends 3.0" in told
        assert server.context.body_bytes == 0
        assert not any(one.done() for one in sent)
        counts.busy -= server.context.appends.capacity
        assert [one.result().status_code for one in sent] == [200] * 3
    assert server.context.waiting_room.waiting == 0


def test_who_waited_in_vain_is_refused(tmp_path, monkeypatch):
    """An append that waited in vain gets 429, and the connection stays usable."""
    with served(tmp_path, Settings(work=Work(append_patience_s=0.1))) as server:
        httpx.put(f"{server.url}/v1/topics/t", json={}).raise_for_status()
        counts = server.context.appends._counts
        with httpx.Client(base_url=server.url, timeout=60) as web:
            monkeypatch.setattr(counts, "busy", server.context.appends.capacity)
            assert web.post(PATH, content=LINE, headers=TYPE).status_code == 429
            counts.busy -= server.context.appends.capacity
            assert web.post(PATH, content=LINE, headers=TYPE).status_code == 200


def test_memory_that_is_nearly_full(tmp_path, monkeypatch):
    """A body is not read if its events might not fit in memory."""
    with served(tmp_path, Settings(work=Work(append_patience_s=0.1)), memory_bytes=64_000_000) as server:
        httpx.put(f"{server.url}/v1/topics/t", json={}).raise_for_status()
        budget = server.catalog._backend.budget
        body = LINE * 10_000
        monkeypatch.setattr(budget, "held_bytes", budget.limit_bytes - 4 * len(body))
        read = []
        monkeypatch.setattr(Body, "plain", lambda self: read.append(self))
        assert httpx.post(server.url + PATH, content=body, headers=TYPE).status_code == 429
        assert not read


def test_small_limits_can_be_used_up(tmp_path):
    """The memory that a body may need does not count against log and disk limits: every append that fits is stored."""
    limits = {"log_bytes": 4_000_000, "disk_bytes": 8_000_000}
    with served(tmp_path, Settings(work=Work(append_patience_s=0)), **limits) as server:
        httpx.put(f"{server.url}/v1/topics/t", json={}).raise_for_status()
        body = LINE * 30_000
        for _ in range(3):
            assert httpx.post(server.url + PATH, content=body, headers=TYPE, timeout=60).status_code == 200


def test_two_requests_while_others_wait(server, monkeypatch):
    """Requests that append nothing are answered immediately, in order, over one connection."""
    counts = server.context.appends._counts
    monkeypatch.setattr(counts, "busy", server.context.appends.capacity)
    with ThreadPoolExecutor(1) as sender, httpx.Client(base_url=server.url, timeout=60) as web:
        sent = sender.submit(httpx.post, server.url + PATH, content=LINE, headers=TYPE, timeout=60)
        until(lambda: server.context.waiting_room.waiting)
        answers = [
            web.get("/healthz"),
            web.post("/v1/query", content=b"SHOW PARTITIONS", headers=QUERY),
            web.get("/topics"),
        ]
        assert [answer.status_code for answer in answers] == [200] * 3
        counts.busy -= server.context.appends.capacity
        assert sent.result().status_code == 200


def test_a_refusal_and_the_connection(server, full):
    """A refusal has Retry-After; the rest of its body is not taken for a request, and the next request is answered."""
    body = b"GET /healthz HTTP/1.1\r\n\r\n" * 10_000
    with httpx.Client(base_url=server.url, timeout=120) as web:
        answer = web.post(PATH, content=body, headers=TYPE)
        assert answer.status_code == 429
        assert answer.headers["content-type"] == "application/problem+json"
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["retry_after_ms"] > 0
        assert answer.headers["date"]
        before = web.get("/healthz").status_code, len(full)
    assert before == (200, 1)
    told = httpx.get(f"{server.url}/metrics").text
    assert 'aggregator_requests_shed_total{route="/v1/topics/{topic}/events"}' in told


def test_refusals_one_after_the_other(server, full):
    """Pipelined requests are all answered in order; chunked bodies are discarded, too."""
    sized = append(LINE, f"content-length: {len(LINE)}")
    chunked = append(b"1f\r\n" + LINE + b"\r\n0\r\n\r\n", "transfer-encoding: chunked")
    missing = b"GET /v1/topics/nobody HTTP/1.1\r\nhost: x\r\n\r\n"
    received = talk(server, sized, chunked, missing, sized)
    found = [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]]
    assert found == [b"429", b"429", b"404", b"429"]
    assert len(full) >= 2


def test_nobody_is_asked_for_a_body_without_room(server, full):
    """A client that sends Expect: 100-continue is refused before it sends a body."""
    received = talk(server, append(b"", "content-length: 500000", "expect: 100-continue"))
    assert received.startswith(b"HTTP/1.1 429 ")
    assert b"100 Continue" not in received


@pytest.mark.parametrize(("length", "status"), [(99_999_999_999, b"413"), (500_000, b"429")])
def test_what_never_fits(server, full, length, status):
    """A body that can never fit gets 413 instead of 429."""
    assert talk(server, append(b"", f"content-length: {length}"))[9:12] == status


def test_a_batch_that_is_known(server, monkeypatch):
    """A known batch needs no memory and so gets its receipt without room; a new one is refused."""
    named = {**TYPE, "idempotency-key": "p:1"}
    first = httpx.post(server.url + PATH, content=LINE, headers=named)
    budget = server.catalog._backend.budget
    monkeypatch.setattr(budget, "held_bytes", budget.limit_bytes)
    monkeypatch.setattr(server.context.waiting_room, "_patience_s", 0.1)
    assert httpx.post(server.url + PATH, content=LINE, headers=TYPE).status_code == 429
    again = httpx.post(server.url + PATH, content=LINE, headers=named)
    assert (first.status_code, again.json()) == (200, {**first.json(), "repeated": True})


def test_a_refused_body_that_never_ends(server, full, monkeypatch):
    """If the rest of a refused body never ends, the connection is closed after a while."""
    monkeypatch.setattr(connection, "LINGER_S", 0.2)
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=120) as made:
        made.sendall(append(LINE, "content-length: 500000"))
        received = b""
        while piece := made.recv(65536):
            received += piece
    assert received.startswith(b"HTTP/1.1 429 ")
    assert full


def test_bodies_are_decompressed_in_the_servers_threads(server, monkeypatch):
    """Bodies are decompressed in the server's pools, which bounds how many run in parallel."""
    names = []
    plain = Body.plain

    def seen(self):
        names.append(threading.current_thread().name)
        return plain(self)

    monkeypatch.setattr(Body, "plain", seen)
    packed = {"content-encoding": "gzip"}
    with httpx.Client(base_url=server.url, timeout=120) as web:
        assert web.post(PATH, content=gzip.compress(LINE), headers={**TYPE, **packed}).status_code == 200
        query = gzip.compress(b"SHOW PARTITIONS")
        assert web.post("/v1/query", content=query, headers={"content-type": "text/plain", **packed}).status_code == 200
    assert [name.split("-")[0] for name in names] == ["append", "read"]
