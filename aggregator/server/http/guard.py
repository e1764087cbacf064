"""`Guard`: limits on every request: bytes of headers and body, time for each piece, total bytes of bodies in memory.

It wraps the whole application. Limits of a connection that has no request yet are in `connection`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aggregator import OverloadedError
from aggregator.server.bodies.shared.problems import ProblemError, error_response, problem_of
from aggregator.server.context import Context
from aggregator.server.control.requests import FinishedRequest
from aggregator.server.http.methods import Methods
from aggregator.server.http.origins import (
    Headers,
    client_of,
    cors_headers,
    is_same_origin,
    origin_allowed,
    preflight_headers,
)

SLOWEST_BYTES_PER_S = 4096
"""A body that arrives more slowly than this is cut, after the first `stall_s`: a trickle of bytes is not progress."""
_NEVER_TAKEN = (400, 404, 413, 415, 422)
"""Statuses of appends that would be refused again: their senders give up, or should."""


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, context: Context, methods: Methods) -> None:
        self._app, self._context, self._methods = app, context, methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        http = self._context.settings.http
        if self._context.metrics_port is not None and scope["server"][1] == self._context.metrics_port:
            scope["raw_path"] = b"/metrics"  # for any path, like plateau's exporter
        scope["path"] = scope["raw_path"].decode("ascii", "replace")  # names are decoded once a route matches
        address, port = scope.get("client") or ("", 0)
        client = client_of(address, scope["headers"], http.trusted_proxies)
        scope["client"] = (client.address, port)
        watch = _Watch(scope, send, self._context)
        body = _Body(receive, self._context)
        try:
            watch.headers = self._cors(scope["headers"], client.hosts)
            self._check(scope)
        except ProblemError as problem:
            await error_response(problem_of(problem), scope["path"])(scope, receive, watch.send)
        else:
            await (self._options(scope) or self._app)(scope, body.receive, watch.send)
        finally:
            body.release()
            watch.done()

    def _cors(self, headers: Headers, hosts: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """Return the headers that a browser needs on the response.

        Raises ProblemError for a page of another site: if no token is required, any page could send requests.
        """
        allowed = self._context.settings.http.cors_origins
        origin = dict(headers).get(b"origin")
        if origin is not None and is_same_origin(origin.decode("latin-1"), hosts):
            origin = None
        if origin is not None and not origin_allowed(origin, allowed):
            raise ProblemError(
                403,
                "cross-origin",
                "pages from other origins may not use this server",
                "allow the origin in http.cors_origins or, behind a proxy, set http.trusted_proxies",
            )
        return cors_headers(origin, allowed)

    def _options(self, scope: Scope) -> Response | None:
        """Return the response to OPTIONS, including CORS preflight requests; None for other requests."""
        methods = self._methods.of(scope["path"]) if scope["method"] == "OPTIONS" else []
        if not methods:
            return None
        made = Response(status_code=204, headers={"Allow": ", ".join(methods)})
        if any(name == b"access-control-request-method" for name, _ in scope["headers"]):
            made.raw_headers += preflight_headers(scope["headers"], methods)
        return made

    def _check(self, scope: Scope) -> None:
        """Raise ProblemError for requests that can be refused before any work."""
        http = self._context.settings.http
        headers = scope["headers"]
        if sum(len(name) + len(value) + 4 for name, value in headers) + len(scope["raw_path"]) > http.max_header_bytes:
            raise ProblemError(431, "headers-too-large", f"the headers have more than {http.max_header_bytes:,} bytes")
        lengths = [value for name, value in headers if name == b"content-length"]
        if lengths and (len(lengths) > 1 or not lengths[0].isdigit()):
            raise ProblemError(400, "invalid-request", "Content-Length is not a number")
        length = int(lengths[0][:20]) if lengths else 0
        if length > http.max_append_bytes:
            raise too_large(http.max_append_bytes)


def too_large(max_bytes: int) -> ProblemError:
    """Return the problem for a body over the limit."""
    return ProblemError(
        413,
        "body-too-large",
        f"the body has more than {max_bytes:,} bytes",
        "split it into smaller ones",
        x_max_request_size=str(max_bytes),
    )


class _Body:
    """A request body: counted, timed, and charged to the budget of all bodies."""

    def __init__(self, receive: Receive, context: Context) -> None:
        self._receive, self._context = receive, context
        self._bytes = 0
        self._began: float | None = None
        self._ended = False

    async def receive(self) -> Message:
        """Return the next message. Raises ProblemError (413, 408), OverloadedError."""
        if self._ended:  # now the only message to wait for is the disconnect
            return await self._receive()
        http = self._context.settings.http
        now = time.monotonic()
        if self._began is None:
            self._began = now
        slowest = self._began + http.stall_s + self._bytes / SLOWEST_BYTES_PER_S
        try:
            async with asyncio.timeout(max(0.0, min(http.stall_s, slowest - now))):
                message = await self._receive()
        except TimeoutError:
            self._ended = True
            raise ProblemError(
                408, "body-stalled", "the rest of the body did not arrive in time", Connection="close"
            ) from None
        self._ended = not message.get("more_body", False)
        size = len(message.get("body", b""))
        self._bytes += size
        self._context.body_bytes += size
        if self._bytes > http.max_append_bytes:
            self._ended = True
            raise too_large(http.max_append_bytes)
        if self._context.body_bytes > self._context.settings.work.body_bytes:
            self._ended = True
            raise OverloadedError(
                "too many request bodies are in memory",
                hint="try again later; nothing in this request was done",
                retry_after_s=1.0,
            )
        return message

    def release(self) -> None:
        """Return the body's bytes to the budget."""
        self._context.body_bytes -= self._bytes


class _Watch:
    """Collects the facts that are reported when a request ends."""

    def __init__(self, scope: Scope, send: Send, context: Context) -> None:
        self._scope, self._send, self._context = scope, send, context
        self._began = time.perf_counter()
        self._status = 0
        self._bytes = 0
        self.headers: list[tuple[bytes, bytes]] = []
        """Added to the headers of the response."""
        context.open_requests += 1

    async def send(self, message: Message) -> None:
        """Pass on a message of the response."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self.headers]}
        else:
            self._bytes += len(message.get("body", b""))
        await self._send(message)

    def done(self) -> None:
        """Report the finished request."""
        self._context.open_requests -= 1
        state: dict[str, Any] = self._scope.get("state", {})
        if "route" in state:
            self._context.open_by_route[state["route"]] -= 1
        source, refusal = state.get("source"), state.get("refusal")  # no refusal: its client disconnected
        if source is not None and refusal is not None and self._status in _NEVER_TAKEN:
            why = f"the last with status {self._status}: {refusal}"
            self._context.refused(source, "request", why=why)
        seconds = time.perf_counter() - self._began
        self._context.request_finished(
            FinishedRequest(
                self._scope["method"],
                state.get("route", ""),
                self._status,
                seconds,
                self._bytes,
                state.get("who", ""),
                self._scope["client"][0],
            )
        )
