"""The syslog listener: TCP and UDP on one port, TLS (RFC 5425) on another. Stores messages into streams in batches.

Syslog has no acknowledgements: messages that wait in memory are lost if the process dies. They wait only briefly: all
that arrive while one batch is stored form the next. If storing cannot keep up, TCP senders are slowed down, and
datagrams are dropped, counted and reported: here, or by the kernel before they reach this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import socket
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from aggregator import AggregatorError, FencedError, InvalidRequestError, OverloadedError
from aggregator.model import STREAMS_TOPIC
from aggregator.server.bodies.shared.records import Target, make_stream_topic, store
from aggregator.server.bodies.syslog import read_message
from aggregator.server.bodies.syslog_framing import Framer
from aggregator.server.config.address import is_loopback, split_address
from aggregator.server.config.settings import Settings
from aggregator.server.context import Context
from aggregator.server.control.syslog_socket import bound_socket, drain, given_bytes, kernel_drops
from esformat import EsdbError

MAX_WAITING_BYTES = 16 << 20
"""Limit on messages that are not stored yet, including Python's overhead for each."""
MAX_CONNECTIONS = 1_000
_BATCH = 2_000
_EACH_BYTES = 200  # overhead of a message
_READ_BYTES = 1 << 16
_REPORT_S = 10.0  # between two reads of the kernel's drop count, and two log lines about waiting messages
_RETRY_S = 1.0
_MOST_LEFT = 100_000  # datagrams read from the socket when the server stops
_STOP_S = 10.0  # time limit for storing waiting messages when the server stops
_INTERVALS = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 6}  # some systems lack some of them
_KEEPALIVE = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    *(((socket.IPPROTO_TCP, getattr(socket, n)), value) for n, value in _INTERVALS.items() if hasattr(socket, n)),
)
"""A sender that is silent for a minute is probed, and considered dead after two more."""
_log = logging.getLogger("aggregator.server.bodies.syslog")
Message = tuple[bytes, bool, str]
"""The bytes of a message, whether it was truncated, and its sender's address."""


class Backlog:
    """Messages that wait to be stored, with a limit in bytes. All methods belong to the event loop's thread."""

    def __init__(self, max_bytes: int = MAX_WAITING_BYTES) -> None:
        self._max_bytes = max_bytes
        self._waiting: deque[Message] = deque()
        self._bytes = 0
        self._came, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, message: Message) -> bool:
        """Add a message; return False if there is no room for it."""
        if self._bytes >= self._max_bytes:
            return False
        self._put(message)
        return True

    async def put(self, message: Message) -> None:
        """Add a message as soon as there is room."""
        while self._bytes >= self._max_bytes:
            self._room.clear()
            await self._room.wait()
        self._put(message)

    def _put(self, message: Message) -> None:
        self._waiting.append(message)
        self._bytes += len(message[0]) + _EACH_BYTES
        self._came.set()

    def keep(self, messages: Iterable[Message]) -> None:
        """Add messages of a connection that is being closed, over the limit if necessary."""
        for message in messages:
            self._put(message)

    async def take(self, most: int) -> list[Message]:
        """Wait for a message, then remove and return up to `most`."""
        while not self._waiting:
            self._came.clear()
            await self._came.wait()
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self._bytes -= sum(len(message) + _EACH_BYTES for message, _, _ in taken)
        self._room.set()
        return taken


