"""`Exchange`: one request and its answer on a connection: uvicorn's, where HTTP/1.0 and refused bodies need more."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent


class Exchange(RequestResponseCycle):
    """A request under way. `disconnect` tells the application that the rest of the request will not come."""

    _ends_with_connection = False  # Invariant: true from the start of an answer of HTTP/1.0 that has no length

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message of the answer.

        HTTP/1.0 knows no chunks: what has no length there ends with the connection. A client that waits to be asked for
        its body may send it or not, once it has its answer, so that nothing behind the answer could be read for sure.
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
        """Whether an answer was begun and not finished, and only a reset can show that a part is missing."""
        return self._ends_with_connection and not self.response_complete

    def disconnect(self) -> None:
        """Let the application see a client that has left."""
        self.disconnected = True
        self.message_event.set()


def _has_length(message: Any) -> bool:
    return any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))


class Way(asyncio.Transport):
    """A transport as exchanges see it: what they would close, its connection ends in its own manner."""

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
