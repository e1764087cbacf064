"""`Connection`: uvicorn's HTTP protocol with limits of its own: headers that stall or never end, readers that stall.

uvicorn times neither; a client could hold a connection, and what an open answer pins, for as long as it likes. And what
`admission` refuses is answered here, with one write, before there is a task for it; its body is read and thrown away.
"""

from __future__ import annotations

import asyncio

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from aggregator.server.admission import Admission
from aggregator.server.answers import ABORT

LINGER_S = 5.0
"""How long the rest of a body is read, and thrown away, after its request was refused."""


def connection_type(stall_s: float, max_header_bytes: int, admission: Admission) -> type[HttpToolsProtocol]:
    """The protocol class of a server. stall_s: for headers to be complete, and for a reader to go on reading."""

    class Connection(HttpToolsProtocol):
        _timer: asyncio.TimerHandle | None = None  # Invariant: set while headers, or the rest of a body, are awaited
        _write_timer: asyncio.TimerHandle | None = None
        _header_bytes = 0
        _in_headers = True
        _refused = False  # Invariant: true from the answer to a request without a cycle to the end of its body

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
            super().connection_made(transport)
            self._wait(stall_s)

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait(None)
            self._forget_writer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._in_headers:
                if self._timer is None:
                    self._wait(stall_s)
                self._header_bytes += len(data)
            super().data_received(data)
            if self._in_headers and self._header_bytes > max_header_bytes and not self.transport.is_closing():
                self._refuse(b"431 Request Header Fields Too Large")

        def on_headers_complete(self) -> None:
            self._in_headers = False
            self._header_bytes = 0
            self._wait(None)
            refusal = self._refusal()
            if refusal is None:
                super().on_headers_complete()
                self.scope["extensions"] = {ABORT: self._cut}  # type: ignore[dict-item]  # uvicorn knows no other
            else:
                self._refused = True
                self._write(refusal)
                self._wait(LINGER_S)

        def _refusal(self) -> Response | None:
            """Only where nothing is under way on the connection: answers keep their order and their reader's pace."""
            idle = self.cycle is None or self.cycle.response_complete
            if not idle or self.flow.write_paused or not self.parser.should_keep_alive():
                return None
            return admission.refusal(self.parser.get_method(), self.url, self.headers)

        def _write(self, answer: Response) -> None:
            headers = [*self.server_state.default_headers, *answer.raw_headers]
            lines = [b"%b: %b\r\n" % header for header in headers]
            self.transport.write(b"".join([STATUS_LINE[answer.status_code], *lines, b"\r\n", bytes(answer.body)]))

        def on_body(self, body: bytes) -> None:
            if not self._refused:
                super().on_body(body)

        def on_message_complete(self) -> None:
            self._in_headers = True
            self._wait(None)
            if self._refused:
                self._refused = False
                self.on_response_complete()
            else:
                super().on_message_complete()

        def on_response_complete(self) -> None:
            if self.cycle is not None and self.cycle.more_body and not self.transport.is_closing():
                self._wait(LINGER_S)
            super().on_response_complete()

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._write_timer is None:
                self._write_timer = self.loop.call_later(stall_s, self._cut)

        def resume_writing(self) -> None:
            self._forget_writer()
            super().resume_writing()

        def _forget_writer(self) -> None:
            if self._write_timer is not None:
                self._write_timer.cancel()
                self._write_timer = None

        def _wait(self, seconds: float | None) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None if seconds is None else self.loop.call_later(seconds, self._too_late)

        def _too_late(self) -> None:
            self._timer = None
            if self._in_headers and self._header_bytes:
                self._refuse(b"408 Request Timeout")
            else:
                self._cut()

        def timeout_keep_alive_handler(self) -> None:
            if self.transport.get_write_buffer_size():  # closing would wait for a reader that does not read
                self._cut()
            else:
                super().timeout_keep_alive_handler()

        def _refuse(self, status: bytes) -> None:
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()
            self.loop.call_later(LINGER_S, self._cut)

        def _cut(self) -> None:
            self.transport.abort()

    return Connection
