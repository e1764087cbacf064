"""Syslog over real sockets: from `logger`, rsyslog and misbehaving senders; a stop loses nothing accepted."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
import time

import httpx
import pytest
from certificates import CertificateAuthority
from effort import ALL
from ports import free_port
from served import ANY_PORT
from waiting import PATIENCE_S, until

import aggregator
from aggregator import FencedError, InvalidRequestError
from aggregator.errors import LogFailedError
from aggregator.server import RunningServer, Settings
from aggregator.server.config.settings import Http, Tls
from aggregator.server.config.sources import settings_of
from aggregator.server.context import Context
from aggregator.server.metrics.exposition import Metrics
from aggregator.server.services import syslog as syslog_service
from aggregator.server.services.syslog import Backlog, _Listener


class Listening:
    """A server that accepts syslog on `port`."""

    def __init__(self, path, **options):
        self.port = free_port()
        self._path, self._options = path, options
        self._opened = contextlib.ExitStack()
        self._held = threading.Event()

    def __enter__(self):
        settings = Settings(http=Http(bind=ANY_PORT), syslog=f"127.0.0.1:{self.port}", **self._options)
        self.catalog = self._opened.enter_context(aggregator.open(self._path))
        self._server = self._opened.enter_context(contextlib.ExitStack())
        running = self._server.enter_context(RunningServer(self.catalog, settings))
        self.context, self.url = running.context, running.url
        return self

    def hold_up(self):
        """Block the event loop until `go_on`."""
        held = threading.Event()

        async def hold():
            held.set()
            self._held.wait(120)

        self.context.listeners.append(lambda _: asyncio.ensure_future(hold()))
        with contextlib.suppress(httpx.HTTPError):
            httpx.get(f"{self.url}/ok", timeout=5)
        assert held.wait(120)

    def go_on(self):
        """Unblock the event loop."""
        self.context.listeners.pop()
        self._held.set()

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
        """The records whose messages begin like this, once there are this many."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            rows = [row for row in self.rows() if row["data"].startswith(start)]
            if len(rows) >= count:
                break
            time.sleep(0.02)
        assert len(rows) == count
        return rows

    def tcp(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=120)


@pytest.fixture
def listening(tmp_path):
    with Listening(tmp_path / "data") as running:
        yield running


def logger(listening, *options):
    command = ["logger", "-n", "127.0.0.1", "-P", str(listening.port), *options]
    subprocess.run(command, check=True, timeout=120, capture_output=True)


@pytest.mark.skipif(shutil.which("logger") is None, reason="needs util-linux")
def test_logger(listening):
    """The system's `logger` is stored, over TCP and UDP, in the old format and the new, counted or not."""
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
    """A file forwarded by rsyslog is stored, in its default format and as RFC 5424."""
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
        daemon.wait(120)
    assert sorted(int(row["data"].split()[1]) for row in rows) == list(range(50))
    assert all("app=shop" in row["space"] and row["fields"]["facility"] == "local7" for row in rows)


def test_odd_senders(listening):
    """Pieces, half messages, a megabyte and silence affect only their own connection."""
    with listening.tcp() as slow, listening.tcp() as half, listening.tcp() as huge, listening.tcp():
        slow.sendall(b"<13>1 - h a - - - sl")
        half.sendall(b"500 <13>half")
        huge.sendall(b"<13>" + b"x" * 1_000_000 + b"\n<13>1 - h a - - - after\n")
        listening.wait_for(1, b"after")
        slow.sendall(b"ow\n")
    rows = listening.wait_for(3 + 16)
    assert sorted({row["data"][:5] for row in rows}) == [b"after", b"half", b"slow", b"xxxxx"]
    assert next(row for row in rows if row["data"] == b"half")["fields"]["truncated"] == "true"
    parts = [row for row in rows if row["data"].startswith(b"x")]
    assert sum(len(part["data"]) for part in parts) == 1_000_000
    assert [part["fields"].get("truncated") for part in parts].count("true") == 15  # all but the last


