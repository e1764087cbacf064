"""Hostile and broken clients are refused or cut off, and the server survives (R17, R18, R20)."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from urllib.parse import quote

import httpx
import numpy as np
import pyarrow as pa
import pytest
from effort import share_of
from served import served

from aggregator.server import Settings
from aggregator.server.config.settings import Http, Work
from aggregator.server.http import connection as connection_module
from tests.aggregator.server.plateau.test_plateau import ARROW, arrow_file, records, send

QUICK = Settings(http=Http(stall_s=1.5))  # no less: a busy machine delays good clients, too


def address(server):
    """The host and port of a server."""
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)


def raw(server, data=b""):
    """A connection that has sent some bytes."""
    made = socket.create_connection(address(server), timeout=60)
    made.sendall(data)
    return made


def until_cut(connection):
    """Everything a connection receives before the server ends it."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            received += piece
    return received


HEAD = b"POST /topic/t/partition/p HTTP/1.1\r\nhost: x\r\ncontent-type: " + ARROW.encode() + b"\r\n"
STALLED = {
    "nothing": b"",
    "half a request line": b"GET /o",
    "half of the headers": HEAD + b"x-more: ",
    "no body": HEAD + b"content-length: 1000\r\n\r\n",
    "half a body": HEAD + b"content-length: 1000\r\n\r\n" + b"x" * 500,
    "half a chunk": HEAD + b"transfer-encoding: chunked\r\n\r\n400\r\nxxx",
}


def test_stalled_connections_are_cut(tmp_path):
    """A client that stalls anywhere is cut off; others are served meanwhile."""
    with served(tmp_path, QUICK) as server, contextlib.ExitStack() as stack:
        began = time.monotonic()
        stalled = {name: [stack.enter_context(raw(server, data)) for _ in range(5)] for name, data in STALLED.items()}
        with httpx.Client(base_url=server.url) as web:
            assert send(web, records(3)) == {"start": 0, "end": 3}
        for name, connections in stalled.items():
            for connection in connections:
                received = until_cut(connection)
                assert received.startswith(b"" if name == "nothing" else b"HTTP/1.1 408 "), name
                assert name != "nothing" or received == b""
        assert time.monotonic() - began < 60


def test_drops_are_no_progress(tmp_path):
    """A body or headers that arrive a byte at a time are cut off, too."""
    with served(tmp_path, QUICK) as server:
        for begin in (b"GET / HTTP/1.1\r\n", HEAD + b"content-length: 1000\r\n\r\n"):
            with raw(server, begin) as connection:
                connection.settimeout(0.1)
                began = time.monotonic()
                received = None
                while received is None and time.monotonic() - began < 60:
                    with contextlib.suppress(TimeoutError):
                        connection.sendall(b"x")
                        received = connection.recv(1000)
                assert received.startswith(b"HTTP/1.1 408 ")


def test_readers_that_stall_are_cut(tmp_path):
    """A client that does not read its answer loses the connection, and its memory is released."""
    with served(tmp_path, QUICK) as server, httpx.Client(base_url=server.url) as web:
        for number in range(3):
            send(web, records(1, number, blob=pa.array([os.urandom(9_000_000)])))
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(address(server))
        query = f"GET /topic/clicks/partition/web-1/records?start=0 HTTP/1.1\r\nhost: x\r\naccept: {ARROW}\r\n\r\n"
        over = threading.Event()
        server.context.listeners.append(lambda told: over.set())
        connection.sendall(query.encode())
        held = server._server.server_state.connections
        assert over.wait(60)
        until = time.monotonic() + 60  # an idle connection would stay open for 75 s
        while len(held) > 1 and time.monotonic() < until:  # one belongs to the other client
            time.sleep(0.05)
        assert len(held) == 1
        assert not server.context.open_requests
        connection.close()


def wait_for_requests(server, count):
    """Wait until this many requests are active, for less time than a long poll may wait."""
    until = time.monotonic() + 45
    while server.context.open_requests != count and time.monotonic() < until:
        time.sleep(0.01)
    assert server.context.open_requests == count


def test_a_long_poll_ends_with_its_client(server):
    """A long poll ends when its client leaves."""
    asked = b'{"query": "SELECT", "position": "tail", "wait": 60}'
    head = (
        f"POST /v1/query HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(asked)}\r\n\r\n"
    )
    with raw(server, head.encode() + asked):
        wait_for_requests(server, 1)
    wait_for_requests(server, 0)


def tailing(server):
    """A connection with an admitted tail."""
    while True:
        made = raw(server, b"GET /v1/tail?query=SELECT HTTP/1.1\r\nhost: x\r\n\r\n")
        if b" 200 " in made.recv(65536):
            return made
        made.close()  # 429: the others are reading just now
        time.sleep(0.05)


