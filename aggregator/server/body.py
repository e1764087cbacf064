"""Bodies of requests, decompressed within a limit. Their size as sent, and how long they take, `guard` looks after."""

from __future__ import annotations

import asyncio

import pyarrow as pa
from starlette.requests import Request

from aggregator.server.problems import ProblemError
from aggregator.server.settings import Http

ENCODINGS = ("gzip", "zstd")
_PIECE = 1 << 20


async def read_body(request: Request, http: Http) -> pa.Buffer:
    """The body as its sender meant it.

    Raises ProblemError: 413 over the limit, 415 for an encoding that is not known, 400 for bytes that are not in it.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", *ENCODINGS):
        raise ProblemError(415, "unsupported-encoding", f"Content-Encoding {encoding[:40]!r} is not spoken here",
                           "send gzip, zstd or no compression", accept_encoding=", ".join(ENCODINGS))  # fmt: skip
    stored = await request.body()
    if encoding == "identity" or not stored:
        return pa.py_buffer(stored)
    return await asyncio.to_thread(decompress, stored, encoding, http.max_append_bytes)


def decompress(stored: bytes, encoding: str, max_bytes: int) -> pa.Buffer:
    """The bytes behind a content encoding, up to the limit. Raises ProblemError: 400, 413."""
    pieces: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), encoding) as stream:
            while piece := stream.read(min(_PIECE, max_bytes + 1)):
                size += len(piece)
                if size > max_bytes:
                    raise ProblemError(
                        413, "body-too-large", f"the body has more than {max_bytes:,} bytes, decompressed",
                        "send it in smaller ones", x_max_request_size=str(max_bytes),
                    )  # fmt: skip
                pieces.append(piece)
    except (OSError, pa.ArrowException) as error:
        raise ProblemError(400, "invalid-body", f"the body is not {encoding}: {' '.join(str(error).split())[:100]}",
                           "nothing was stored") from None  # fmt: skip
    return pa.py_buffer(b"".join(pieces))