def test_senders_that_vanish_are_found_out(tmp_path, monkeypatch):
    """Connections have keepalive, so that dead ones do not fill up the listener."""
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


def test_datagrams_that_the_kernel_drops(tmp_path, monkeypatch, caplog):
    """Datagrams dropped by the kernel are counted, shown in /metrics, and logged with the buffer that was too small."""
    monkeypatch.setattr(_Listener, "report_s", 0.01)
    with Listening(tmp_path / "data", syslog_buffer_bytes=1) as listening:
        listening.hold_up()
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            for _ in range(2_000):
                sender.sendto(b"<13>1 - h a - - - " + b"x" * 500, ("127.0.0.1", listening.port))
        listening.go_on()
        figures = listening.context.datagrams
        until(lambda: "by the kernel" in caplog.text)
        assert figures.kernel_drops > 0
        assert f"(its buffer has {figures.buffer_bytes} bytes)" in caplog.text
        page = Metrics(listening.context).page().decode()
        name = 'aggregator_refused_records_total{reason="kernel_buffer",source="syslog"}'
        assert f"{name} {float(figures.kernel_drops)}" in page
        assert f"aggregator_syslog_buffer_bytes {float(figures.buffer_bytes)}" in page
        listening.stop()
        lost = {reason: count for source, reason, count in listening.context.refusals.counts() if source == "syslog"}
        assert lost["kernel_buffer"] == figures.kernel_drops
        assert len(listening.rows()) == 2_000 - lost["kernel_buffer"] - lost["overloaded"]


def test_stop_takes_datagrams_that_wait(listening):
    """Datagrams that the kernel still has when the server is told to stop are stored, too."""
    listening.hold_up()
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        for number in range(100):
            sender.sendto(b"<13>1 - h a - - - %d" % number, ("127.0.0.1", listening.port))
    stopping = threading.Thread(target=listening.stop)
    stopping.start()
    listening.go_on()
    stopping.join()
    assert sorted(int(row["data"]) for row in listening.rows()) == list(range(100))


