"""The load generator: its counts, against real servers and against sockets that misbehave."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from effort import share_of

import aggregator
from aggregator import InvalidRequestError
from aggregator.cli import run as run_command
from aggregator.client.load import Load, Outcome, Request, Target, appends, percentiles, reads, run
from aggregator.client.load.figures import Figures, total
from aggregator.client.load.work import events_batch
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http


@pytest.fixture
def server(tmp_path):
    """A server over a new catalog."""
    with (
        aggregator.open(tmp_path / "data") as catalog,
        RunningServer(catalog, Settings(http=Http(bind="127.0.0.1:0"))) as running,
    ):
        running.catalog = catalog
        yield running


@contextmanager
def answering(answer: bytes, taken: list[int] | None = None) -> Iterator[str]:
    """A socket that reads part of each request, answers, and closes. taken: receives the bytes of each request."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            size = len(connection.recv(65_536))
            with connection, contextlib.suppress(OSError):
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(1 << 20):
                    size += len(piece)
            if taken is not None:
                taken.append(size)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # closing alone does not wake the thread
        listener.close()


def send(url: str, *requests: Request) -> list[Outcome]:
    """Send a request over one connection, which is closed at the end."""
    target = Target(url)
    try:
        return [target.send(request) for request in requests]
    finally:
        target.close()


def test_events():
    """The events have the requested number, spaces and size, and half of their bytes compress."""
    for count, payload in ((100, 128), (7, 1), (5, 0)):
        batch = events_batch(3, count, payload, 10)
        batch.validate(full=True)
        assert len(batch) == count
        assert {len(data) for data in batch["data"].to_pylist()} == {payload}
        assert set(batch["space"].to_pylist()) <= {f"space-{n}" for n in range(10)}
        assert all(data.startswith(b"-" * (payload // 2)) for data in batch["data"].to_pylist())


FORMS = [
    ("native", "arrow", "none"),
    ("native", "jsonl", "gzip"),
    ("native", "arrow", "zstd"),
    ("plateau", "arrow", "none"),
]


@pytest.mark.parametrize(("interface", "body", "compression"), share_of(FORMS, 2))
def test_every_form_is_stored(server, interface, body, compression):
    """All events counted as stored are stored, in an open loop at its rate and in a closed one."""
    topic = "native" if interface == "native" else "pl"
    if interface == "native":
        server.catalog.create_topic(topic)
    facts = run(Load(server.url, 0.3, 3), appends(interface, topic, ["0", "1"], body, 50, 40, 5, compression))
    assert facts["failed"] == facts["shed"] == 0
    assert facts["events"] == 50 * facts["done"] == server.catalog.topic(topic).scan().count() > 0
    assert facts["latency_ms"]["p50"] <= facts["latency_ms"]["p99.9"] <= facts["latency_ms"]["max"]
    facts = run(Load(server.url, 0.5, 3, rate=20.0), reads(interface, topic, "0", 5))
    assert (facts["done"], facts["failed"]) == (10, 0)
    assert facts["answer_mb_per_s"] > 0


def test_a_missing_topic_is_a_failure(server):
    """A missing topic is counted as a failure with its status, not as done and not as shed."""
    facts = run(Load(server.url, 0.2, 1), appends("native", "absent", ["0"], "arrow", 5, 5, 5))
    assert facts["done"] == facts["shed"] == 0
    assert facts["errors"] == {"status 404": facts["failed"]}


def test_an_early_refusal_ends_the_sending():
    """An early refusal is read before a large body is sent; a small body goes with its headers."""
    body = bytes(50_000_000)
    taken = []
    with answering(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nbusy", taken) as url:
        assert [outcome.status for outcome in send(url, *[Request("POST", "/x", (), body)] * 2)] == [429, 429]
        facts = run(Load(url, 0.2, 2), [Request("POST", "/x", (), body)])
        assert send(url, Request("POST", "/x", (), b"small"))[0].status == 429
    assert max(taken) < 1000
    assert facts["shed"] == facts["requests"] > 0
    assert facts["refusal_ms"]["p50"] > 0


def test_broken_answers_are_failures():
    """A missing answer, half an answer and an answer that is not HTTP are failures."""
    for answer in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", b"hello\r\n\r\n"):
        with answering(answer) as url:
            (outcome,) = send(url, Request("GET", "/", ()))
            assert outcome.status == 0
            assert outcome.error
    assert send("http://127.0.0.1:9", Request("GET", "/", ()))[0].error == "ConnectionRefusedError"
    with pytest.raises(InvalidRequestError):
        Target("127.0.0.1:9")


def test_waiting_for_a_connection_counts():
    """In an open loop a stalled server is charged for the requests that were due meanwhile."""
    lock = threading.Lock()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        with connection:
            for number in range(10):
                connection.recv(65_536)
                if number == 0:
                    threading.Event().wait(0.5)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            with lock:
                pass

    threading.Thread(target=serve, daemon=True).start()
    facts = run(Load(f"http://127.0.0.1:{listener.getsockname()[1]}", 0.1, 1, rate=100.0), [Request("GET", "/", ())])
    listener.close()
    assert facts["done"] == 10
    assert facts["late"] >= 9  # on a busy machine the first as well
    assert facts["latency_ms"]["p50"] > 300


def test_figures():
    """Percentiles equal NumPy's; figures of several threads add up."""
    assert percentiles([]) is None
    assert percentiles([0.001 * n for n in range(1, 101)]) == {"p50": 50.5, "p99": 99.01, "p99.9": 99.901, "max": 100.0}
    one, other = Figures(), Figures()
    one.add(200, 10, 0.5, 0.4, 7, "")
    one.add(429, 10, 0.5, 0.4, 7, "")
    other.add(0, 10, 0.5, 0.4, 7, "TimeoutError")
    other.add(200, 10, 0.1, 0.1, 7, "")
    facts = total([one, other]).report(2.0)
    assert (facts["requests"], facts["done"], facts["shed"], facts["failed"]) == (4, 2, 1, 1)
    assert (facts["events"], facts["events_per_s"]) == (20, 10)
    assert facts["refusal_ms"]["p50"] == 400


def test_command(server, capsys):
    """`aggregator bench --url` prints a table, or JSON with --json; an error is one line."""
    url = ["bench", "--url", server.url, "--seconds", "0.2", "--batch", "20"]
    assert run_command([*url, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["events"] == 20 * facts["done"] == server.catalog.topic("bench").scan().count()
    assert run_command([*url, "--work", "read", "--rate", "20", "--spaces", "3"]) == 0
    shown = capsys.readouterr().out
    assert "p99.9" in shown
    assert "20 requests/s" in shown
    for wrong in (
        [*url, "--interface", "plateau", "--body", "jsonl"],
        ["bench", "--url", "http://127.0.0.1:9"],
        ["bench", "--url", "nowhere"],
    ):
        assert run_command(wrong) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert pa.table(server.catalog.topic("bench").scan()).num_rows == facts["events"]
