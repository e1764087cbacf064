"""Slow readers: the server's memory for all of them is bounded and released when they leave."""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path

import pyarrow as pa
from effort import ALL
from served import Spawned

import aggregator
from aggregator.server.bodies.shared.media import ARROW_STREAM, CSV, LINES

RECORDS, RECORD_BYTES, STREAMS = 60_000, 1_000, 8
HELD_BYTES = 850 << 20  # for 24 readers; it was 1,512 MiB and grew with each reader
LEFT_BYTES = 300 << 20  # it was 1,445 MiB
TAIL = "GET /v1/tail?query=SELECT&position=head"


def make_catalog(path: Path) -> None:
    """Records of several streams and as many events, more than a window, sealed."""
    chance = random.Random(7)
    noise = chance.randbytes(RECORDS + RECORD_BYTES).hex()
    texts = pa.array([noise[row : row + RECORD_BYTES].encode() for row in range(RECORDS)])
    times = pa.array(range(RECORDS), pa.timestamp("us", "UTC"))
    spaces = pa.array([f"{{app=a{row % STREAMS}}}" for row in range(RECORDS)])
    with aggregator.open(path) as catalog:
        topic = catalog.create_topic("logs")
        topic.append(pa.table({"space": spaces, "timestamp": times, "data": texts}))
        catalog.seal()


def resident(server: Spawned) -> int:
    """The resident memory of a server in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) << 10


def answered(server: Spawned, request: str, accept: str = LINES, body: str = "") -> socket.socket:
    """A client with small buffers whose answer has begun; a server on a busy machine refuses some at first."""
    end = time.monotonic() + 60
    while True:
        client = ask(server, request, accept, body)
        if b" 429 " not in client.recv(1024)[:16] or time.monotonic() > end:
            return client
        client.close()
        time.sleep(0.2)


def ask(server: Spawned, request: str, accept: str = LINES, body: str = "") -> socket.socket:
    """A client with small buffers that has sent its request."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    client.settimeout(60)
    client.connect((host, int(port)))
    head = f"{request} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\ncontent-type: text/plain"
    client.sendall(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
    return client


def until(server: Spawned, most_bytes: int) -> int:
    """The server's memory once it is at most this, or after a while."""
    end = time.monotonic() + 60
    while (now := resident(server)) > most_bytes and time.monotonic() < end:
        time.sleep(0.05)
    return now


def test_what_slow_readers_cost(tmp_path):
    """Slow readers of 60 MB answers of each kind cost bounded memory together, and little once they left."""
    make_catalog(tmp_path / "data")
    events, query, records = "GET /v1/topics/logs/events", "POST /v1/query", "GET /v1/topics/logs/partitions/0/records"
    asked = [
        (events, LINES, ""), (events, CSV, ""), (events, ARROW_STREAM, ""), (query, LINES, "SELECT"),
        (query, "text/plain", "SELECT FROM {app=a1}"), (records, LINES, ""), (f"{records}?reverse=true", CSV, ""),
        (TAIL, "*/*", ""),
    ]  # fmt: skip
    with Spawned(tmp_path / "data") as server:
        before = resident(server)
        clients = [answered(server, *question) for question in asked for _ in range(3 if ALL else 1)]
        most = 0
        for _ in range(8):
            for client in clients:
                piece = client.recv(1024)
                assert piece
                assert b" 429 " not in piece[:16]
            most = max(most, resident(server) - before)
            time.sleep(0.1)
        for client in clients:
            client.close()
        assert most < HELD_BYTES
        assert until(server, before + LEFT_BYTES) - before <= LEFT_BYTES
