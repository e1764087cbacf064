"""Streamed responses: the batches of a scan, encoded a piece at a time, as fast as the client reads them.

A response's memory does not grow with its size. If its reader disconnects, the scan ends. A scan that fails breaks the
connection, so that nobody mistakes a part for the whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Protocol, cast

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from aggregator.server.bodies.shared.media import ARROW_STREAM, CSV, LINES, OUTPUTS, PARQUET, choose, listed
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.control.open_responses import EndSignal, OpenResponses
from aggregator.server.control.thread_pools import WorkPool
from esformat import convert  # whose writers are imported with the first answer

CHUNK_BYTES = 256 << 10
"""Approximate size of a chunk that is sent."""
_BATCH_BYTES = 1 << 20  # of a batch that is encoded in one step
_GROUP_BYTES = 8 << 20  # of a Parquet row group
EVENTS = "text/event-stream"
ABORT = "aggregator.abort"
"""Key in the `extensions` of a request's scope: a function that breaks its connection immediately."""
_LAST_WORD_S = 1.0  # the longest that a response that must end waits for its client
_FORMATS = {ARROW_STREAM: "arrows", LINES: "jsonl", CSV: "csv", PARQUET: "parquet"}


class Batches(Protocol):
    """A scan or a selection."""

    @property
    def schema(self) -> pa.Schema:
        """The current schema."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one snapshot, all with the same columns."""


def media_for(request: Request, offered: Sequence[str] = OUTPUTS) -> str:
    """Return the media type that the client prefers for the response. Raises ProblemError (406)."""
    media = choose(listed(request.headers, "accept"), offered)
    if media is None:
        raise ProblemError(
            406, "not-acceptable", "no media type in Accept is available", f"accept one of {', '.join(offered)}"
        )
    return media


