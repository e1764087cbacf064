"""`Peer`: an HTTP client for one server over one connection, built on the standard library only."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from aggregator.base.names import check_host
from aggregator.errors import InvalidRequestError

_MOST_BYTES = 1 << 20  # of a response that are read


class Reply(NamedTuple):
    """A response. retry_after_s: when to retry, if the response says so in seconds."""

    status: int
    reason: str
    body: bytes
    retry_after_s: float | None


class Peer:
    """A server. Connects on demand, and reconnects after the connection broke."""

    def __init__(self, address: str, timeout_s: float, headers: Mapping[str, str] | None = None) -> None:
        """headers: of every request. Raises InvalidRequestError for an invalid address."""
        try:
            parts = urlsplit(address)
            host, self._port = parts.hostname, parts.port
            check_host(host)
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https") or parts.username:
            raise InvalidRequestError(f"invalid server address {address!r}", hint="write http://host:port")
        self._secure, self._host, self._timeout_s = parts.scheme == "https", host, timeout_s
        self._headers = dict(headers or {})
        self._connection: http.client.HTTPConnection | None = None

    def request(self, method: str, target: str, body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a request and read the response. Raises OSError, http.client.HTTPException."""
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            self._connection = kind(self._host, self._port, timeout=self._timeout_s)
        try:
            self._connection.request(method, target, body, self._headers | dict(headers or {}))
            response = self._connection.getresponse()
            answer = response.read(_MOST_BYTES)
        except BaseException:
            self.close()
            raise
        if response.will_close or not response.isclosed():  # the rest of a long response would be taken for the next
            self.close()
        return Reply(response.status, response.reason, answer, _seconds(response.getheader("Retry-After")))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _seconds(given: str | None) -> float | None:
    return float(given) if given is not None and given.isascii() and given.isdigit() and len(given) < 6 else None
