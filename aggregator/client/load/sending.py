"""`Target`: one keep-alive connection to a server, as cheap as the standard library allows.

A client library would cost more than the requests, but the server is to be measured. Like curl, it asks before it sends
a large body (`Expect: 100-continue`), so that a server can refuse without receiving it.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import ssl
import time
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from aggregator.client.load.work import Request
from aggregator.errors import InvalidRequestError

_PIECE_BYTES = 128 << 10
_ASKED_BYTES = 64 << 10
"""Larger bodies wait until the server asks for them, for at most `_ASKED_S`."""
_ASKED_S = 1.0
"""Seconds to wait for the server to ask for a body: old servers never do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a request: its status, 0 without a response, and the seconds until the end of the response."""

    status: int
    seconds: float
    answer_bytes: int = 0
    error: str = ""


class Target:
    """Sends requests to a server. Belongs to one thread."""

    def __init__(self, url: str, token: str | None = None, timeout_s: float = 30.0) -> None:
        """Raises InvalidRequestError for an invalid address."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequestError(f"invalid address {url!r}", hint="expected http://host:port")
        self._headers = {"User-Agent": "aggregator-bench", "Accept": "*/*"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._base = parts.path.rstrip("/")
        self._connection = (
            http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=timeout_s, context=ssl.create_default_context()
            )
            if parts.scheme == "https"
            else http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
        )

    def send(self, request: Request) -> Outcome:
        """Send a request, and read its response to the end. Never raises for failures of the server or the network."""
        began = time.perf_counter()
        try:
            whole = self._send(request)
            answer = self._connection.getresponse()
            size = len(answer.read())
            status = answer.status
            if not whole or answer.will_close:
                self._connection.close()
            return Outcome(status, time.perf_counter() - began, size)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            return Outcome(0, time.perf_counter() - began, error=type(error).__name__)

    def _send(self, request: Request) -> bool:
        """Send a request; return False if the server responded before it had the whole body."""
        connection = self._connection
        connection.putrequest(request.method, self._base + request.path, skip_accept_encoding=True)
        for name, value in {**self._headers, **dict(request.headers)}.items():
            connection.putheader(name, value)
        if request.method != "GET":
            connection.putheader("Content-Length", str(len(request.body)))
        body = memoryview(request.body)
        if len(body) <= _ASKED_BYTES:
            connection.endheaders(request.body or None)
            return True
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        if select.select([connection.sock], [], [], _ASKED_S)[0] and not self._is_wanted():
            return False
        for start in range(0, len(body), _PIECE_BYTES):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its response may still be readable
                connection.sock.sendall(body[start : start + _PIECE_BYTES])
                continue
            return False
        return True

    def _is_wanted(self) -> bool:
        """Whether the server asks for the body. Leaves what it sent to be read with the response."""
        if isinstance(self._connection, http.client.HTTPSConnection):
            return True  # encrypted data cannot be peeked at
        said: bytes = self._connection.sock.recv(16, socket.MSG_PEEK)
        return said.startswith((b"HTTP/1.1 100", b"HTTP/1.0 100"))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def make_topic(url: str, topic: str, token: str | None = None) -> None:
    """Create a topic unless it exists. Raises InvalidRequestError if the server refuses."""
    target = Target(url, token)
    headers = (("Content-Type", "application/json"),)
    outcome = target.send(Request("PUT", f"/v1/topics/{quote(topic, safe='')}", headers, b"{}"))
    target.close()
    if outcome.status not in (200, 201, 409):
        raise InvalidRequestError(
            f"{url} does not create the topic {topic!r}: {outcome.error or f'status {outcome.status}'}",
            hint="check that the server runs and that the token may create topics",
        )
