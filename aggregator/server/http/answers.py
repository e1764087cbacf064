"""Streamed answers: a scan's batches encoded a piece at a time, as fast as the client takes them.

What an answer holds in memory does not grow with it. Its reader sets the pace; where it goes away, the scan ends; and
a scan that fails breaks the connection, so that nobody takes a part for the whole.
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

from aggregator.server.bodies.shared.media import ARROW_STREAM, CSV, LINES, OUTPUTS, PARQUET, choose
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.control.open_answers import OpenAnswers, Over
from aggregator.server.control.thread_pools import WorkPool
from esformat import convert  # whose writers are imported with the first answer

CHUNK_BYTES = 256 << 10
"""About what is sent at once."""
_BATCH_BYTES = 1 << 20  # of a batch that is encoded at once
_GROUP_BYTES = 8 << 20  # of what becomes a row group of Parquet
EVENTS = "text/event-stream"
ABORT = "aggregator.abort"
"""Among the extensions of a request's scope: breaks its connection at once."""
_LAST_WORD_S = 1.0  # so long an answer that is over waits for its client
_FORMATS = {ARROW_STREAM: "arrows", LINES: "jsonl", CSV: "csv", PARQUET: "parquet"}


class Batches(Protocol):
    """What a scan or a selection gives."""

    @property
    def schema(self) -> pa.Schema:
        """As it is now."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Of one snapshot, all with the same columns."""


def media_for(request: Request, offered: Sequence[str] = OUTPUTS) -> str:
    """The media type that the client wants an answer in. Raises ProblemError: 406."""
    media = choose(request.headers.get("accept"), offered)
    if media is None:
        raise ProblemError(
            406, "not-acceptable", "cannot answer with any media type in Accept", f"accept one of {', '.join(offered)}"
        )
    return media


def encode(batches: Iterator[pa.RecordBatch], schema: pa.Schema, media: str) -> Iterator[bytes]:
    """The batches in a format, in chunks of about CHUNK_BYTES. `batches` is closed when nobody asks any more."""
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
    """Small batches together, as each costs an encoder as much as many rows do; and their bytes."""
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
    """One batch of all; the list is emptied, so that they are not held beside it."""
    joined = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    batches.clear()
    return joined


def encode_text(lines: Iterator[str]) -> Iterator[bytes]:
    """Lines of text, in chunks of about CHUNK_BYTES; those without a line end get one. `lines` is closed when nobody
    asks any more.
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
        """Keep some bytes."""
        length = memoryview(piece).nbytes
        self.size += length
        self._pieces.append(piece)
        return length

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """How many bytes were written in all."""
        return self._taken + self.size

    def take(self) -> bytes:
        """What was written since the last time."""
        taken = b"".join(self._pieces)
        self._taken += len(taken)
        self._pieces, self.size = [], 0
        return taken


async def stream_scan(
    pool: WorkPool, make: Callable[[], Batches | pa.Table], media: str, headers: Mapping[str, str] | None = None
) -> Response:
    """The answer that streams what `make` gives; errors before its first bytes are raised, and become answers.

    make: runs in a thread, as all of the reading does.
    """

    def chunks() -> Iterator[bytes]:
        found = make()
        if isinstance(found, pa.Table):
            yield from encode(iter(found.to_batches()), found.schema, media)
        else:
            schema, batches = opened(found)
            yield from encode(batches, schema, media)

    return await answer_of(pool.pull(chunks), media, headers)


async def answer_of(chunks: AsyncIterator[bytes], media: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer with these chunks. The first is waited for, so that what fails before it is told by a status; an
    answer that has no other goes out at once, with its length.
    """
    first = await anext(chunks, b"")
    second = await anext(chunks, None)  # it is there already, or nothing is
    if second is None:
        return Response(first, 200, dict(headers or {}), media)
    return Streamed(first + second, chunks, media, headers)


def opened(found: Batches) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Batches, and their schema: the first one's, as a topic may gain columns meanwhile."""
    batches = found.batches()
    first = next(batches, None)
    return (found.schema, batches) if first is None else (first.schema, _with_first(first, batches))


def _with_first(first: pa.RecordBatch, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with contextlib.closing(cast("Generator[pa.RecordBatch]", batches)):
        yield first
        yield from batches


class Streamed(Response):
    """An answer whose chunks are made as they are sent. It ends early if its client leaves or its token expires."""

    def __init__(
        self, first: bytes, rest: AsyncIterator[bytes], media: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """first: bytes that are there already. rest: closed at the end, whatever that is."""
        super().__init__(None, 200, dict(headers or {}), media)
        self._first, self._rest = first, rest
        self._making: asyncio.Future[bytes | None] | None = None
        with contextlib.suppress(KeyError):
            del self.headers["content-length"]

    async def close(self) -> None:
        """Let go of what the chunks are made of, once nothing is made of it any more."""
        self._first = b""
        if self._making is not None:
            await asyncio.wait([self._making])  # it runs in a thread, and ends soon
            if not self._making.cancelled():
                self._making.exception()  # seen: nobody else may have waited for it
        close = getattr(self._rest, "aclose", None)
        if close is not None:
            await close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.get("state", {})
        answers: OpenAnswers = state.get("answers") or OpenAnswers()
        with answers.open(state.get("standing")) as over:
            sending = _Sending(send, asyncio.ensure_future(_disconnected(receive)), over)
            try:
                await sending.send(
                    {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                )
                whole = scope["method"] == "HEAD" or await self._send_chunks(sending, answers)
                if whole:
                    await sending.send({"type": "http.response.body", "body": b"", "more_body": False})
                elif over.done():
                    await self._break_off(over.result(), sending, scope)
            finally:
                sending.gone.cancel()
                await self.close()

    async def _send_chunks(self, sending: _Sending, answers: OpenAnswers) -> bool:
        """Send all chunks; False where the end came first."""
        chunk: bytes | None = self._first
        self._first = b""
        while chunk is not None:
            if chunk:
                await sending.send({"type": "http.response.body", "body": chunk, "more_body": True})
                answers.sent(len(chunk))
            chunk = None  # not held while the next one is made
            self._making = asyncio.ensure_future(anext(self._rest, None))
            if not await sending.first(self._making):
                return False
            chunk = self._making.result()
        return True

    async def _break_off(self, reason: ProblemError, sending: _Sending, scope: Scope) -> None:
        """End an answer of which the client must not take a part for the whole; events say why they end."""
        if self.media_type == EVENTS:
            told = {"status": reason.problem.status, "detail": reason.problem.detail}
            last = b"event: end\ndata: %b\n\n" % json.dumps(told).encode()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORD_S):
                    await sending.pass_on({"type": "http.response.body", "body": last, "more_body": False})
                    return
        abort = scope.get("extensions", {}).get(ABORT)
        if abort is None:
            raise reason
        abort()  # and not what waits in buffers for a slow reader
        await asyncio.wait([sending.gone], timeout=_LAST_WORD_S)


class _Sending:
    """The way to a client, up to the moment at which it goes away, or its answer is over."""

    def __init__(self, send: Send, gone: asyncio.Future[None], over: Over) -> None:
        self.gone = gone
        self.pass_on = send
        self._ends = (gone, over)

    async def first(self, step: asyncio.Future[Any]) -> bool:
        """Wait for a step; False where the end came first."""
        await asyncio.wait((step, *self._ends), return_when=asyncio.FIRST_COMPLETED)
        return not any(end.done() for end in self._ends)

    async def send(self, message: Message) -> None:
        """Send, as fast as the client takes it, nothing once the end has come."""
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
