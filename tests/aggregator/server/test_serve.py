"""`aggregator serve` as a process: stopped, killed, with TLS, on public addresses."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import ssl
import threading
import time
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from certificates import CertificateAuthority
from effort import long
from served import Spawned, served

import aggregator
from aggregator import InvalidRequestError
from aggregator.cli import run
from aggregator.server import Settings, running
from aggregator.server.config.settings import Http, Tls
from aggregator.server.context import Context
from aggregator.server.control import tokens
from aggregator.server.running import check_public, keep_little_memory
from tests.aggregator.server.plateau.test_plateau import ARROW, arrow_file, records


def append_until_refused(url, span_of, count=10):
    """Append small batches until the server ends, and keep the acknowledged spans."""
    with httpx.Client(base_url=url, timeout=120) as web, contextlib.suppress(httpx.HTTPError):
        while True:
            first = len(span_of) * count
            answer = web.post("/topic/t/partition/p", content=arrow_file(records(count, first)),
                              headers={"content-type": ARROW})  # fmt: skip
            if answer.status_code != 200:
                return
            span_of.append(answer.json()["span"])


@pytest.fixture
def logging_as_it_was():
    """Restore logging, which a server in this process configures."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, pytest.param(signal.SIGKILL, marks=long)])
@pytest.mark.usefixtures("hangups")
def test_stops_under_load(tmp_path, number, capsys, logging_as_it_was):
    """Stopped or killed amid appends: what was acknowledged is there once. On SIGTERM and SIGHUP it exits with 0,
    finishes the open request and ends endless answers. Meanwhile another server of the catalog names the holder.
    """
    body = arrow_file(records(1000))
    halfway, stopping = threading.Event(), threading.Event()
    answers = []

    def slowly():
        yield body[:100]
        halfway.set()
        stopping.wait(120)
        yield body[100:]

    def open_request():
        with contextlib.suppress(httpx.HTTPError):
            path = f"{server.url}/topic/slow/partition/p"
            answers.append(httpx.post(path, content=slowly(), headers={"content-type": ARROW}, timeout=120))

    def tail():
        query = {"query": "SELECT LIMIT 5"}
        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.stream("GET", f"{server.url}/v1/tail", params=query, timeout=120) as answer,
        ):
            assert answer.status_code == 200
            answer.read()

    spans: list[dict[str, int]] = []
    with Spawned(tmp_path / "data") as server:
        assert run(["serve", str(tmp_path / "data"), "--bind", "127.0.0.1:0"]) == 1
        assert str(server.process.pid) in capsys.readouterr().err
        threads = [threading.Thread(target=append_until_refused, args=(server.url, spans))]
        threads += [threading.Thread(target=work) for work in (open_request, tail)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 120
        while (len(spans) < 20 or not halfway.is_set()) and time.monotonic() < deadline:
            time.sleep(0.01)
        server.process.send_signal(number)
        stopping.set()
        status = server.stop(number)
        for thread in threads:
            thread.join()
    killed = number == signal.SIGKILL
    assert status == (-signal.SIGKILL if killed else 0)
    assert len(spans) >= 20
    if not killed:
        assert server.told[-1]["message"] == "stopped"
        assert not [line for line in server.told if line["level"] in ("warning", "error")]
        assert answers[0].json() == {"span": {"start": 0, "end": 1000}}
    with aggregator.open(tmp_path / "data", read_only=True) as catalog:
        table = catalog.topic("t").read("p").to_table()
        assert table["n"].to_pylist()[: 10 * len(spans)] == list(range(10 * len(spans)))
        assert len(table) - 10 * len(spans) in ((0, 10) if killed else (0,))
        assert killed or catalog.topic("slow").scan().count() == 1000


WRONG = [
    (["--bind", "0.0.0.0:0"], "token"),
    (["--bind", "nowhere"], "invalid address"),
    (["--bind", "127.0.0.1:99999"], "invalid address"),
    (["--set", "http.max_pages=3"], "http.max_page"),
    (["--tls-certificate", "x.pem"], "must be set together"),
    (["--config", "missing.toml"], "missing.toml"),
    (["--bind", "127.0.0.1:0", "--tls-certificate", "no.pem", "--tls-key", "no.key"], "no.pem"),
]


def test_refuses_to_start(tmp_path, capsys, logging_as_it_was):
    """An invalid or unsafe setting prints one line to stderr, and the catalog is released."""
    for arguments, told in WRONG:
        status = 1 if told == "missing.toml" else 2
        assert run(["serve", str(tmp_path / "data"), *arguments]) == status
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1, lines
        assert told in lines[0]
    assert run(["serve"]) == 2
    aggregator.open(tmp_path / "data").close()


def test_an_address_that_is_taken(monkeypatch):
    """An address in use is reported, and the unused socket is closed."""
    made = []

    class Listener(running._Listener):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(running, "_Listener", Listener)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(InvalidRequestError, match=f"cannot listen on {address}") as caught:
            running.listen(address)
    assert caught.value.hint == "choose another port with --bind 127.0.0.1:PORT; port 0 takes a free one"
    assert [each.fileno() for each in made] == [-1]


@pytest.mark.parametrize("secure", [False, True])
def test_the_log_has_a_link(tmp_path, secure, caplog):
    """The logged address is the one that a browser needs."""
    caplog.set_level("INFO", "aggregator.server")
    tls = Tls(*CertificateAuthority(tmp_path).issue("127.0.0.1")) if secure else Tls()
    with served(tmp_path / "data", Settings(tls=tls)) as server:
        (told,) = (each for each in caplog.records if each.message == "serving")
        assert told.address == server.url
        assert told.address.startswith("https://127.0.0.1:" if secure else "http://127.0.0.1:")


def test_public_addresses(tmp_path):
    """A public address requires a token, client certificates or an explicit setting."""
    with aggregator.open(tmp_path) as catalog:

        def check(bind, **more):
            settings = Settings(http=Http(bind=bind, public=more.pop("public", False)), **more)
            check_public(settings, Context.of(catalog, settings))

        for bind in ("127.0.0.1:1", "localhost:1", "[::1]:1", "127.8.8.8:1"):
            check(bind)
        for bind in ("0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1"):
            with pytest.raises(InvalidRequestError, match="reachable from other machines"):
                check(bind)
            check(bind, public=True)
            check(bind, tls=Tls(Path("c"), Path("k"), Path("ca")))
        tokens.create(tmp_path / tokens.FILE, "me", ["read"])
        check("0.0.0.0:1")


def test_tls(tmp_path):
    """With a certificate the server only speaks TLS; with client authorities it only accepts their clients."""
    authority = CertificateAuthority(tmp_path)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    certificate, key = authority.issue("server")
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    settings = Settings(http=Http(stall_s=0.5), tls=Tls(certificate, key))
    with served(tmp_path / "data", settings) as server:
        with httpx.Client(base_url=server.url, verify=trusting) as web:
            assert web.get("/ok").json() == {"ok": "true"}
        with pytest.raises(httpx.HTTPError):
            httpx.get(server.url.replace("https", "http") + "/ok")
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{server.url}/ok")  # an unknown authority
    settings = Settings(tls=Tls(certificate, key, authority.certificate))
    with served(tmp_path / "data", settings) as server:
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{server.url}/ok", verify=trusting)
        foreign = ssl.create_default_context(cafile=str(authority.certificate))
        foreign.load_cert_chain(*map(str, CertificateAuthority(stranger).issue("client")))
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"{server.url}/ok", verify=foreign)
        trusting.load_cert_chain(*map(str, authority.issue("client")))
        assert httpx.get(f"{server.url}/ok", verify=trusting).json() == {"ok": "true"}


