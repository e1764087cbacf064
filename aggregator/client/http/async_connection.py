"""`AsyncConnection`: `Connection` for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pyarrow as pa

from aggregator.client.http.arrow_stream import StreamDecoder
from aggregator.client.http.attempts import Attempts, broken_off, check_whole, failure_of
from aggregator.client.http.calls import Call, Reply
from aggregator.client.http.connection import Options, ServerRotation, headers_of, pieces_of
from aggregator.client.http.errors import TruncatedAnswerError, error_of
from aggregator.client.http.retry import Retry
from esformat import ClosedError, EsdbError


async def sleep(seconds: float) -> bool:
    """Wait; return True to give up."""
    await asyncio.sleep(seconds)
    return False


async def _async_pieces(call: Call) -> AsyncIterator[bytes]:
    for piece in pieces_of(call.body):
        yield piece


class AsyncConnection:
    """A pool of connections to one server, for one event loop."""

    def __init__(self, options: Options) -> None:
        self.options, self._rotation = options, ServerRotation(options)
        self._http = httpx.AsyncClient(
            headers=options.headers(),
            verify=options.ssl_context(),
            follow_redirects=False,
            limits=httpx.Limits(max_connections=256, max_keepalive_connections=64, keepalive_expiry=30.0),
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def send(
        self, call: Call, retry: Retry | None = None, wait: Callable[[float], Awaitable[bool]] = sleep
    ) -> Reply:
        """Return the complete response; as `Connection.send`."""
        response, refusals = await self._open(call, retry, wait)
        return Reply(response.status_code, response.headers, response.content, refusals)

    async def stream(self, call: Call) -> AsyncStream:
        """Return an Arrow stream that is read as it is consumed. Retried until it begins."""
        stream = AsyncStream((await self._open(call, None, sleep, stream=True))[0], call.path)
        await stream.begin()
        return stream

    async def _open(
        self, call: Call, retry: Retry | None, wait: Callable[[float], Awaitable[bool]], *, stream: bool = False
    ) -> tuple[httpx.Response, int]:
        attempts = Attempts(
            retry or self.options.retry, repeatable=call.repeatable, stores=call.stores, servers=len(self._rotation)
        )
        while True:
            base = self._rotation.base
            try:
                response = await self._attempt(base, call, stream=stream)
                if response.is_success:
                    return response, attempts.refusals
                failure: EsdbError = error_of(
                    response.status_code, response.headers, response.content, subject=call.path
                )
            except httpx.RequestError as error:
                failure = failure_of(error, base + call.path)
            self._rotation.advance(base, failure)
            if await wait(attempts.wait_s(failure)):
                raise attempts.final_error(failure)

    async def _attempt(self, base: str, call: Call, *, stream: bool) -> httpx.Response:
        """Return the response, read completely unless it is successful and to be streamed."""
        if self._http.is_closed:
            raise ClosedError("the client is closed", path=self.options.url, hint="create a new client")
        content = _async_pieces(call) if len(memoryview(call.body)) else None
        request = self._http.build_request(
            call.method, base + call.path, content=content, headers=headers_of(call), timeout=self.options.timeout(call)
        )
        response = await self._http.send(request, stream=True)
        if not stream or not response.is_success:
            try:
                await response.aread()
            finally:
                await response.aclose()
            check_whole(response)
        return response


class AsyncStream:
    """Record batches of a response; iterate once. A truncated response raises TruncatedAnswerError."""

    def __init__(self, response: httpx.Response, subject: str) -> None:
        self._response, self._subject = response, subject
        self._pieces = response.aiter_bytes()
        self._decoder = StreamDecoder()
        self._ready: list[pa.RecordBatch] = []  # in reverse order
        self._ended = False

    async def begin(self) -> None:
        """Wait for the schema."""
        while self._decoder.schema is None and not self._ended:
            await self._more()

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        assert self._decoder.schema is not None  # set by `begin`
        return self._decoder.schema

    @property
    def headers(self) -> httpx.Headers:
        """The headers of the response."""
        return self._response.headers

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Yield the batches; the response is closed when the reader stops."""
        try:
            while self._ready or not self._ended:
                while self._ready:
                    yield self._ready.pop()
                if not self._ended:
                    await self._more()
        finally:
            await self.close()

    async def _more(self) -> None:
        try:
            async for piece in self._pieces:
                self._ready = [*self._decoder.feed(piece)][::-1] + self._ready
                return
            self._ended = True
            self._decoder.finish()
        except httpx.RequestError as error:
            await self.close()
            raise broken_off(error, self._subject) from None
        except TruncatedAnswerError:
            await self.close()
            raise
        await self.close()

    async def close(self) -> None:
        """Stop reading."""
        self._ended = True
        await self._response.aclose()
