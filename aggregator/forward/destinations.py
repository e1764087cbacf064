"""Destinations of forwarded records: standard output, a file, a syslog server, an HTTP address."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import socket
import ssl
import struct
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit

import pyarrow as pa

from aggregator.base.names import check_host
from aggregator.base.web import Peer
from aggregator.errors import AggregatorError, InvalidRequestError
from aggregator.forward.rendering import Sender, contents, framed, json_lines, lines, syslog_messages
from aggregator.lql import Columns, Template
from esformat.parts import naming

TIMEOUT_S = 30.0
MAX_DATAGRAM = 65_000
"""Most bytes of a UDP message; longer ones are cut. A datagram can have 65,507."""
POST_ROWS = 5_000
"""Records in each HTTP request."""


class TryLaterError(AggregatorError):
    """The destination does not accept records now. `after_s`: seconds until it may, if it says so."""

    after_s: float | None


class Destination(Protocol):
    """Accepts batches in order."""

    def send(self, batch: pa.RecordBatch, columns: Columns) -> None:
        """Send a batch; it has been delivered when this returns.

        Raises TryLaterError or OSError if it can be retried, AggregatorError if not.
        """

    def close(self) -> None:
        """Close the destination; drop unfinished work."""


class StreamDestination:
    """Writes lines to standard output or another stream; JSON if the statement has no format string."""

    def __init__(self, stream: BinaryIO, template: Template | None) -> None:
        self._stream, self._template = stream, template

    def send(self, batch: pa.RecordBatch, columns: Columns) -> None:
        """Write and flush."""
        self._stream.write(contents(_lines(batch, columns, self._template)))
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: the stream belongs to the caller."""