def encode(batches: Iterator[pa.RecordBatch], schema: pa.Schema, media: str) -> Iterator[bytes]:
    """Encode batches in a format, in chunks of about CHUNK_BYTES. Close `batches` when the reader stops."""
    out = _Chunks()
    file = pa.BufferedOutputStream(pa.PythonFile(out, mode="w"), CHUNK_BYTES)  # an encoder writes many small pieces
    try:
        sink = convert.open_sink(_FORMATS[media], cast("BinaryIO", file), schema)
        least, most = (_GROUP_BYTES, _GROUP_BYTES) if media == PARQUET else (CHUNK_BYTES, _BATCH_BYTES)
        for batch, size in _joined(batches, least):
            step = max(1, batch.num_rows * most // max(size, 1))
            for start in range(0, batch.num_rows, step):
                sink.write(batch.slice(start, step))
                file.flush()
                if out.size >= CHUNK_BYTES:
                    yield out.take()
        sink.finish()
        file.flush()
        if out.size:
            yield out.take()
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


def _joined(batches: Iterator[pa.RecordBatch], least_bytes: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Join small batches, because each costs an encoder as much as many rows, and yield them with their bytes."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= least_bytes:
            yield _concatenated(waiting), size
            size = 0
    if waiting:
        yield _concatenated(waiting), size


def _concatenated(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return one batch of all. Empties the list, so that both are not in memory together."""
    joined = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    batches.clear()
    return joined


def encode_text(lines: Iterator[str]) -> Iterator[bytes]:
    """Encode lines of text in chunks of about CHUNK_BYTES, adding missing line ends. Close `lines` when the reader
    stops.
    """
    waiting: list[bytes] = []
    size = 0
    try:
        for line in lines:
            waiting.append((line if line.endswith("\n") else line + "\n").encode())
            size += len(waiting[-1])
            if size >= CHUNK_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
        if waiting:
            yield b"".join(waiting)
    finally:
        close = getattr(lines, "close", None)
        if close is not None:
            close()


class _Chunks(io.RawIOBase):
    """A file that keeps what is written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self._pieces: list[Any] = []
        self._taken = 0

    def write(self, piece: Any) -> int:
        """Keep a piece."""
        length = memoryview(piece).nbytes
        self.size += length
        self._pieces.append(piece)
        return length

    def writable(self) -> bool:
        """Return true."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written in total."""
        return self._taken + self.size

    def take(self) -> bytes:
        """Return what was written since the last call."""
        taken = b"".join(self._pieces)
        self._taken += len(taken)
        self._pieces, self.size = [], 0
        return taken


async def stream_response(
    pool: WorkPool, make: Callable[[], Batches | pa.Table], media: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response that streams what `make` returns. Errors before the first bytes are raised.

    make: runs in a thread, as does all reading.
    """

    def chunks() -> Iterator[bytes]:
        found = make()
        if isinstance(found, pa.Table):
            yield from encode(iter(found.to_batches()), found.schema, media)
        else:
            schema, batches = opened(found)
            yield from encode(batches, schema, media)

    return await response_of(pool.pull(chunks), media, headers)


async def response_of(chunks: AsyncIterator[bytes], media: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with these chunks.

    Wait for the first chunk, so that an error before it sets the status. A response with only one chunk is sent in one
    piece, with its length.
    """
    first = await anext(chunks, b"")
    second = await anext(chunks, None)  # the pool fetches two at first, so this does not wait
    if second is None:
        return Response(first, 200, dict(headers or {}), media)
    return StreamedResponse(first + second, chunks, media, headers)


def opened(found: Batches) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of batches and the batches. The schema is the first batch's: a topic may gain columns
    meanwhile.
    """
    batches = found.batches()
    first = next(batches, None)
    return (found.schema, batches) if first is None else (first.schema, _with_first(first, batches))


def _with_first(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with contextlib.closing(cast("Generator[pa.RecordBatch]", batches)):
        yield first
        yield from batches


class StreamedResponse(Response):
    """A response whose chunks are produced as they are sent. Ends early if its client disconnects or its token ends."""

    def __init__(
        self, first: bytes, rest: AsyncIterator[bytes], media: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """first: bytes that are already available. rest: always closed at the end."""
        super().__init__(None, 200, dict(headers or {}), media)
        self._first, self._rest = first, rest
        self._making: asyncio.Future[bytes | None] | None = None
        with contextlib.suppress(KeyError):
            del self.headers["content-length"]

    async def close(self) -> None:
        """Release the source of the chunks once no thread reads it any more."""
        self._first = b""
        if self._making is not None:
            await asyncio.wait([self._making])  # it runs in a thread, and ends soon
            if not self._making.cancelled():
                self._making.exception()  # retrieved: nobody else may await it
        close = getattr(self._rest, "aclose", None)
        if close is not None:
            await close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.get("state", {})
        open_responses: OpenResponses = state.get("open_responses") or OpenResponses()
        with open_responses.open(state.get("token_check")) as end:
            sending = _Sending(send, asyncio.ensure_future(_disconnected(receive)), end)
            try:
                await sending.send(
                    {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                )
                whole = scope["method"] == "HEAD" or await self._send_chunks(sending, open_responses)
                if whole:
                    await sending.send({"type": "http.response.body", "body": b"", "more_body": False})
                elif end.done():
                    await self._break_off(end.result(), sending, scope)
            finally:
                sending.gone.cancel()
                await self.close()

    async def _send_chunks(self, sending: _Sending, open_responses: OpenResponses) -> bool:
        """Send all chunks; return False if the response had to end first."""
        chunk: bytes | None = self._first
        self._first = b""
        while chunk is not None:
            if chunk:
                await sending.send({"type": "http.response.body", "body": chunk, "more_body": True})
                open_responses.sent(len(chunk))
            chunk = None  # not held while the next one is made
            self._making = asyncio.ensure_future(anext(self._rest, None))
            if not await sending.first(self._making):
                return False
            chunk = self._making.result()
        return True

    async def _break_off(self, reason: ProblemError, sending: _Sending, scope: Scope) -> None:
        """End a response so that the client cannot mistake it for complete. Event streams say why they end."""
        if self.media_type == EVENTS:
            reason_json = {"status": reason.problem.status, "detail": reason.problem.detail}
            last = b"event: end\ndata: %b\n\n" % json.dumps(reason_json).encode()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORD_S):
                    await sending.pass_on({"type": "http.response.body", "body": last, "more_body": False})
                    return
        abort = scope.get("extensions", {}).get(ABORT)
        if abort is None:
            raise reason
        abort()  # without sending what is buffered for a slow reader
        await asyncio.wait([sending.gone], timeout=_LAST_WORD_S)


class _Sending:
    """The channel to a client until the client disconnects or the response must end."""

    def __init__(self, send: Send, gone: asyncio.Future[None], end: EndSignal) -> None:
        self.gone = gone
        self.pass_on = send
        self._ends = (gone, end)

    async def first(self, step: asyncio.Future[Any]) -> bool:
        """Wait for a step; return False if the response had to end first."""
        await asyncio.wait((step, *self._ends), return_when=asyncio.FIRST_COMPLETED)
        return not any(end.done() for end in self._ends)

    async def send(self, message: Message) -> None:
        """Send a message as fast as the client reads it; send nothing after the end."""
        if not any(end.done() for end in self._ends):
            step = asyncio.ensure_future(self.pass_on(message))
            if await self.first(step) or step.done():
                step.result()
            else:
                step.cancel()
                await asyncio.wait([step])


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