def test_an_append_that_wakes_many_tails_cuts_none(tmp_path):
    """Tails woken by an append take turns if only a few fit, and none is cut off."""
    few = Settings(work=Work(read_threads=1, waiting=3))
    with served(tmp_path, few) as server, contextlib.ExitStack() as stack:
        server.catalog.write({"app": "web"}, [{"msg": "before"}])
        tails = [stack.enter_context(tailing(server)) for _ in range(12)]
        server.catalog.write({"app": "web"}, [{"msg": "hello"}])
        for tail in tails:
            received = b""
            while b"hello" not in received:
                piece = tail.recv(65536)
                assert piece, "cut"
                received += piece


@pytest.mark.parametrize(
    "path", ["/v1/logs", "/_bulk", "/loki/api/v1/push", "/v1/lines?tags=a%3Db", "/topic/t/partition/p"]
)
def test_a_client_that_leaves_is_no_failure(server, caplog, path):
    """A connection closed within a body is not logged as an error."""
    media = {"/v1/logs": "application/json", "/_bulk": "application/json", "/v1/lines?tags=a%3Db": "text/plain"}
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {media.get(path, ARROW)}\r\ncontent-length: 100\r\n\r\nx"
    with raw(server, head.encode()):
        wait_for_requests(server, 1)
    wait_for_requests(server, 0)
    assert [record for record in caplog.records if record.name.startswith("aggregator")] == []


def test_headers_over_the_limit(server):
    """Headers over 64 kB are answered 431, in many headers, one, or an endless one; 32 kB are accepted."""
    for headers in ({"x-a": "y" * 70_000}, {f"x-{number}": "y" * 1000 for number in range(70)}):
        with raw(server) as connection:
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            with contextlib.suppress(ConnectionError):
                connection.sendall(f"GET /ok HTTP/1.1\r\nhost: x\r\n{lines}\r\n".encode())
            assert b" 431 " in connection.recv(65536)
    with raw(server, b"GET /ok HTTP/1.1\r\n") as connection, contextlib.suppress(ConnectionError):
        for _ in range(200):
            connection.sendall(b"x" * 1000)
        assert b" 431 " in connection.recv(65536)
    assert httpx.get(f"{server.url}/ok", headers={"x-a": "y" * 32_000}).status_code == 200


def test_a_body_without_end(server, monkeypatch):
    """A chunked body over the limit is answered 413, and the rest is not read for long."""
    monkeypatch.setattr(connection_module, "LINGER_S", 0.5)
    with raw(server, HEAD + b"transfer-encoding: chunked\r\n\r\n") as connection:
        chunk = b"%x\r\n" % 1_000_000 + b"x" * 1_000_000 + b"\r\n"
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - began < 60:
                connection.sendall(chunk)
        assert time.monotonic() - began < 60
    assert httpx.get(f"{server.url}/ok").status_code == 200


def test_bodies_in_memory(tmp_path):
    """All bodies together keep to their budget: one too many gets 429, and the memory is released afterwards."""
    settings = Settings(http=Http(stall_s=120), work=Work(body_bytes=3_000_000))
    body = HEAD + b"content-length: 2000000\r\n\r\n" + b"x" * 1_900_000
    with served(tmp_path, settings) as server, raw(server, body) as first:
        begin = time.monotonic()
        while server.context.body_bytes < 1_900_000 and time.monotonic() - begin < 60:
            time.sleep(0.01)
        with raw(server, body) as second:
            assert b" 429 " in second.recv(65536).split(b"\r\n")[0]
        first.close()
        while server.context.body_bytes and time.monotonic() - begin < 60:
            time.sleep(0.01)
        assert server.context.body_bytes == 0


def damaged(body, number):
    """A body with some bytes changed, cut or doubled."""
    dice = random.Random(number)
    changed = bytearray(body)
    for _ in range(dice.randint(1, 8)):
        at = dice.randrange(len(changed))
        match dice.randrange(4):
            case 0:
                changed[at] = dice.randrange(256)
            case 1:
                changed[at : at + 8] = dice.choice([b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7])
            case 2:
                del changed[at : at + dice.randint(1, 40)]
            case 3:
                changed[at:at] = changed[at : at + dice.randint(1, 40)]
    return bytes(changed)


def test_hostile_arrow(web):
    """Damaged Arrow files are answered 400 or stored as read; never 500, and a refused one creates no topic."""
    nested = pa.array([[{"a": "x"}], None, []], pa.list_(pa.struct([("a", pa.string())])))
    bodies = [
        arrow_file(records(3, s=pa.array(["a", None, "ccc"]), b=pa.array([b"", b"x", None]), n2=nested)),
        arrow_file(records(3, d=pa.array(["a", "b", "a"]).dictionary_encode())),
    ]
    refused = 0
    numbers = share_of(range(300), 3)
    for number in numbers:
        body = damaged(bodies[number % 2], number)
        answer = web.post("/topic/t/partition/p", content=body, headers={"content-type": ARROW})
        assert answer.status_code in (200, 400), (number, answer.text)
        refused += answer.status_code == 400
    assert refused > len(numbers) / 3
    assert send(web, records(1))["start"] == 0