@contextlib.contextmanager
def over_tls(port, trusting):
    """A TLS connection to the listener."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=120) as raw,
        trusting.wrap_socket(raw, server_hostname="127.0.0.1") as sender,
    ):
        yield sender


def counted(message: bytes) -> bytes:
    return b"%d %s" % (len(message), message)


def greet(port, trusting):
    """Send a message, and read until the peer hangs up."""
    with over_tls(port, trusting) as sender:
        sender.sendall(counted(b"<13>1 - h a - - - stranger"))
        sender.shutdown(socket.SHUT_WR)
        if not sender.recv(1):
            raise ConnectionResetError


@pytest.mark.parametrize("client_ca", [False, True])
def test_tls(tmp_path, client_ca):
    """Counted messages over TLS (RFC 5425) are stored; optionally only from clients with a known certificate."""
    authority = CertificateAuthority(tmp_path)
    certificate, key = authority.issue("server")
    tls = Tls(certificate, key, authority.certificate if client_ca else None)
    port = free_port()
    trusting = ssl.create_default_context(cafile=authority.certificate)
    with Listening(tmp_path / "data", syslog_tls=f"127.0.0.1:{port}", tls=tls) as listening:
        if client_ca:
            with pytest.raises(OSError):  # noqa: PT011 - TLS says it in several ways
                greet(port, trusting)
            trusting.load_cert_chain(*authority.issue("client"))
        with over_tls(port, trusting) as sender:
            second = counted(b"<13>1 - h a - - - second")
            sender.sendall(counted(b"<13>1 - h a - - - a\nb") + second[:10])
            sender.sendall(second[10:] + counted(b"<13>" + b"x" * 70_000))
            rows = listening.wait_for(4)
        assert sorted(row["data"][:6] for row in rows) == [b"a\nb", b"second", b"xxxxxx", b"xxxxxx"]
        with socket.create_connection(("127.0.0.1", port), timeout=120) as plain:  # no TLS: the server hangs up
            plain.sendall(b"<13>1 - h a - - - plain\n")
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(100):
                pass
        assert len(listening.rows()) == 4


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
def test_both_families_at_one_address(tmp_path):
    """`[::]` accepts IPv4, too, over TCP and UDP, as for HTTP."""
    port = free_port()
    settings = Settings(http=Http(bind=ANY_PORT, public=True), syslog=f"[::]:{port}")
    with aggregator.open(tmp_path) as catalog, RunningServer(catalog, settings):
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, port)) as sender:
                sender.sendall(b"<13>1 - - a - - - text\n")
        until(lambda: catalog.query("SELECT COUNT FROM app = a").to_pylist() == [{"count": 2}])


def test_tls_needs_a_certificate():
    """TLS without a certificate is refused when the settings are read."""
    with pytest.raises(InvalidRequestError, match="syslog_tls needs a certificate"):
        settings_of({"syslog_tls": "127.0.0.1:6514"})


def test_stop_loses_nothing(listening, monkeypatch):
    """Everything accepted before the stop is stored afterwards."""
    count = 20_000 if ALL else 5_000
    monkeypatch.setattr(syslog_service, "_STOP_S", PATIENCE_S)
    with listening.tcp() as sender:
        sender.sendall(b"".join(b"<13>1 - h a - - - %d\n" % number for number in range(count)))
        sender.shutdown(socket.SHUT_WR)
        assert sender.recv(1) == b""  # the server has read everything
        listening.stop()
    assert [int(row["data"]) for row in listening.rows()] == list(range(count))


def lost(listening: Listening) -> int:
    """The number of messages reported as lost in a stop."""
    return sum(count for _, reason, count in listening.context.refusals.counts() if reason == "stopped")


def test_stop_tells_all_that_it_loses(listening, monkeypatch, caplog):
    """If nothing can be stored, a stop reports waiting messages and those being stored as lost."""
    monkeypatch.setattr(syslog_service, "_STOP_S", 0.1)
    listening.catalog.create_topic("logs")
    listening.catalog._backend.log.fail(LogFailedError("the disk is of no use"))
    with listening.tcp() as sender:
        sender.sendall(b"<13>1 - h a - - - one\n" * 3)
        until(lambda: "syslog messages wait" in caplog.text)
        sender.sendall(b"<13>1 - h a - - - two\n" * 2)
        sender.shutdown(socket.SHUT_WR)
        assert sender.recv(1) == b""
        listening.stop()
    assert lost(listening) == 5
    assert "5 messages lost: the server stopped before they were stored (3 of them were being stored" in caplog.text


def test_a_server_that_was_taken_over_listens_no_more(listening):
    """A server whose catalog was taken over stops listening; otherwise senders would wait forever for it."""
    with listening.tcp() as sender:
        sender.sendall(b"<13>1 - h a - - - one\n")
        listening.wait_for(1)
        listening.catalog._backend.log.fail(FencedError("another writer has taken over this catalog"))
        sender.sendall(b"<13>1 - h a - - - two\n")
        with contextlib.suppress(ConnectionResetError):
            assert sender.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        listening.tcp()
    began = time.monotonic()
    listening.stop()
    assert time.monotonic() - began < syslog_service._STOP_S
    assert lost(listening) == 1


@pytest.mark.parametrize("bind", ["0.0.0.0:5514", "nowhere", "127.0.0.1:x"])
def test_addresses_that_are_refused(tmp_path, bind):
    """A public address must be confirmed, because syslog has no tokens."""

    async def listen(catalog):
        async with syslog_service.listening(Context.of(catalog, Settings(syslog=bind))):
            pass

    with aggregator.open(tmp_path) as catalog, pytest.raises(InvalidRequestError):
        asyncio.run(listen(catalog))


def test_backlog_is_bounded():
    """Datagrams beyond the limit are refused; a waiting stream continues when there is room."""

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
