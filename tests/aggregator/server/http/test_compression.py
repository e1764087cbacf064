"""Answers in gzip and zstd: negotiated by Accept-Encoding, still streamed, with the same content."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import subprocess
import zlib
from contextlib import ExitStack

import httpx
import pyarrow as pa
import pytest
from effort import pairs_of
from served import served

from aggregator.server.http import compression
from aggregator.server.http.compression import choose
from tests.aggregator.server.http.test_connection import answer_on
from tests.aggregator.server.http.test_limits import raw

LINE = b'{"space": "a", "timestamp": 1, "data": "0123456789"}\n'
EVENTS = "/v1/topics/t/events"
ROWS = 12_000


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("compression") / "data") as running:
        running.catalog.create_topic("t")
        for number in range(4):  # of several schema families, so that an answer has several chunks
            lines = b"".join(b'{"space": "%d", "timestamp": %d, "data": "%032d"}\n' % (number, at, at * at)
                             for at in range(ROWS))  # fmt: skip
            media = {"content-type": "application/x-ndjson"}
            httpx.post(running.url + EVENTS, content=lines, headers=media).raise_for_status()
        yield running


def got(server, path, accepted, **headers):
    """An answer as transferred: headers and stored bytes."""
    with httpx.stream("GET", server.url + path, headers={"accept-encoding": accepted, **headers}) as answer:
        return answer.headers, b"".join(answer.iter_raw())


def plain(stored, coding):
    if coding == "gzip":
        return gzip.decompress(stored)
    with pa.CompressedInputStream(pa.BufferReader(stored), coding) as stream:
        return stream.read()


@pytest.mark.parametrize(
    ("coding", "media", "path"),
    pairs_of(
        ["gzip", "zstd"],
        ["application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"],
        [EVENTS, f"{EVENTS}?limit=100", "/openapi.json"],
    ),
)
def test_an_answer_behind_its_coding(server, coding, media, path):
    """A compressed answer, streamed or whole, decompresses to the plain one and is smaller."""
    accept = {} if path == "/openapi.json" else {"accept": media}
    headers, stored = got(server, path, coding, **accept)
    before, wanted = got(server, path, "identity", **accept)
    assert headers["content-encoding"] == coding
    assert "Accept-Encoding" in headers["vary"]
    assert plain(stored, coding) == wanted
    assert len(stored) < len(wanted)
    if "content-length" in headers:
        assert int(headers["content-length"]) == len(stored)
    assert "content-encoding" not in before


def test_long_answers_stay_streamed(server):
    """Long answers are sent in chunks that can be read as they arrive."""
    headers, stored = got(server, EVENTS, "gzip")
    assert "content-length" not in headers
    assert stored.count(b"\x00\x00\xff\xff") >= 2  # ends of flushed pieces


def test_short_answers_go_as_they_are(server):
    """Short answers are not compressed: that would make them longer."""
    headers, stored = got(server, "/v1/topics", "gzip, zstd")
    assert "content-encoding" not in headers
    assert json.loads(stored)


CHOICES = {
    "": None, "gzip": "gzip", "zstd": "zstd", "gzip, zstd": "zstd", "gzip, deflate, br, zstd": "zstd",
    "gzip;q=1.0, zstd;q=0.5": "gzip", "GZIP": "gzip", "x-gzip": "gzip", "br": None, "*": None, "gzip;q=0": None,
    "zstd;q=0, gzip;q=0.1": "gzip", "gzip;q=nonsense": None, ",;,gzip ;q=0.5": "gzip",
}  # fmt: skip


@pytest.mark.parametrize("accepted", CHOICES)
def test_the_choice(accepted):
    """The client's preferred coding is chosen, never one that it did not list."""
    assert choose(accepted) == CHOICES[accepted]


@pytest.mark.parametrize("accepted", ["gzip", "zstd", "zstd, gzip"])
def test_a_tail_comes_at_once(server, accepted):
    """Each event can be read when sent, before the next one exists."""
    server.catalog.write({"app": accepted}, [{"msg": "first"}])
    query = f"/v1/tail?query=SELECT%20FROM%20%7Bapp%3D%22{accepted.replace(' ', '%20')}%22%7D&position=head"
    with httpx.stream("GET", server.url + query, headers={"accept-encoding": accepted}, timeout=120) as answer:
        assert answer.headers.get("content-encoding") == (None if accepted == "zstd" else "gzip")
        pieces = answer.iter_bytes()
        for word in (b"first", b"second"):
            text = b""
            while word not in text:
                text += next(pieces)
            if word == b"first":
                server.catalog.write({"app": accepted}, [{"msg": "second"}])


def test_only_so_many_at_a_time(server, monkeypatch):
    """Memory of compressors is bounded: further answers are not compressed."""
    monkeypatch.setattr(compression, "MOST_AT_ONCE", 1)
    query = "/v1/tail?query=SELECT%20FROM%20%7Bapp%3Dnobody%7D"
    with ExitStack() as stack:
        while True:  # tails of other tests may still hold the place until the server notices their end
            tail = httpx.stream("GET", server.url + query, headers={"accept-encoding": "gzip"}, timeout=120)
            answer = stack.enter_context(tail)
            if "content-encoding" in answer.headers:
                break
        next(answer.iter_raw())
        assert "content-encoding" not in got(server, EVENTS, "gzip")[0]
        assert "content-encoding" in got(server, "/openapi.json", "gzip")[0]
    server.catalog.write({"app": "nobody"}, [{"msg": "so that it is seen"}])


def test_a_reader_that_stops(server):
    """After a reader has left midway, other answers are still compressed."""
    with raw(server, b"GET %b HTTP/1.1\r\nhost: x\r\naccept-encoding: zstd\r\n\r\n" % EVENTS.encode()) as made:
        made.recv(1000)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert got(server, "/openapi.json", "gzip")[0]["content-encoding"] == "gzip"


def test_oldest_clients(server):
    """HTTP/1.0 clients may request compression, too."""
    with raw(server, b"GET /openapi.json HTTP/1.0\r\naccept-encoding: gzip\r\n\r\n") as made:
        status, headers, body = answer_on(made)
    assert (status, headers["content-encoding"]) == (200, "gzip")
    assert json.loads(gzip.decompress(body))["openapi"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl(server):
    """`curl --compressed` reads a streamed answer."""
    done = subprocess.run(["curl", "-s", "--compressed", server.url + EVENTS], capture_output=True, check=True)
    assert done.stdout == got(server, EVENTS, "identity")[1]


@pytest.mark.parametrize("bare", [False, True])
def test_bodies_in_deflate(server, bare):
    """Bodies in deflate may be in zlib's format, as the RFC says, or in raw deflate, as some clients send."""
    coder = zlib.compressobj(6, zlib.DEFLATED, -15 if bare else 15)
    stored = coder.compress(LINE * 100) + coder.flush()
    headers = {"content-type": "application/x-ndjson", "content-encoding": "deflate"}
    for body, status in ((stored, 200), (stored[:-8], 400), (stored + b"x", 400), (b"nonsense", 400)):
        answer = httpx.post(server.url + EVENTS + "?partition=deflate", content=body, headers=headers)
        assert answer.status_code == status, answer.text
    assert answer.json()["type"] == "/problems/invalid-body"
