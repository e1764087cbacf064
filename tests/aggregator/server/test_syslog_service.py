"""Syslog over real sockets: from `logger`, rsyslog, senders that misbehave; nothing taken is lost by a stop."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import time

import pytest
from served import ANY_PORT

import aggregator
from aggregator import InvalidRequestError
from aggregator.server import RunningServer, Settings
from aggregator.server.context import Context
from aggregator.server.settings import Http
from aggregator.server.syslog_service import Backlog, _Listener, syslog


def free_port() -> int:
    """A port that is free for TCP and UDP, just now."""
    while True:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", 0))
            with contextlib.suppress(OSError):
                udp.bind(tcp.getsockname())
                return tcp.getsockname()[1]


class Listening:
    """A server that takes syslog on `port`."""

    def __init__(self, path):
        self.port = free_port()
        self._path = path
        self._opened = contextlib.ExitStack()

    def __enter__(self):
        settings = Settings(http=Http(bind=ANY_PORT), syslog=f"127.0.0.1:{self.port}")
        self.catalog = self._opened.enter_context(aggregator.open(self._path))
        self._server = self._opened.enter_context(contextlib.ExitStack())
        self._server.enter_context(RunningServer(self.catalog, settings))
        return self

    def stop(self):
        """Stop the server; the catalog stays open."""
        self._server.close()

    def __exit__(self, *_):
        self._opened.close()

    def rows(self) -> list[dict]:
        if "logs" not in self.catalog.topics():
            return []
        found = self.catalog.topic("logs").scan().to_table().to_pylist()
        return [{**row, "fields": dict(row["fields"] or ())} for row in found]

    def wait_for(self, count: int, start: bytes = b"") -> list[dict]:
        """The records whose messages begin so, as soon as there are so many."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            rows = [row for row in self.rows() if row["data"].startswith(start)]
            if len(rows) >= count:
                break
            time.sleep(0.02)
        assert len(rows) == count
        return rows

    def tcp(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


@pytest.fixture
def listening(tmp_path):
    with Listening(tmp_path / "data") as running:
        yield running


def logger(listening, *options):
    command = ["logger", "-n", "127.0.0.1", "-P", str(listening.port), *options]
    subprocess.run(command, check=True, timeout=20, capture_output=True)


@pytest.mark.skipif(shutil.which("logger") is None, reason="needs util-linux")
def test_logger(listening):
    """The system's `logger`, by TCP and UDP, in the old form and the new, counted and not."""
    forms = [("-d", "--rfc3164"), ("-d", "--rfc5424"), ("-T", "--rfc5424"), ("-T", "--rfc3164"),
             ("-T", "--octet-count", "--rfc5424")]  # fmt: skip
    for number, form in enumerate(forms):
        logger(listening, *form, "-p", "local3.warning", "-t", "shop", f"message {number} ä")
    rows = listening.wait_for(len(forms))
    assert sorted(row["data"].decode() for row in rows) == [f"message {n} ä" for n in range(len(forms))]
    assert all("app=shop" in row["space"] for row in rows)
    assert {(row["fields"]["facility"], row["fields"]["severity"]) for row in rows} == {("local3", "warning")}


@pytest.mark.skipif(shutil.which("rsyslogd") is None, reason="needs rsyslog")
@pytest.mark.parametrize("target", [
    'protocol="tcp" TCP_Framing="octet-counted" template="RSYSLOG_SyslogProtocol23Format"', 'protocol="tcp"',
    'protocol="udp"',
])  # fmt: skip
def test_rsyslog(listening, tmp_path, target):
    """Forwarding a file by rsyslog that it reads, as it does by default and as RFC 5424 has it."""
    (tmp_path / "app.log").write_text("".join(f"line {number}\n" for number in range(50)))
    config = tmp_path / "rsyslog.conf"
    config.write_text(
        f'module(load="imfile")\nglobal(workDirectory="{tmp_path}")\n'
        f'input(type="imfile" File="{tmp_path}/app.log" Tag="shop:" Severity="error" Facility="local7")\n'
        f'action(type="omfwd" target="127.0.0.1" port="{listening.port}" {target})\n'
    )
    command = ["rsyslogd", "-n", "-f", str(config), "-i", str(tmp_path / "pid")]
    daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        rows = listening.wait_for(50, b"line")
    finally:
        daemon.terminate()
        daemon.wait(20)
    assert sorted(int(row["data"].split()[1]) for row in rows) == list(range(50))
    assert all("app=shop" in row["space"] and row["fields"]["facility"] == "local7" for row in rows)


def test_odd_senders(listening):
    """Pieces, half messages, a message of a megabyte, nothing at all: each connection stands for itself."""
    with listening.tcp() as slow, listening.tcp() as half, listening.tcp() as huge, listening.tcp():
        slow.sendall(b"<13>1 - h a - - - sl")
        half.sendall(b"500 <13>half")
        huge.sendall(b"<13>" + b"x" * 1_000_000 + b"\n<13>1 - h a - - - after\n")
        listening.wait_for(1, b"after")
        slow.sendall(b"ow\n")
    rows = listening.wait_for(3)
    assert sorted(row["data"][:5] for row in rows) == [b"after", b"slow", b"xxxxx"]
    long = next(row for row in rows if row["data"].startswith(b"x"))
    assert (len(long["data"]), long["fields"]["truncated"]) == (65_532, "true")


def test_senders_that_vanish_are_found_out(tmp_path, monkeypatch):
    """The system asks a silent sender whether it is still there: else dead connections would fill up the listener."""
    sockets = []
    connected = _Listener.connected

    async def seen(self, reader, writer):
        sockets.append(writer.get_extra_info("socket"))
        await connected(self, reader, writer)

    monkeypatch.setattr(_Listener, "connected", seen)
    with Listening(tmp_path / "data") as listening, listening.tcp() as sender:
        sender.sendall(b"<13>1 - h a - - - here\n")
        listening.wait_for(1)
        assert [one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for one in sockets] == [1]


def test_stop_loses_nothing(listening):
    """What was taken before the server stops is stored when it has."""
    with listening.tcp() as sender:
        sender.sendall(b"".join(b"<13>1 - h a - - - %d\n" % number for number in range(20_000)))
        sender.shutdown(socket.SHUT_WR)
        assert sender.recv(1) == b""  # the server has read it all
        listening.stop()
    assert [int(row["data"]) for row in listening.rows()] == list(range(20_000))


@pytest.mark.parametrize("bind", ["0.0.0.0:5514", "nowhere", "127.0.0.1:x"])
def test_addresses_that_are_refused(tmp_path, bind):
    """Syslog asks nobody for a token: an address that others reach must be meant."""

    async def listen(catalog):
        async with syslog(Context.of(catalog, Settings(syslog=bind))):
            pass

    with aggregator.open(tmp_path) as catalog, pytest.raises(InvalidRequestError):
        asyncio.run(listen(catalog))


def test_backlog_is_bounded():
    """Datagrams beyond the bound are not taken; who waits goes on when there is room."""

    async def scenario():
        backlog = Backlog(max_bytes=1_000)
        message = (b"x" * 300, False, "p")
        assert [backlog.offer(message) for _ in range(3)] == [True, True, False]
        waiting = asyncio.create_task(backlog.put(message))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert len(await backlog.take(1)) == 1
        await asyncio.wait_for(waiting, 10)
        assert len(await backlog.take(10)) == 2

    asyncio.run(scenario())
