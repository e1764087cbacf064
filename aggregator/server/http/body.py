"""Request bodies, decompressed within a limit. `guard` limits their size as sent and how long they take."""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterator
from dataclasses import dataclass

import pyarrow as pa
from starlette.requests import Request

from aggregator.server.bodies.shared.media import is_utf8
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.config.settings import Http
from aggregator.server.context import Context
from aggregator.server.control.body_room import BodyRoom

ENCODINGS = ("gzip", "zstd", "deflate")
_PIECE = 1 << 20
_PIECE_OF_STORED = 1 << 14  # small: what follows a gzip member in it is copied once per member
_GZIP_BITS = 16 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Body:
    """A body as it was sent. max_bytes: limit for the decompressed size. room: shared by all bodies being processed."""

    stored: bytes
    encoding: str
    max_bytes: int
    room: BodyRoom

    def plain(self) -> pa.Buffer:
        """Return the decompressed body.

        This takes processor time: call it in a thread of a pool. It waits until there is room for the result; the pool
        releases the room after the call. Raises ProblemError: 413 over the limit, 400 for bytes that are not in the
        encoding.
        """
        if self.encoding == "identity" or not self.stored:
            found = pa.py_buffer(self.stored)
        else:
            found = decompress(self.stored, self.encoding, self.max_bytes)
        self.room.reserve(found.size)
        return found


async def read_body(request: Request, http: Http, *, may_be_empty: bool = False, as_it_is: Container[str] = ()) -> Body:
    """Return the body of an append once it is complete. as_it_is: encodings that the caller decodes itself.

    An empty body is refused: almost always an intermediary lost it, and its sender must not believe that it is stored.
    may_be_empty: accept an empty message if the headers announce a body. Raises ProblemError: 415 for an unknown
    encoding or text that is not UTF-8, 400 if there is no body.
    """
    body = await _read(request, http, as_it_is)
    said = "content-length" in request.headers or "transfer-encoding" in request.headers
    if not body.stored and not (may_be_empty and said):
        raise ProblemError(
            400, "empty-body", "the request body is empty", "nothing was stored; send events in the body"
        )
    return body


async def _read(request: Request, http: Http, as_it_is: Container[str] = ()) -> Body:
    named = _named_encoding(request)
    encoding = "identity" if named in as_it_is else named
    if encoding not in ("identity", *ENCODINGS):
        raise ProblemError(
            415,
            "unsupported-encoding",
            f"Content-Encoding {encoding[:40]!r} is not supported",
            "send gzip, zstd, deflate or none",
            accept_encoding=", ".join(ENCODINGS),
        )
    content_type = request.headers.get("content-type")
    if not is_utf8(content_type):
        raise ProblemError(
            415,
            "unsupported-media-type",
            f"Content-Type {str(content_type)[:80]!r}: text must be UTF-8",
            "convert the body to UTF-8, or remove the charset if it is UTF-8 already",
        )
    return Body(await request.body(), encoding, http.max_append_bytes, request.app.state.context.body_room)


def _named_encoding(request: Request) -> str:
    """Return the encodings that the headers list, without `identity`; "identity" if there is no other."""
    listed = ",".join(request.headers.getlist("content-encoding")).lower().split(",")
    named = [each.strip() for each in listed if each.strip() not in ("", "identity")]
    return ", ".join("gzip" if each == "x-gzip" else each for each in named) or "identity"


async def read_plain(request: Request, context: Context) -> bytes:
    """Return the decompressed body of a query or definition; it may be empty. Raises ProblemError: 415, 413, 400."""
    body = await _read(request, context.settings.http)
    return body.stored if body.encoding == "identity" else (await context.reads.run(body.plain)).to_pybytes()


def decompress(stored: bytes, encoding: str, max_bytes: int) -> pa.Buffer:
    """Decompress bytes, up to the limit. Raises ProblemError: 400, 413."""
    try:
        if encoding != "deflate":
            try:
                return _joined(_decompressed(stored, encoding, max_bytes), max_bytes)
            except OSError:
                if encoding != "gzip":
                    raise
        return _joined(_inflated(stored, encoding), max_bytes)  # for gzip, slower than Arrow, but it skips padding
    except (OSError, pa.ArrowException, zlib.error) as error:
        raise ProblemError(
            400,
            "invalid-body",
            f"the body is not {encoding}: {' '.join(str(error).split())[:100]}",
            "nothing was stored",
        ) from None


def _joined(pieces: Iterator[bytes], max_bytes: int) -> pa.Buffer:
    """Return all pieces as one buffer. Raises ProblemError (413) over the limit."""
    kept: list[bytes] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > max_bytes:
            raise ProblemError(
                413,
                "body-too-large",
                f"the body has more than {max_bytes:,} bytes when decompressed",
                "split it into smaller ones",
                x_max_request_size=str(max_bytes),
            )
        kept.append(piece)
    return pa.py_buffer(b"".join(kept))


def _decompressed(stored: bytes, encoding: str, max_bytes: int) -> Iterator[bytes]:
    room = bytearray(min(_PIECE, max_bytes + 1))  # if pyarrow's `read` fails, it leaks its buffer
    with pa.CompressedInputStream(pa.BufferReader(stored), encoding) as stream:
        while length := stream.readinto(room):
            yield bytes(memoryview(room)[:length])


def _inflated(stored: bytes, encoding: str) -> Iterator[bytes]:
    """Decompress gzip or deflate. Raises zlib.error.

    gzip: one or more members; zeros after a member are padding, as for gzip(1). deflate: zlib's format (RFC 9110), or
    the raw deflate that some senders use instead.
    """
    is_zlib = len(stored) >= 2 and stored[0] & 15 == 8 and (stored[0] << 8 | stored[1]) % 31 == 0
    bits = _GZIP_BITS if encoding == "gzip" else zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS
    inflate = zlib.decompressobj(bits)
    for at in range(0, len(stored), _PIECE_OF_STORED):
        rest = stored[at : at + _PIECE_OF_STORED]
        while rest:
            if inflate.eof and encoding == "deflate":
                raise zlib.error("data follows its end")
            if inflate.eof:
                rest = rest.lstrip(b"\0")
                inflate = zlib.decompressobj(bits) if rest else inflate
                continue
            piece = inflate.decompress(rest, _PIECE)
            while piece:
                yield piece
                rest = inflate.unconsumed_tail
                piece = b"" if inflate.eof else inflate.decompress(rest, _PIECE)
            rest = inflate.unused_data
    if not inflate.eof:
        raise zlib.error("it is cut short")
