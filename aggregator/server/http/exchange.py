"""`Exchange`: uvicorn's request-response cycle, extended for HTTP/1.0 and for refused bodies."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent


class Exchange(RequestResponseCycle):
    """A request being handled. `disconnect` tells the application that the rest of the request will not arrive."""

    _ends_with_connection = False  # Invariant: true from the start of an answer of HTTP/1.0 that has no length

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message of the response.

        HTTP/1.0 has no chunked encoding: a response without a length ends with the connection. The connection also ends
        after a response to a client that waits for `100 Continue`: the client may or may not send its body then, so
        later bytes are ambiguous.
        """
        if message["type"] == "http.response.start":
            if self.waiting_for_100_continue and self.more_body:
                self.keep_alive = False
            if self.scope["http_version"] == "1.0" and not _has_length(message):
                self._ends_with_connection = True
                self.chunked_encoding, self.expected_content_length = False, sys.maxsize
        elif self._ends_with_connection and message["type"] == "http.response.body" and not message.get("more_body"):
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)

    @property
    def broken_off(self) -> bool:
        """Whether a response was begun and not finished, and only a reset can show that a part is missing."""
        return self._ends_with_connection and not self.response_complete

    def disconnect(self) -> None:
        """Make the application see a disconnected client."""
        self.disconnected = True
        self.message_event.set()


def _has_length(message: Any) -> bool:
    return any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))


class ExchangeTransport(asyncio.Transport):
    """A transport as exchanges see it: closing it ends the connection in the connection's own way."""

    def __init__(self, transport: asyncio.Transport, end: Callable[[], None]) -> None:
        super().__init__()
        self._transport, self._end = transport, end
        self._ended = False

    def write(self, data: Any) -> None:
        """Send bytes."""
        self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._ended or self._transport.is_closing()

    def close(self) -> None:
        """Send nothing more."""
        if not self.is_closing():
            self._ended = True
            self._end()
