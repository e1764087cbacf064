"""Streamed answers: the reader sets the pace, a reader that leaves ends the scan, a failure breaks the connection."""

from __future__ import annotations

import base64
import contextlib
import io
import random
import socket
import threading
import time

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest
import uvicorn
from served import served
from starlette.applications import Starlette
from starlette.routing import Route

import aggregator
from aggregator.errors import StoreUnreachableError
from aggregator.server.bodies.shared.media import ARROW_STREAM, CSV, LINES, OUTPUTS, PARQUET
from aggregator.server.control.thread_pools import WorkPool
from aggregator.server.http.responses import CHUNK_BYTES, encode, stream_response

ROWS = 1_000
_RANDOM = random.Random(1)  # which Parquet cannot compress
DATA = [base64.b64encode(_RANDOM.randbytes(750)) for _ in range(ROWS)]
BATCH = pa.record_batch({"n": pa.array(range(ROWS)), "data": pa.array(DATA)})


class Source:
    """Endless batches, or batches up to a failure; counts how many were taken."""

    schema = BATCH.schema

    def __init__(self, fails_after: int | None = None) -> None:
        self.made = 0
        self.closed = threading.Event()
        self._fails_after = fails_after

    def batches(self):
        try:
            while self.made != self._fails_after:
                self.made += 1
                yield BATCH
            raise OSError("the disk is gone")
        finally:
            self.closed.set()


@contextlib.contextmanager
def answering(source):
    """A real server that answers every request with the source. Yields its address."""
    pool = WorkPool("read", 2, 2)

    async def endpoint(request):
        return await stream_response(pool, lambda: source, request.query_params["media"])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(Starlette(routes=[Route("/", endpoint)]), log_config=None, lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(120)
            pool.close()


def connect(address, media) -> socket.socket:
    """A client with small buffers that has sent its request."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    client.settimeout(60)
    client.connect(address)
    client.sendall(f"GET /?media={media} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    return client


def settled(source) -> int:
    """The number of batches once no more are taken."""
    end, made = time.monotonic() + 60, -1
    while source.made != made:
        assert time.monotonic() < end, "it goes on and on"
        made = source.made
        time.sleep(0.3)
    return made


@pytest.mark.parametrize("media", OUTPUTS)
def test_a_slow_reader_sets_the_pace_and_its_leaving_ends_the_scan(media):
    """An endless answer is produced only as fast as it is read; when the client leaves, the source is closed."""
    source = Source()
    with answering(source) as address:
        with connect(address, media) as client:
            for _ in range(5):
                client.recv(1 << 14)
                time.sleep(0.05)
            made = settled(source)
            assert made < 40  # of a megabyte each: the system's own buffers contain a few
        assert source.closed.wait(60)


@pytest.mark.parametrize("media", OUTPUTS)
def test_a_failure_breaks_the_connection(media):
    """A scan that fails midway does not look like a complete one."""
    with answering(Source(fails_after=30)) as address:
        url = "http://{}:{}/".format(*address)
        with httpx.stream("GET", url, params={"media": media}) as answer, pytest.raises(httpx.RemoteProtocolError):
            answer.read()
        assert answer.status_code == 200


@pytest.mark.parametrize("media", OUTPUTS)
def test_chunks(media):
    """Large batches are cut, small ones combined; an empty answer has its header."""
    large = pa.record_batch({"data": pa.array([b"x" * 100] * 100_000)})
    sizes = [len(chunk) for chunk in encode(iter([large]), large.schema, media)]
    assert max(sizes) < 8 * CHUNK_BYTES
    small = [BATCH.slice(0, 1)] * 100
    assert len(list(encode(iter(small), BATCH.schema, media))) == 1
    empty = b"".join(encode(iter([]), BATCH.schema, media))
    expected = {LINES: b"", CSV: b'"n","data"\n'}
    if media == ARROW_STREAM:
        assert pa.ipc.open_stream(empty).read_all().schema == BATCH.schema
    elif media == PARQUET:
        assert pyarrow.parquet.read_table(io.BytesIO(empty)).schema == BATCH.schema
    else:
        assert empty == expected[media]


def test_small_batches_become_one():
    """Small batches are combined: each would cost the encoder and the reader as much as a large one."""
    (chunk,) = encode(iter([BATCH.slice(row, 1) for row in range(50)]), BATCH.schema, ARROW_STREAM)
    (batch,) = pa.ipc.open_stream(chunk)
    assert batch == BATCH.slice(0, 50)


class Short(Source):
    """A single small batch."""

    def batches(self):
        yield BATCH.slice(0, 10)


@pytest.mark.parametrize("media", OUTPUTS)
def test_a_short_answer_has_a_length(media):
    """A short answer is sent immediately, with its length."""
    with answering(Short()) as address:
        answer = httpx.get("http://{}:{}/".format(*address), params={"media": media})
    assert int(answer.headers["content-length"]) == len(answer.content) > 0
    assert answer.headers["content-type"].startswith(media)


def test_a_damaged_segment_breaks_the_connection(tmp_path):
    """Damage found midway in a scan, after events were sent, breaks the connection."""
    with served(tmp_path) as server, httpx.Client(base_url=server.url, timeout=120) as web:
        topic = server.catalog.create_topic("t")
        for start in (0, 50_000):
            numbers = range(start, start + 50_000)
            events = {"space": ["a"] * 50_000, "timestamp": numbers, "data": [str(hash(n)) * 3 for n in numbers]}
            topic.append(pa.table(events))
            server.catalog.seal()
        newest = max(tmp_path.rglob("*.esdb"), key=lambda path: path.stat().st_mtime_ns)
        stored = bytearray(newest.read_bytes())
        for at in range(1_000, len(stored) // 2, 500):
            stored[at] ^= 0xFF
        with newest.open("r+b") as file:
            file.write(stored)
        with web.stream("GET", "/v1/topics/t/events") as answer, pytest.raises(httpx.RemoteProtocolError):
            answer.read()
        assert answer.headers["content-encoding"] == "zstd"
        assert answer.num_bytes_downloaded > 100_000


def test_a_store_that_does_not_answer(tmp_path, monkeypatch):
    """If the store does not answer, the client is told to retry, not that data is damaged."""

    def refuse(name, start, end):
        raise StoreUnreachableError("the store does not answer: busy", path=name)

    aggregator.open(tmp_path / "data", store=(tmp_path / "store").as_uri()).close()
    with served(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=120) as web:
        server.catalog.create_topic("t").append([{"space": "a", "timestamp": 1, "data": b"x"}])
        server.catalog.seal()
        server.catalog.store.push()
        assert server.catalog.store.evict(keep_local={"bytes": 0})
        server.catalog._backend.objects.cache.clear()
        with monkeypatch.context() as patched:
            patched.setattr(server.catalog._backend.objects.store, "get_range", refuse)
            answer = web.get("/v1/topics/t/events")
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/store-failed")
        assert int(answer.headers["retry-after"]) > 0
        assert web.get("/v1/topics/t/events").status_code == 200