class FileDestination:
    """Appends lines to a file, and syncs it. First ends the last line if a crash or a full disk has cut it."""

    def __init__(self, path: Path, template: Template | None) -> None:
        self._path, self._template = path, template
        self._file: BinaryIO | None = None

    def send(self, batch: pa.RecordBatch, columns: Columns) -> None:
        """Append and sync."""
        if self._file is None:
            self._file = self._path.open("ab+", buffering=0)
        end = self._file.seek(0, os.SEEK_END)
        try:
            with naming(str(self._path), "earlier records stay in the file"):
                if end:
                    self._file.seek(end - 1)
                    if self._file.read(1) != b"\n":
                        self._file.write(b"\n")
                written = memoryview(contents(_lines(batch, columns, self._template))).cast("B")
                while written:
                    written = written[self._file.write(written) :]
                os.fsync(self._file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(end)
            raise

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


class SyslogDestination:
    """Sends RFC 5424 messages as datagrams (udp), or as a stream of counted messages (tcp, tls).

    Over TCP and TLS a batch counts as sent when the receiver's kernel has acknowledged all of it. UDP confirms nothing.
    """

    def __init__(
        self, kind: str, host: str, port: int, sender: Sender, *, context: ssl.SSLContext | None = None
    ) -> None:
        self._kind, self._address, self._sender = kind, (host, port), sender
        self._context = context
        self._socket: socket.socket | None = None

    def send(self, batch: pa.RecordBatch, columns: Columns) -> None:
        """Send, and wait for acknowledgement except over UDP."""
        messages = syslog_messages(batch, columns, self._sender)
        try:
            if self._kind == "udp":
                made = self._connected(socket.SOCK_DGRAM)
                for message in messages.to_pylist():
                    made.send(message[:MAX_DATAGRAM])
                return
            made = self._connected(socket.SOCK_STREAM)
            self._check_still_there(made)
            made.sendall(framed(messages))
            _wait_for_confirmation(made)
        except OSError:
            self.close()
            raise

    def _connected(self, kind: socket.SocketKind) -> socket.socket:
        if self._socket is not None:
            return self._socket
        if kind == socket.SOCK_DGRAM:
            family, _, _, _, address = socket.getaddrinfo(*self._address, type=kind)[0]
            made = socket.socket(family, kind)
            made.connect(address)
        else:
            made = socket.create_connection(self._address, TIMEOUT_S)
            if self._context is not None:
                made = self._context.wrap_socket(made, server_hostname=self._address[0])
        made.settimeout(TIMEOUT_S)
        self._socket = made
        return made

    def _check_still_there(self, made: socket.socket) -> None:
        """Raise ConnectionResetError if the server has closed the connection, before data is sent into the void."""
        made.setblocking(False)
        try:
            with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
                if made.recv(1024) == b"":
                    raise ConnectionResetError("the server closed the connection")
        finally:
            made.settimeout(TIMEOUT_S)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _wait_for_confirmation(made: socket.socket) -> None:
    """Wait until the receiver's kernel has acknowledged everything. Raises OSError if it does not."""
    deadline = time.monotonic() + TIMEOUT_S
    wait = 0.0002
    while struct.unpack("i", fcntl.ioctl(made.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))[0]:
        error = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        if time.monotonic() > deadline:
            raise TimeoutError("the server does not acknowledge the data")
        time.sleep(wait)
        wait = min(0.05, 2 * wait)


class HttpDestination:
    """Posts JSON lines, or lines in the statement's format string; any 2xx response is an acknowledgement."""

    def __init__(self, address: str, template: Template | None, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(address)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._template = template
        kind = "application/x-ndjson" if template is None else "text/plain; charset=utf-8"
        self._peer = Peer(address, TIMEOUT_S, {"Content-Type": kind, **(headers or {})})
        self._sent: tuple[pa.RecordBatch, int] | None = None  # an unfinished batch, and the number of its rows sent

    def send(self, batch: pa.RecordBatch, columns: Columns) -> None:
        """Post the batch in requests; a retry continues with the request that failed."""
        begun = self._sent[1] if self._sent is not None and self._sent[0] is batch else 0
        for row in range(begun, len(batch), POST_ROWS):
            self._sent = batch, row
            self._post(bytes(contents(_lines(batch.slice(row, POST_ROWS), columns, self._template))))
        self._sent = None

    def _post(self, body: bytes) -> None:
        try:
            status, reason, _, after_s = self._peer.request("POST", self._target, body)
        except (http.client.HTTPException, OSError) as error:
            raise OSError(f"no response: {error or type(error).__name__}") from error
        if 200 <= status < 300:
            return
        if status in (408, 425, 429) or status >= 500:
            raise TryLaterError(f"the server answered {status}", after_s=after_s)
        raise AggregatorError(f"the server answered {status} {reason}", hint="forwarding waits until this is fixed")

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()


def _lines(batch: pa.RecordBatch, columns: Columns, template: Template | None) -> pa.Array:
    return json_lines(batch, columns) if template is None else lines(batch, columns, template)


def make_destination(
    to: str, template: Template | None, stream: BinaryIO, *, sender: Sender, headers: Mapping[str, str], ca: str | None
) -> Destination:
    """Create the destination `stdout`, `file:PATH`, `syslog://HOST:PORT` (TCP; or `syslog+udp`, `syslog+tls`) or
    `http(s)://…`.

    Raises InvalidRequestError, OSError (the certificate file).
    """
    if to in ("stdout", "-"):
        return StreamDestination(stream, template)
    if to.startswith("file:"):
        return FileDestination(Path(to.removeprefix("file:").removeprefix("//")), template)
    try:
        parts = urlsplit(to)
        host, port = parts.hostname, parts.port
        check_host(host)
    except ValueError as error:
        raise InvalidRequestError(f"invalid address {to!r}: {error}") from None
    if parts.scheme in ("http", "https") and host and not parts.username:
        return HttpDestination(to, template, headers)
    kinds = {"syslog": "tcp", "syslog+tcp": "tcp", "syslog+udp": "udp", "syslog+tls": "tls"}
    if parts.scheme in kinds and host:
        kind = kinds[parts.scheme]
        context = ssl.create_default_context(cafile=ca) if kind == "tls" else None
        return SyslogDestination(kind, host, port or (6514 if kind == "tls" else 514), sender, context=context)
    raise InvalidRequestError(
        f"invalid destination {to!r}", hint="give stdout, file:PATH, syslog://host:port, syslog+udp://…, http://…"
    )
