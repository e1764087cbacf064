"""Bodies of requests, decompressed within a limit. Their size as sent, and how long they take, `guard` looks after."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from starlette.requests import Request

from aggregator.server.context import Context
from aggregator.server.problems import ProblemError
from aggregator.server.settings import Http

ENCODINGS = ("gzip", "zstd")
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Body:
    """A body as it was sent. max_bytes: what it may have, decompressed."""

    stored: bytes
    encoding: str
    max_bytes: int

    def plain(self) -> pa.Buffer:
        """The body as its sender meant it. It takes the processor long: call it in a thread of a pool.

        Raises ProblemError: 413 over the limit, 400 for bytes that are not in the encoding.
        """
        if self.encoding == "identity" or not self.stored:
            return pa.py_buffer(self.stored)
        return decompress(self.stored, self.encoding, self.max_bytes)


async def read_body(request: Request, http: Http) -> Body:
    """The body, once all of it is there. Raises ProblemError: 415 for an encoding that is not known."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", *ENCODINGS):
        raise ProblemError(415, "unsupported-encoding", f"Content-Encoding {encoding[:40]!r} is not spoken here",
                           "send gzip, zstd or no compression", accept_encoding=", ".join(ENCODINGS))  # fmt: skip
    return Body(await request.body(), encoding, http.max_append_bytes)


async def read_plain(request: Request, context: Context) -> bytes:
    """The plain bytes of a body that is a question or a definition. Raises what `read_body` and `plain` raise."""
    body = await read_body(request, context.settings.http)
    return body.stored if body.encoding == "identity" else (await context.reads.run(body.plain)).to_pybytes()


def decompress(stored: bytes, encoding: str, max_bytes: int) -> pa.Buffer:
    """The bytes behind a content encoding, up to the limit. Raises ProblemError: 400, 413."""
    pieces: list[bytes] = []
    size = 0
    room = bytearray(min(_PIECE, max_bytes + 1))  # pyarrow's `read` never gives back what it made room for if it fails
    try:
        with pa.CompressedInputStream(pa.BufferReader(stored), encoding) as stream:
            while length := stream.readinto(room):
                size += length
                if size > max_bytes:
                    raise ProblemError(
                        413, "body-too-large", f"the body has more than {max_bytes:,} bytes, decompressed",
                        "send it in smaller ones", x_max_request_size=str(max_bytes),
                    )  # fmt: skip
                pieces.append(bytes(memoryview(room)[:length]))
    except (OSError, pa.ArrowException) as error:
        raise ProblemError(400, "invalid-body", f"the body is not {encoding}: {' '.join(str(error).split())[:100]}",
                           "nothing was stored") from None  # fmt: skip
    return pa.py_buffer(b"".join(pieces))