class _Listener(asyncio.DatagramProtocol):
    """Receives messages from both kinds of sockets into a backlog, and stores them."""

    report_s = _REPORT_S

    def __init__(self, context: Context) -> None:
        self._context = context
        self._backlog = Backlog()
        self._connections: set[asyncio.Task[None]] = set()
        self.servers: list[asyncio.Server] = []
        self._failures_told_at = 0.0
        self._storing: Sequence[Message] = ()

    # ------------------------------------------------------------ messages in

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        if not self._backlog.offer((data, False, address[0])):
            self._context.refused("syslog", "overloaded", why=f"the last from {address[0]}")

    async def watch(self, datagrams: socket.socket) -> None:
        """Count periodically what the kernel dropped, until cancelled."""
        while True:
            await asyncio.sleep(self.report_s)
            self._count_drops(datagrams)

    def _count_drops(self, datagrams: socket.socket) -> None:
        figures = self._context.datagrams
        before, figures.kernel_drops = figures.kernel_drops, kernel_drops(datagrams) or figures.kernel_drops
        why = f"its buffer has {figures.buffer_bytes} bytes"
        self._context.refused("syslog", "kernel_buffer", figures.kernel_drops - before, why)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read a TCP connection to its end."""
        task = asyncio.current_task()
        assert task is not None
        peer = str(writer.get_extra_info("peername", ("",))[0])
        framer = Framer()
        self._connections.add(task)
        try:
            for option, value in _KEEPALIVE:
                writer.get_extra_info("socket").setsockopt(*option, value)
            if len(self._connections) > MAX_CONNECTIONS:
                why = f"{MAX_CONNECTIONS} are open; the last from {peer}"
                self._context.refused("syslog", "connections", why=why)
                return
            while data := await reader.read(_READ_BYTES):
                await self._put(framer.feed(data), peer)
            await self._put(framer.finish(), peer)
        except asyncio.CancelledError:  # the server stops
            self._backlog.keep((message, True, peer) for message, _ in framer.finish())
            raise
        except OSError as error:  # its sender disconnected
            _log.debug("a syslog connection from %s failed: %s", peer, error)
            await self._put(framer.finish(), peer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _put(self, messages: list[tuple[bytes, bool]], peer: str) -> None:
        """Add messages of a connection to the backlog. None is lost if the connection is closed meanwhile."""
        for place, (message, cut) in enumerate(messages):
            try:
                await self._backlog.put((message, cut, peer))
            except asyncio.CancelledError:
                self._backlog.keep((rest, its_cut, peer) for rest, its_cut in messages[place:])
                raise

    # ------------------------------------------------------------ messages stored

    async def store(self) -> None:
        """Store messages until cancelled.

        If another server has taken over the catalog, stop listening: senders go there, or keep their messages.
        """
        while True:
            self._storing = await self._backlog.take(_BATCH)
            try:
                await self._store(self._storing)
            except FencedError as error:
                _log.error("no longer listening for syslog: %s", error)
                self._hang_up()
                return
            self._storing = ()

    def _hang_up(self) -> None:
        """Close the connections, and accept no new ones."""
        for server in self.servers:
            server.close()
        for connection in list(self._connections):
            connection.cancel()

    async def _store(self, batch: Sequence[Message]) -> None:
        now = dt.datetime.now().astimezone()
        while True:
            try:
                await self._context.appends.run(self._write, batch, now)
            except OverloadedError as error:
                await asyncio.sleep(error.retry_after_s)
            except FencedError:
                raise
            except (AggregatorError, EsdbError, OSError) as error:
                self._log_failure(len(self._backlog) + len(batch), error)
                await asyncio.sleep(_RETRY_S)
            else:
                return

    def _write(self, batch: Sequence[Message], now: dt.datetime) -> None:
        batch = [message for message in batch if message[0].strip(b"\0\r\n ")]
        with self._context.counting("syslog") as count:
            count("message_cut", sum(cut for _, cut, _ in batch))
            items = [read_message(message, peer, now, cut=cut, count=count) for message, cut, peer in batch]
            make_stream_topic(self._context.catalog, STREAMS_TOPIC, self._context.settings)
            store(self._context.catalog, items, Target(STREAMS_TOPIC), count)

    def _log_failure(self, waiting: int, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._failures_told_at:
            self._failures_told_at = now + self.report_s
            _log.error("%d syslog messages wait because they cannot be stored at the moment: %s", waiting, error)

    def take_the_rest(self, datagrams: socket.socket) -> None:
        """Read what the kernel still buffers, and close the socket."""
        self._count_drops(datagrams)
        with contextlib.closing(datagrams):
            self._backlog.keep((data, False, peer) for data, peer in drain(datagrams, _MOST_LEFT))

    async def stop(self, storing: asyncio.Task[None]) -> None:
        """Close the connections, store waiting messages, and stop storing."""
        self._hang_up()
        await asyncio.gather(*self._connections, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                while not storing.done() and (len(self._backlog) or self._storing):
                    await asyncio.sleep(0.01)
        doubtful = 0 if storing.done() else len(self._storing)
        why = f"{doubtful} of them were being stored and may be in the catalog" if doubtful else ""
        self._context.refused("syslog", "stopped", len(self._backlog) + len(self._storing), why)
        storing.cancel()
        await asyncio.gather(storing, return_exceptions=True)


@contextlib.asynccontextmanager
async def listening(context: Context) -> AsyncIterator[None]:
    """Listen while the context is open, if the settings ask for it. Raises InvalidRequestError."""
    settings = context.settings
    if settings.syslog is None and settings.syslog_tls is None:
        yield
        return
    listener = _Listener(context)
    async with contextlib.AsyncExitStack() as opened:  # the sockets close first, then waiting messages are stored
        opened.push_async_callback(listener.stop, asyncio.create_task(listener.store()))
        if settings.syslog is not None:
            await _plain(opened, listener, context, settings.syslog)
        if settings.syslog_tls is not None:
            await _encrypted(opened, listener, settings, settings.syslog_tls)
        yield


async def _plain(opened: contextlib.AsyncExitStack, listener: _Listener, context: Context, bind: str) -> None:
    """Listen on TCP and UDP."""
    host, port = _checked(bind, context.settings.http.public)
    wanted = context.settings.syslog_buffer_bytes
    try:
        await _accept(listener, host, port)
        datagrams = bound_socket(host, port, socket.SOCK_DGRAM, socket.SO_RCVBUF, wanted)
        opened.callback(listener.take_the_rest, datagrams)  # the transport has its own descriptor
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: listener, sock=datagrams.dup())
    except OSError as error:
        raise InvalidRequestError(f"cannot listen on {bind}: {error.strerror or error}") from None
    opened.callback(transport.close)
    given = context.datagrams.buffer_bytes = given_bytes(datagrams)
    watching = asyncio.create_task(listener.watch(datagrams))
    opened.callback(watching.cancel)
    if given < wanted:
        _log.warning(
            "the kernel granted syslog a receive buffer of %d bytes, not %d: raise net.core.rmem_max", given, wanted
        )
    _log.info("listening for syslog", extra={"address": bind, "receive_buffer": given})


async def _encrypted(opened: contextlib.AsyncExitStack, listener: _Listener, settings: Settings, bind: str) -> None:
    """Listen on TLS with the server's certificate."""
    tls = settings.tls
    host, port = _checked(bind, settings.http.public or tls.client_ca is not None)
    try:
        await _accept(listener, host, port, ssl=tls.context(), ssl_handshake_timeout=settings.http.stall_s)
    except OSError as error:
        raise InvalidRequestError(f"cannot listen on {bind}: {error.strerror or error}") from None
    _log.info("listening for syslog over TLS", extra={"address": bind})


async def _accept(listener: _Listener, host: str, port: int, **tls: Any) -> None:
    """Accept connections. asyncio's own sockets have no IPv4 at `::`, unlike ours for HTTP and datagrams."""
    made = bound_socket(host, port, socket.SOCK_STREAM, socket.SO_REUSEADDR, 1)
    listener.servers.append(await asyncio.start_server(listener.connected, sock=made, limit=_READ_BYTES, **tls))


def _checked(bind: str, public: bool) -> tuple[str, int]:
    """Return host and port. Raises InvalidRequestError for addresses that others can reach, unless that is allowed."""
    host, port = split_address(bind)
    if not is_loopback(host) and not public:
        raise InvalidRequestError(
            f"{bind} is reachable from other machines, and syslog has no tokens",
            hint="use --public if that is intended, or require client certificates over TLS",
        )
    return host, port
