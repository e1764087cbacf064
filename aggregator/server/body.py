"""Bodies of requests: read as they come, within the limits of bytes and of patience, and decompressed."""

from __future__ import annotations

import asyncio

import pyarrow as pa
from starlette.requests import ClientDisconnect, Request

from aggregator.server.problems import ProblemError
from aggregator.server.settings import Http

_PIECE = 1 << 20
ENCODINGS = ("gzip", "zstd")


async def read_body(request: Request, http: Http) -> pa.Buffer:
    """The body as its sender meant it, decompressed beside the event loop if need be.

    Raises ProblemError: 413 over the limit, 408 where nothing comes for too long, 415 for another encoding, 400 for
    bytes that are not in it; ClientDisconnect.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", *ENCODINGS):
        raise ProblemError(415, "unsupported-encoding", f"Content-Encoding {encoding[:40]!r} is not spoken here",
                           "send gzip, zstd or no compression", accept_encoding=", ".join(ENCODINGS))  # fmt: skip
    stored = await _received(request, http)
    if encoding == "identity" or not stored:
        return pa.py_buffer(stored)
    return await asyncio.to_thread(decompress, stored, encoding, http.max_append_bytes)


async def _received(request: Request, http: Http) -> bytes:
    claimed = request.headers.get("content-length", "")
    if claimed.isdecimal() and int(claimed) > http.max_append_bytes:
        raise too_large(http.max_append_bytes)
    pieces: list[bytes] = []
    size = 0
    stream = request.stream().__aiter__()
    while True:
        try:
            piece = await asyncio.wait_for(anext(stream, None), http.stall_s)
        except TimeoutError:
            raise ProblemError(408, "stalled", f"nothing of the body came for {http.stall_s:g} s",
                               "send it again; nothing was stored", connection="close") from None  # fmt: skip
        if piece is None:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        size += len(piece)
        if size > http.max_append_bytes:
            raise too_large(http.max_append_bytes)
        if piece:
            pieces.append(piece)


def decompress(stored: bytes, encoding: str, max_bytes: int) -> pa.Buffer:
    """The bytes behind a content encoding, up to the limit. Raises ProblemError: 400, 413."""
    pieces: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), encoding) as stream:
            while piece := stream.read(min(_PIECE, max_bytes + 1)):
                size += len(piece)
                if size > max_bytes:
                    raise too_large(max_bytes)
                pieces.append(piece)
    except (OSError, pa.ArrowException) as error:
        raise ProblemError(400, "invalid-body", f"the body is not {encoding}: {' '.join(str(error).split())[:100]}",
                           "nothing was stored") from None  # fmt: skip
    return pa.py_buffer(b"".join(pieces))


def too_large(limit: int) -> ProblemError:
    """The refusal of a body over the limit."""
    return ProblemError(413, "body-too-large", f"the body has more than {limit:,} bytes", "send it in smaller ones",
                        x_max_request_size=str(limit), connection="close")  # fmt: skip


__all__ = ["ENCODINGS", "ClientDisconnect", "decompress", "read_body", "too_large"]