def test_bombs(web):
    """Small bodies that expand enormously are refused before memory is allocated."""
    zeros = pa.array(np.zeros(900_000, np.int64))
    table = pa.table({"time": zeros} | {f"c{number}": zeros for number in range(12)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    body = sink.getvalue().to_pybytes()
    assert len(body) < 100_000
    answer = web.post("/topic/t/partition/p", content=body, headers={"content-type": ARROW})
    assert answer.status_code == 400
    assert "bytes when decompressed" in answer.json()["message"]
    assert web.get("/topics").json() == {"topics": []}


JSON_BODIES = [b"[" * 100_000, b'{"a":' * 50_000, b"1" * 100_000, b'{"p": 1e999}', b'{"p": NaN}', b'"\\ud800"', b"\0"]


@pytest.mark.parametrize("path", ["/topic/clicks/records", "/v1/query", "/v1/topics/clicks/events"])
def test_hostile_json(web, path):
    """Deep, endless and odd JSON is answered 4xx."""
    send(web, records(1))
    for body in JSON_BODIES:
        for kind in ("application/json", "application/x-ndjson"):
            answer = web.post(path, content=body, headers={"content-type": kind})
            assert 400 <= answer.status_code < 500, (path, body[:20], answer.text)


NAMES = [
    "..", ".", "...", "../../etc/passwd", "a/b", "/etc", "a\0b", "\0", "x" * 300, "é", "e\u0301", "CASE", "case", "con",
    "%2e%2e", "a%00", " ", "a b", "?", "#", "&a=b", "\\..\\", "\u202e", "名", "0", "007", "1e3", "a.b", "-", "~",
    "'; DROP TABLE topics; --", "{x}", "*", "tokens.json", "manifest.sqlite", "😀",
]  # fmt: skip


def test_hostile_names(server, web, tmp_path):
    """An accepted name is returned unchanged, with its own topic and partition; no file is outside the root."""
    before = sorted(tmp_path.iterdir())
    for number, name in enumerate(NAMES):
        path = f"/topic/{quote(name, safe='')}/partition/{quote(name, safe='')}"
        if name in ("..", "."):  # clients would resolve these before sending: here they are sent unchanged
            path = "/topic/%2e%2e/partition/%2e%2e" if name == ".." else "/topic/%2e/partition/%2e"
        line = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {ARROW}\r\n"
        body = arrow_file(records(1, number))
        with raw(server, f"{line}content-length: {len(body)}\r\n\r\n".encode() + body) as connection:
            assert b" 200 " in until_cut(connection).split(b"\r\n")[0], name
    assert {topic["name"] for topic in web.get("/topics").json()["topics"]} == set(NAMES)
    for number, name in enumerate(NAMES):
        (event,) = server.catalog.topic(name).read(name)
        assert event.timestamp == number * 1_000_000
    for path in ("/topic/%ff/partition/p", "/topic/" + "x" * 2000 + "/partition/p", "/topic//partition/p"):
        answer = web.post(path, content=arrow_file(records(1)), headers={"content-type": ARROW})
        assert 400 <= answer.status_code < 500
    assert sorted(tmp_path.iterdir()) == before


GARBAGE = [
    b"\x16\x03\x01\x02\0", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 100,
    b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET http://[ HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /ok HTTP/1.1\r\nhost: x\r\ncontent-length: 5, 6\r\n\r\nhello",
    b"POST /topic/t/partition/p HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999999\r\n\r\n",
]  # fmt: skip


def test_what_is_no_http(tmp_path):
    """Bytes that are not HTTP get 400 or nothing."""
    with served(tmp_path, QUICK) as server:
        for data in GARBAGE:
            with raw(server, data) as connection:
                connection.shutdown(socket.SHUT_WR)
                received = until_cut(connection)
                assert received.startswith(b"HTTP/1.1 400 "), (data, received)
        assert httpx.get(f"{server.url}/ok").status_code == 200


def test_pages_of_other_sites(web):
    """Browser requests from pages of other sites are refused; the server's own /docs page is allowed."""
    here = str(web.base_url).removesuffix("/")
    for origin in ("https://example.org", "null", "http://127.0.0.1:1", here.replace("http", "ftp") + ".example.org"):
        answer = web.post("/v1/query", content=b"SHOW PARTITIONS", headers={"origin": origin})
        assert (origin, answer.status_code) == (origin, 403)
    assert web.get("/openapi.json", headers={"origin": here}).status_code == 200


def test_many_connections_at_once(server):
    """Fifty concurrent clients with a connection each get the right answers, some after a retry."""
    starts: list[tuple[int, int]] = []

    def work(number):
        path, body = f"/topic/clicks/partition/p{number % 4}", arrow_file(records(10, number))
        with httpx.Client(base_url=server.url, timeout=60) as web:
            for _ in range(100):
                answer = web.post(path, content=body, headers={"content-type": ARROW})
                if answer.status_code == 200:
                    starts.append((number % 4, answer.json()["span"]["start"]))
                    return
                assert answer.status_code == 429
                time.sleep(0.1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sizes = [13, 13, 12, 12]
    assert sorted(starts) == [(part, 10 * place) for part, size in enumerate(sizes) for place in range(size)]
