"""The listener for syslog: TCP and UDP on one port, into streams, a batch at a time.

Syslog has no acknowledgements: what waits in memory is lost if the process dies. It waits for little: whatever came
while one batch was being stored is the next. Where storing cannot keep up, TCP senders are made to wait, and datagrams
are dropped, counted and reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import socket
from collections import deque
from collections.abc import AsyncIterator, Sequence

from aggregator import AggregatorError, InvalidRequestError, OverloadedError
from aggregator.catalog import STREAMS_TOPIC
from aggregator.server.address import is_loopback, split_address
from aggregator.server.context import Context
from aggregator.server.shipped import Refusal, Target, make_stream_topic, store
from aggregator.server.syslog import Framer, read_message
from esformat import EsdbError

MAX_WAITING_BYTES = 16 << 20
"""Of messages that are not stored yet, what Python needs for each included."""
MAX_CONNECTIONS = 1_000
_BATCH = 2_000
_EACH_BYTES = 200  # what a message costs besides its own bytes
_READ_BYTES = 1 << 16
_REPORT_S = 10.0  # between two reports of what was dropped
_RETRY_S = 1.0
_STOP_S = 10.0  # how long storing what waits may take when the server stops
_INTERVALS = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 6}  # some systems lack some of them
_KEEPALIVE = (
    ((socket.SOL_SOCKET, socket.SO_KEEPALIVE), 1),
    *(((socket.IPPROTO_TCP, getattr(socket, n)), value) for n, value in _INTERVALS.items() if hasattr(socket, n)),
)
"""A sender that is silent for a minute is asked whether it is there, and taken for dead after two more."""
_log = logging.getLogger("aggregator.server.syslog")
Message = tuple[bytes, bool, str]
"""Its bytes, whether it was cut, and the address that it came from."""


class Backlog:
    """Messages that wait to be stored, bounded in bytes. All methods belong to the event loop's thread."""

    def __init__(self, max_bytes: int = MAX_WAITING_BYTES) -> None:
        self._max_bytes = max_bytes
        self._waiting: deque[Message] = deque()
        self._bytes = 0
        self._came, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, message: Message) -> bool:
        """Take a message; False where there is no room for it."""
        if self._bytes >= self._max_bytes:
            return False
        self._put(message)
        return True

    async def put(self, message: Message) -> None:
        """Take a message as soon as there is room."""
        while self._bytes >= self._max_bytes:
            self._room.clear()
            await self._room.wait()
        self._put(message)

    def _put(self, message: Message) -> None:
        self._waiting.append(message)
        self._bytes += len(message[0]) + _EACH_BYTES
        self._came.set()

    async def take(self, most: int) -> list[Message]:
        """Up to so many messages, at least one: waits for it."""
        while not self._waiting:
            self._came.clear()
            await self._came.wait()
        taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self._bytes -= sum(len(message) + _EACH_BYTES for message, _, _ in taken)
        self._room.set()
        return taken


class _Listener(asyncio.DatagramProtocol):
    """Takes messages from both kinds of sockets into a backlog, and stores them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._backlog = Backlog()
        self._connections: set[asyncio.Task[None]] = set()
        self._dropped = 0
        self._report_at = 0.0
        self._stored = asyncio.Event()  # set while nothing is being stored
        self._stored.set()

    # ------------------------------------------------------------ messages in

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        if not self._backlog.offer((data, False, address[0])):
            self._dropped += 1
            self._report()

    def _report(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._dropped and now >= self._report_at:
            self._report_at = now + _REPORT_S
            _log.warning("%d syslog datagrams dropped: storing does not keep up", self._dropped)
            self._dropped = 0

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
                _log.warning("a syslog connection from %s was refused: %d are open", peer, MAX_CONNECTIONS)
                return
            while data := await reader.read(_READ_BYTES):
                for message, cut in framer.feed(data):
                    await self._backlog.put((message, cut, peer))
            for message, cut in framer.finish():
                await self._backlog.put((message, cut, peer))
        except OSError as error:  # its sender went away
            _log.debug("a syslog connection from %s ended: %s", peer, error)
        finally:
            self._connections.discard(task)
            writer.close()

    # ------------------------------------------------------------ messages stored

    async def store(self) -> None:
        """Store what comes, until cancelled."""
        while True:
            batch = await self._backlog.take(_BATCH)
            self._stored.clear()
            await self._store(batch)
            self._stored.set()
            self._report()

    async def _store(self, batch: Sequence[Message]) -> None:
        now = dt.datetime.now().astimezone()
        while True:
            try:
                refusals = await self._context.appends.run(self._write, batch, now)
            except OverloadedError as error:
                await asyncio.sleep(error.retry_after_s)
            except (AggregatorError, EsdbError, OSError) as error:
                _log.error("%d syslog messages cannot be stored now: %s", len(batch), error)
                await asyncio.sleep(_RETRY_S)
            else:
                if refusals:
                    _log.warning("%d syslog messages refused: %s", len(refusals), refusals[0].reason)
                return

    def _write(self, batch: Sequence[Message], now: dt.datetime) -> list[Refusal]:
        items = [read_message(message, peer, now, cut=cut) for message, cut, peer in batch if message.strip(b"\0\r\n ")]
        make_stream_topic(self._context.catalog, STREAMS_TOPIC, self._context.settings)
        outcomes = store(self._context.catalog, items, Target(STREAMS_TOPIC))
        return [outcome for outcome in outcomes if isinstance(outcome, Refusal)]

    async def stop(self, storing: asyncio.Task[None]) -> None:
        """End the connections, store what waits, and stop storing."""
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S):
                while len(self._backlog) or not self._stored.is_set():
                    await asyncio.sleep(0.01)
        if len(self._backlog):
            _log.error("%d syslog messages were not stored before the server stopped", len(self._backlog))
        storing.cancel()
        await asyncio.gather(storing, return_exceptions=True)


@contextlib.asynccontextmanager
async def syslog(context: Context) -> AsyncIterator[None]:
    """Listen where the settings say, if they do, as long as the context lasts. Raises InvalidRequestError."""
    bind = context.settings.syslog
    if bind is None:
        yield
        return
    host, port = split_address(bind)
    if not is_loopback(host) and not context.settings.http.public:
        raise InvalidRequestError(
            f"{bind} can be reached from elsewhere, and syslog asks for no token", hint="say --public if that is meant"
        )
    listener = _Listener(context)
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as opened:  # its sockets close first, then what waits is stored
        opened.push_async_callback(listener.stop, asyncio.create_task(listener.store()))
        try:
            server = await asyncio.start_server(listener.connected, host, port, limit=_READ_BYTES)
            opened.callback(server.close)
            datagrams, _ = await loop.create_datagram_endpoint(lambda: listener, (host, port))
        except OSError as error:
            raise InvalidRequestError(f"cannot listen on {bind}: {error.strerror or error}") from None
        opened.callback(datagrams.close)
        with contextlib.suppress(OSError):
            datagrams.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        _log.info("listening for syslog", extra={"address": bind})
        yield
