"""Long answers end with their token: revoked, expired, or with fewer rights."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace

import pyarrow as pa
import pytest
from effort import share_of
from served import served

from aggregator.server import RunningServer
from aggregator.server.control import arrival_waiter, open_responses, tokens
from aggregator.server.control.tokens import FILE, create, read_tokens, revoke

SOON_S = 60.0  # on a busy machine; otherwise moments
TAIL = "GET /v1/tail?query=SELECT"
ROWS, ROW_BYTES = 40_000, 500


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    """Check tokens more often than once a second."""
    monkeypatch.setattr(tokens, "_LOOK_AGAIN_S", 0.05)
    monkeypatch.setattr(arrival_waiter, "_LOOK_S", 0.05)
    monkeypatch.setattr(open_responses, "CHECK_EVERY_S", 0.05)


@pytest.fixture
def shop(tmp_path) -> Iterator[RunningServer]:
    """A server with tokens, a topic of some megabytes, and a stream."""
    create(tmp_path / "data" / FILE, "root", ["admin"])
    with served(tmp_path / "data") as running:
        texts = pa.array([b"x" * ROW_BYTES] * ROWS)
        spaces = pa.array(["s"] * ROWS)
        times = pa.array(range(ROWS), pa.timestamp("us", "UTC"))
        running.catalog.create_topic("big").append(pa.table({"space": spaces, "timestamp": times, "data": texts}))
        running.catalog.write({"app": "web"}, [{"msg": "first"}])
        yield running


def ask(server: RunningServer, token: str, request: str, body: str = "") -> socket.socket:
    """A client with small buffers that has sent its request."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    client.settimeout(60)
    client.connect((host, int(port)))
    head = f"{request} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json"
    client.sendall(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
    return client


def heard(client: socket.socket, word: bytes) -> None:
    """Read until a word arrives."""
    got = b""
    while word not in got:
        more = client.recv(4096)
        assert more, got
        got += more


def rest(client: socket.socket) -> tuple[bytes, bool]:
    """What else arrives within a while, and whether the connection was broken."""
    got = b""
    client.settimeout(SOON_S)
    try:
        while more := client.recv(1 << 16):
            got += more
            if got.endswith(b"0\r\n\r\n"):
                return got, False
    except ConnectionResetError:
        pass
    return got, True


@contextlib.contextmanager
def appending(server: RunningServer) -> Iterator[None]:
    """Append records continuously, so that a tail always has something to send."""
    stop = threading.Event()

    def append() -> None:
        while not stop.wait(0.02):
            server.catalog.write({"app": "web"}, [{"msg": "more"}])

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def take_away(server: RunningServer, how: str) -> None:
    """Make the token `web` invalid."""
    path = server.catalog.path / FILE
    if how == "revoked":
        revoke(path, "web")
    elif how == "expired":
        server.context.authority.now = lambda: dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
    else:
        scopes, topics = (("write",), None) if how == "other scope" else (("read",), ("other",))
        made = [replace(t, scopes=scopes, topics=topics) if t.name == "web" else t for t in read_tokens(path)]
        fresh = path.with_name("fresh")
        fresh.write_text(json.dumps({"tokens": [asdict(token) for token in made]}))
        fresh.replace(path)


def new_token(server: RunningServer) -> str:
    """A token `web` that may read for an hour."""
    ends = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    return create(server.catalog.path / FILE, "web", ["read"], None, ends)


WAYS = ["revoked", "expired", "other scope", "other topic"]


@pytest.mark.parametrize("how", WAYS)
def test_a_tail_ends_with_its_token(shop, how):
    """A tail says why it ends and terminates its answer properly; later records are not sent."""
    token = new_token(shop)
    shop.context.authority._looked = 0.0
    with ask(shop, token, TAIL) as client, appending(shop):
        heard(client, b"more")
        take_away(shop, how)
        began = time.monotonic()
        got, broken = rest(client)
        assert time.monotonic() - began < SOON_S
        assert not broken
        event, data = got.rpartition(b"event: end\n")[2].split(b"\n\n")[0], got
        status = json.loads(event.removeprefix(b"data: "))["status"]
        assert status == (401 if how in ("revoked", "expired") else 403)
        assert b"msg" not in data.rpartition(b"event: end")[2]


@pytest.mark.parametrize("how", share_of(WAYS, 2))
def test_a_long_scan_breaks_off_with_its_token(shop, how):
    """A slow reader gets nothing more, not even buffered data, and its part does not look complete."""
    token = new_token(shop)
    shop.context.authority._looked = 0.0
    with ask(shop, token, "GET /v1/topics/big/events") as client:
        heard(client, b"xxx")
        take_away(shop, how)
        end = time.monotonic() + SOON_S
        while shop.context.open_requests and time.monotonic() < end:
            time.sleep(0.02)
        assert not shop.context.open_requests
        got, broken = rest(client)
        assert broken
        assert len(got) < ROWS * ROW_BYTES // 2


@pytest.mark.parametrize("how", WAYS)
def test_a_long_poll_ends_with_its_token(shop, how):
    """A long poll is refused like a new request."""
    token = new_token(shop)
    shop.context.authority._looked = 0.0
    body = json.dumps({"query": "SELECT", "position": "tail", "wait": 30})
    with ask(shop, token, "POST /v1/query", body) as client:
        while not shop.context.open_requests:
            time.sleep(0.01)
        take_away(shop, how)
        client.settimeout(SOON_S)
        status = client.recv(4096).split(b" ")[1]
        assert status == (b"401" if how in ("revoked", "expired") else b"403")


def test_a_scan_of_a_token_that_stays(shop):
    """Changes to other tokens do not end an answer."""
    token = new_token(shop)
    other = create(shop.catalog.path / FILE, "other", ["read"])
    shop.context.authority._looked = 0.0
    with ask(shop, token, TAIL) as client, ask(shop, other, TAIL) as ended, appending(shop):
        heard(client, b"more")
        heard(ended, b"more")
        revoke(shop.catalog.path / FILE, "other")
        assert b"event: end" in rest(ended)[0]
        heard(client, b"more")
