"""`Compression`: responses in gzip or zstd for clients that accept them. Streamed responses remain streams.

Each piece is flushed as it is sent, so that a tail's events arrive immediately. Compressor memory is bounded: only some
responses are compressed at the same time, the others are sent uncompressed.
"""

from __future__ import annotations

import asyncio
import io
import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aggregator.server.bodies.shared.media import listed, quality_of

CODINGS = ("zstd", "gzip")
"""Supported codings, in order of preference if the client has none."""
LEAST_BYTES = 1024
"""Shorter responses are not compressed."""
MOST_AT_ONCE = 64
"""Number of streamed responses that are compressed at the same time; each takes up to 1 MB of memory."""
_INLINE_BYTES = 16 << 10  # up to this size without another thread: takes 0.1 ms
_EVENTS = "text/event-stream"


class _Coder(Protocol):
    def add(self, piece: bytes) -> bytes:
        """Compress a piece, and return all output so far."""

    def finish(self) -> bytes:
        """Return the end."""


class _Gzip:
    def __init__(self, window_bits: int = 15, memory_level: int = 8) -> None:
        self._coder = zlib.compressobj(1, zlib.DEFLATED, 16 + window_bits, memory_level)

    def add(self, piece: bytes) -> bytes:
        return self._coder.compress(piece) + self._coder.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._coder.flush()


class _Zstd:
    def __init__(self) -> None:
        self._out = _Pieces()
        self._coder = pa.CompressedOutputStream(pa.PythonFile(self._out, mode="w"), "zstd")

    def add(self, piece: bytes) -> bytes:
        self._coder.write(piece)
        self._coder.flush()
        return self._out.take()

    def finish(self) -> bytes:
        self._coder.close()
        return self._out.take()


class _Pieces(io.RawIOBase):
    """A file that keeps what is written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        return len(self._pieces[-1])

    def writable(self) -> bool:
        return True

    def take(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken


class Compression:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open: set[_Answer] = set()  # compressed and streamed ones; belongs to the event loop's thread

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accepted = listed(Headers(scope=scope), "accept-encoding") if scope["type"] == "http" else ""
        if choose(accepted) is None or scope["method"] == "HEAD":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, accepted, self._open)
        try:
            await self._app(scope, receive, answer.send)
        finally:
            self._open.discard(answer)


def choose(accepted: str, offered: Sequence[str] = CODINGS) -> str | None:
    """Return the coding that an Accept-Encoding header prefers; None if it names none that is offered."""
    liked: dict[str, float] = {}
    for part in accepted.lower().split(","):
        name, *parameters = part.split(";")
        liked[name.strip().removeprefix("x-")] = quality_of(parameters)
    best = max(offered, key=lambda coding: liked.get(coding, 0.0))
    return best if liked.get(best, 0.0) > 0 else None


class _Answer:
    """Passes one response on. Its head waits for the first piece of the body, which shows how long the body is."""

    def __init__(self, send: Send, accepted: str, others: set[_Answer]) -> None:
        self._send, self._accepted, self._others = send, accepted, others
        self._head: Message | None = None
        self._coder: _Coder | None = None

    async def send(self, message: Message) -> None:
        """Send a message of the response, or hold it back."""
        if message["type"] == "http.response.start":
            self._head = message
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        if self._head is not None:
            head, self._head = self._head, None
            self._coder = self._begin(head, len(body), more=more)
            if self._coder is not None:
                body = await self._coded(self._coder, body, more=more)
                if not more:
                    MutableHeaders(scope=head)["content-length"] = str(len(body))
            await self._send(head)
        elif self._coder is not None:
            body = await self._coded(self._coder, body, more=more)
        if body or not more:
            await self._send({"type": "http.response.body", "body": body, "more_body": more})

    def _begin(self, head: Message, size: int, *, more: bool) -> _Coder | None:
        """Return the coder for the response, or None if it is not compressed. Adjusts the headers."""
        headers = MutableHeaders(scope=head)
        is_events = headers.get("content-type", "").startswith(_EVENTS)
        if (not more and size < LEAST_BYTES) or "content-encoding" in headers or head["status"] in (204, 304):
            return None
        headers.add_vary_header("Accept-Encoding")
        coding = choose(self._accepted, ("gzip",) if is_events else CODINGS)  # tails last long: they use small windows
        if coding is None or (more and len(self._others) >= MOST_AT_ONCE):
            return None
        headers["content-encoding"] = coding
        if more:
            self._others.add(self)
            if "content-length" in headers:
                del headers["content-length"]
        if coding == "zstd":
            return _Zstd()
        return _Gzip(12, 5) if is_events else _Gzip()

    async def _coded(self, coder: _Coder, body: bytes, *, more: bool) -> bytes:
        if len(body) <= _INLINE_BYTES:
            return _code(coder, body, more=more)
        return await asyncio.to_thread(_code, coder, body, more=more)


def _code(coder: _Coder, body: bytes, *, more: bool) -> bytes:
    made = coder.add(body) if body else b""
    return made if more else made + coder.finish()