@long
def test_a_clean_stop_leaves_little_in_the_log(tmp_path):
    """A clean stop seals many unsealed events, which would take long to read back; pandas is never loaded."""
    count, size = 3000, 4000
    payload = pa.array([f"{row:>{size}}" for row in range(count)])
    with Spawned(tmp_path) as server, httpx.Client(base_url=server.url, timeout=120) as web:
        for topic, partition, rows in (("large", "p", count), ("large", "few", 3), ("small", "p", 3)):
            table = records(rows, 0)
            table = table.append_column("payload", payload.slice(0, len(table)))
            place = f"/topic/{topic}/partition/{partition}"
            answer = web.post(place, content=arrow_file(table), headers={"content-type": ARROW})
            assert answer.status_code == 200
        maps = Path(f"/proc/{server.process.pid}/maps")
        assert not maps.exists() or "/pandas/" not in maps.read_text()
        assert server.stop() == 0
    with aggregator.open(tmp_path) as catalog:
        stats = {name: catalog.topic(name).stats() for name in ("large", "small")}
    assert [(mine["rows"], mine["unsealed_rows"]) for mine in stats.values()] == [(count + 3, 3), (3, 3)]


def test_a_server_has_an_allocator_that_gives_back():
    """The server's allocator is jemalloc, because Arrow's default keeps memory that each thread freed."""
    if "jemalloc" not in pa.supported_memory_backends():
        pytest.skip("this pyarrow has only its default")
    former = pa.default_memory_pool()
    try:
        keep_little_memory()
        assert pa.default_memory_pool().backend_name == "jemalloc"
    finally:
        pa.set_memory_pool(former)
