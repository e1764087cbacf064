"""`Connection`: uvicorn's HTTP protocol with our own limits, and an orderly end.

- *Stalls*: headers that stall or never end, and readers that stall. uvicorn times neither; a client could hold a
  connection, and what an open response pins, indefinitely.
- *Refusals without a task*: requests that `admission` refuses are answered here, with one write, and so is invalid
  HTTP.
- *Refused bodies* are read and discarded, up to a limit of time and bytes. Closing a connection with unread bytes
  resets it, and its client loses the response that gives the reason.
- *Offers* of another protocol (`Upgrade: h2c`) are ignored. The parser would stop at the headers of such a request and
  lose its body, so the request is parsed again without the offer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httptools
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from aggregator.server.bodies.shared.problems import Problem, error_response
from aggregator.server.config.settings import Http
from aggregator.server.http.admission import Admission
from aggregator.server.http.exchange import Exchange, ExchangeTransport
from aggregator.server.http.origins import Headers, cors_headers
from aggregator.server.http.responses import ABORT

LINGER_S = 5.0
"""Seconds that a connection waits for the next piece of a refused body."""
LINGER_MOST_S = 30.0
"""Seconds that it reads such a body in total."""
LINGER_BYTES = 256 << 20
"""Bytes of such a body that it reads."""
_NO_HTTP = Problem(400, "invalid-request", "the request is not valid HTTP/1.1", "the connection is closed")
_TOO_LONG = Problem(431, "headers-too-large", "the headers exceed the size limit", "send fewer or shorter ones")
_TOO_SLOW = Problem(408, "headers-stalled", "the remaining headers did not arrive in time")
_OTHER_CODING = Problem(
    501,
    "unsupported-coding",
    "the only supported transfer encoding is chunked",
    "send gzip or zstd as Content-Encoding",
)

_TOO_MANY = Problem(
    503, "too-many-connections", "the server has reached its limit of connections", "try again later", 1.0
)


class _RefusedError(Exception):
    """Raised in a callback of the parser, which then stops."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class Connection(HttpToolsProtocol):
    """A client's connection. uvicorn creates one for each; `connection_type` sets what they share."""

    stall_s: float
    """Seconds for headers to be complete, and for a reader to continue reading."""
    max_header_bytes: int
    admission: Admission
    cors_origins: Sequence[str]
    _timer: asyncio.TimerHandle | None = None  # Invariant: set while headers, or the rest of a body, are awaited
    _write_timer: asyncio.TimerHandle | None = None
    _unused_bytes = 0  # received since the last complete request, headers, or piece of a body
    _in_headers = True
    _offered = False  # Invariant: true from the headers of a request with an offer until it is read again
    _refused = False  # Invariant: true from the answer to a request without a cycle to the end of its body
    _surplus = False  # over the limit of connections: its first request is refused
    _lingering = False  # nothing is sent any more, and input is discarded
    _discard_until = 0.0
    _discarded_bytes = 0
    cycle: Exchange
    _last_word: Problem | None = None  # response to unreadable input, after those to earlier requests

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._surplus = self.limit_concurrency is not None and len(self.connections) > self.limit_concurrency
        self._wait(self.stall_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        self._forget_writer()
        super().connection_lost(exc)

    # ------------------------------------------------------------ input

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            self._discard(len(data))
        if self._lingering or self._last_word is not None or self.transport.is_closing():
            return
        if self._in_headers and self._timer is None:
            self._wait(self.stall_s)
        self._unused_bytes += len(data)
        self._unset_keepalive_if_required()
        self._parse(data)
        if self._unused_bytes > self.max_header_bytes and not self._lingering:
            self._refuse(_TOO_LONG)

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            self._parse_without_offer(data[offer.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause.problem if isinstance(cause, _RefusedError) else _NO_HTTP)

    def _parse_without_offer(self, rest: bytes) -> None:
        """Parse a request again as if it had not offered another protocol. rest: bytes after its headers."""
        line = b"%b %b HTTP/1.1\r\n" % (self.parser.get_method(), self.url)
        lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        self._offered = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn has it
        self._parse(b"".join([line, *lines, b"\r\n", rest]))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_headers:  # not trailers: the checks of the headers have not seen those
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._unused_bytes = 0
        self._wait(None)
        method, version = self.parser.get_method(), self.parser.get_http_version()
        self._check(method, version)
        self._offered = bool(self.parser.should_upgrade())
        if self._offered:
            return
        refusal = self._refusal()
        if refusal is None:
            self._begin(method, version)
            return
        self._refused = True
        if self.expect_100_continue:  # its client may or may not send the body
            refusal.headers["connection"] = "close"
        self._write(refusal)
        self._begin_discarding()
        if self.expect_100_continue:
            self._linger()

    def _check(self, method: bytes, version: str) -> None:
        """Refuse valid HTTP that is unsupported or over a limit. Raises _RefusedError."""
        if version not in ("1.0", "1.1") or method == b"CONNECT":
            raise _RefusedError(_NO_HTTP)
        if self._surplus or (self.limit_concurrency is not None and len(self.tasks) >= self.limit_concurrency):
            raise _RefusedError(_TOO_MANY)
        for name, value in self.headers:
            if name == b"transfer-encoding" and (version == "1.0" or value.strip().lower() != b"chunked"):
                raise _RefusedError(_OTHER_CODING if version == "1.1" else _NO_HTTP)

    def _begin(self, method: bytes, version: str) -> None:
        """Start the task of a request whose headers are complete, or queue it after earlier requests."""
        path, query = b"*", b""
        if self.url != b"*":
            parsed = httptools.parse_url(self.url)  # handles targets with a host, too
            path, query = parsed.path or b"/", parsed.query or b""
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]  # uvicorn's type lacks `extensions`
        scope |= {
            "method": method.decode(),
            "http_version": version,
            "path": path.decode("ascii"),
            "raw_path": path,
            "query_string": query,
            "extensions": {ABORT: self._cut},
        }
        before = self.cycle
        self.cycle = exchange = Exchange(
            scope=self.scope,
            transport=ExchangeTransport(self.transport, lambda: self._end(exchange)),
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue and version != "1.0",
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if before is None or before.response_complete:
            if method == b"POST" and self.admission.is_crowded:
                self.flow.pause_reading()  # until the application asks for the body
            self._start_asgi_task(exchange, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))

    def _refusal(self) -> Response | None:
        """Return `admission`'s refusal, but only if the connection is idle: responses keep their order and their
        reader's pace.
        """
        idle = self.cycle is None or self.cycle.response_complete
        if not idle or self.flow.write_paused or not self.parser.should_keep_alive():
            return None
        return self.admission.refusal(self.parser.get_method(), self.url, self.headers)

    def _write(self, response: Response) -> None:
        asked: Headers = self.headers or ()
        shared = cors_headers(dict(asked).get(b"origin"), self.cors_origins)
        headers = [*self.server_state.default_headers, *response.raw_headers, *shared]
        lines = [b"%b: %b\r\n" % header for header in headers]
        self.transport.write(b"".join([STATUS_LINE[response.status_code], *lines, b"\r\n", bytes(response.body)]))

    def on_body(self, body: bytes) -> None:
        self._unused_bytes = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_headers = True
        self._unused_bytes = 0
        self._wait(None)
        self._discard_until = 0.0
        if self._refused:
            self._refused = False
            self.on_response_complete()
        elif not self._offered:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._lingering:
            return
        exchange = self.cycle  # maybe not the completed one, but a later one whose body is arriving
        if exchange is not None and exchange.response_complete and exchange.more_body:
            self._begin_discarding()
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and self._last_word is not None:
            self._say_and_end(self._last_word)

    # ------------------------------------------------------------ the end

    def _refuse(self, problem: Problem) -> None:
        """Answer unreadable input, after the requests before it, and read no further request."""
        exchange = self.cycle
        if self._refused or (exchange is not None and exchange.response_complete and exchange.more_body):
            self._linger()  # it was answered already
        elif exchange is None or exchange.response_complete:
            self._say_and_end(problem)
        elif not exchange.more_body:
            self._last_word = problem
        elif self.pipeline:
            self.pipeline.popleft()
            self._last_word = problem
        elif exchange.response_started:
            self._cut()
        else:
            exchange.disconnect()
            self._say_and_end(problem)

    def _say_and_end(self, problem: Problem) -> None:
        last = error_response(problem, "")
        last.headers["connection"] = "close"
        self._write(last)
        self._linger()

    def _end(self, exchange: Exchange) -> None:
        """Close the connection in the way that an exchange needs."""
        if exchange.broken_off:
            self._cut()
        elif exchange.more_body or exchange is not self.cycle:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Send nothing more, and read until the client has its response and closes."""
        if self._lingering or self.transport.is_closing():
            return
        self._lingering = True
        self._unset_keepalive_if_required()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._begin_discarding()

    @property
    def _discarding(self) -> bool:
        return self._discard_until > 0

    def _begin_discarding(self) -> None:
        """Read and discard the rest of a body, or all further input."""
        self.flow.resume_reading()
        self._discarded_bytes = 0
        self._discard_until = self.loop.time() + LINGER_MOST_S
        self._wait(LINGER_S)

    def _discard(self, size_bytes: int) -> None:
        self._discarded_bytes += size_bytes
        if self._discarded_bytes > LINGER_BYTES:
            self._cut()
        else:
            self._wait(min(LINGER_S, max(0.0, self._discard_until - self.loop.time())))

    def _wait(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        self._timer = None
        if self._in_headers and self._unused_bytes and not self._lingering:
            self._refuse(_TOO_SLOW)
        else:
            self._cut()

    # ------------------------------------------------------------ readers that stall

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.stall_s, self._cut)

    def resume_writing(self) -> None:
        self._forget_writer()
        super().resume_writing()

    def _forget_writer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():  # closing would wait for a stalled reader
            self._cut()
        else:
            super().timeout_keep_alive_handler()

    def _cut(self) -> None:
        self.transport.abort()


def connection_type(http: Http, admission: Admission) -> type[Connection]:
    """Return a server's protocol class."""
    shared = {
        "stall_s": http.stall_s,
        "max_header_bytes": http.max_header_bytes,
        "admission": admission,
        "cors_origins": http.cors_origins,
    }
    return type("Connection", (Connection,), shared)
