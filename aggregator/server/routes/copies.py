"""The catalog's files, for followers: the log from a position, blocks of the manifest, segments."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.engine.seal.quarantine_file import batch_path
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.schemas import BINARY
from aggregator.server.context import Context
from aggregator.server.control.arrival_waiter import ArrivalWaiter
from aggregator.server.control.operation import bound, operation, parameter
from aggregator.server.http.body import read_plain
from aggregator.server.http.params import Params, wrong
from aggregator.server.http.responses import response_of
from aggregator.storage.files.checksum import checksum64
from aggregator.storage.files.layout import Layout
from aggregator.storage.log.copying import LogRange, check_shared, log_range
from aggregator.storage.manifest.copying import block_sums, differing, take_copy

MEDIA = "application/octet-stream"
_TAG = "copies"
_CHUNK_BYTES = 1 << 20
_MOST, _LARGEST = 16 << 20, (1 << 30) + (1 << 20)  # a frame has up to 1 GiB
_LONGEST_WAIT_S = 30.0
_LOOK_S = 0.2  # interval of checks for growth of a log that another process writes
_CHECK = re.compile(r"[0-9a-f]{16}")
_BYTES = {"content": {MEDIA: BINARY}}
_NUMBER = parameter("number", "Number of the file", where="path", kind="integer", example=1, minimum=0)
_WHOLE = {"type": "integer", "minimum": 0}
_LOG_HEADERS: dict[str, Any] = {
    f"Aggregator-{name}": {"description": text, "schema": _WHOLE}
    for name, text in (
        ("File", "position at which the file of the log begins"),
        ("Position", "position of the first byte in the response"),
        ("End", "position up to which the log is acknowledged"),
        ("Oldest", "position of the oldest byte"),
        ("Change", "number of the manifest's last change"),
        ("Lost", "1: the requested bytes are gone, and these are the oldest bytes; otherwise 0"),
    )
}
_LOG_HEADERS["Aggregator-Catalog"] = {"description": "identity of the catalog", "schema": {"type": "string"}}
_LOG_HEADERS["Aggregator-Incarnation"] = {
    "description": "identity of the run that wrote the newest bytes",
    "schema": {"type": "string"},
}
_BLOCK_HEADERS = {
    "Aggregator-Blocks": {"description": "number of blocks in the manifest", "schema": _WHOLE},
    "Aggregator-Check": {"description": "xxh3-64 of the checksums of all blocks", "schema": _WHOLE},
}


def routes(context: Context) -> list[Route]:
    """Return the routes `/v1/copy/log`, `/v1/copy/manifest`, `/v1/copy/segments/{number}`,
    `/v1/copy/quarantine/{number}`.
    """
    arrivals = ArrivalWaiter(context.catalog.arrivals)
    return [
        Route("/v1/copy/log", bound(copy_log, context, arrivals), methods=["GET"]),
        Route("/v1/copy/manifest", bound(copy_manifest, context), methods=["POST"]),
        Route("/v1/copy/segments/{number}", bound(copy_segment, context), methods=["GET"]),
        Route("/v1/copy/quarantine/{number}", bound(copy_quarantined, context), methods=["GET"]),
    ]


@operation(
    "admin",
    "Bytes of the log",
    tag=_TAG,
    description="Acknowledged bytes of one file of the log, as described in spec/log.md, from `position` on. `frame` "
    "and `check`: position of the last frame that the caller has, and the checksum of its head, to compare.",
    parameters=(
        parameter("position", "Position of the first byte; default: the oldest", kind="integer", minimum=0),
        parameter("frame", "Position of the last frame that the caller has", kind="integer", minimum=0),
        parameter("check", "Checksum of the head of that frame, in hexadecimal", pattern="^[0-9a-f]{16}$"),
        parameter("most", "Largest number of bytes", kind="integer", minimum=1, maximum=_LARGEST, default=_MOST),
        parameter("wait", "Seconds to wait for a first byte", kind="number", minimum=0, maximum=_LONGEST_WAIT_S),
    ),
    responses={
        "200": {"description": "the bytes, possibly none", "headers": _LOG_HEADERS, **_BYTES},
        "400": {"description": "another frame is at this position: the copy has another history"},
    },
)
async def copy_log(context: Context, arrivals: ArrivalWaiter, request: Request) -> Response:
    params = Params(request, ["position", "frame", "check", "most", "wait"])
    position, most = params.number("position"), params.number("most", low=1, high=_LARGEST) or _MOST
    frame, check = params.number("frame"), params.text("check")
    if check is not None and not _CHECK.fullmatch(check):
        raise wrong(f"check is {check[:40]!r}", "expected 16 hexadecimal digits")
    until = time.monotonic() + params.seconds("wait", high=_LONGEST_WAIT_S)
    directory = Layout(context.catalog.path).log
    if frame is not None and check is not None:
        await context.reads.run(check_shared, directory, frame, int(check, 16))
    while True:
        seen = arrivals.count
        found = await context.reads.run(_log_range, directory, position, most)
        left = until - time.monotonic()
        if found.length or found.lost or left <= 0 or arrivals.ended or not context.ready:
            break
        await arrivals.wait(seen, min(left, _LOOK_S) if context.catalog.read_only else left)
    facts = {
        "File": found.file,
        "Position": found.position,
        "End": found.end,
        "Oldest": found.oldest,
        "Change": found.change,
        "Lost": int(found.lost),
    }
    headers = {f"Aggregator-{name}": str(value) for name, value in facts.items()}
    headers["Aggregator-Catalog"] = await context.reads.run(lambda: context.catalog.identity)
    headers["Aggregator-Incarnation"] = await context.reads.run(lambda: context.catalog._incarnation)
    begin = found.position - found.file
    return await _bytes(context, "log", found.path, begin, found.length, headers)


def _log_range(directory: Path, position: int | None, most: int) -> LogRange:
    try:
        return log_range(directory, position, most)
    except FileNotFoundError:
        raise _gone("log", "its oldest file has just been deleted") from None


@operation(
    "admin",
    "The manifest, or its changes",
    tag=_TAG,
    body={MEDIA: BINARY},
    body_needed=False,
    description="A snapshot of the manifest as blocks of 4096 bytes: those that differ from the caller's, each after "
    "its number in 8 bytes, little-endian. The body has the xxh3-64 of each block of the caller.",
    responses={"200": {"description": "the blocks that differ", "headers": _BLOCK_HEADERS, **_BYTES}},
)
async def copy_manifest(context: Context, request: Request) -> Response:
    Params(request, [])
    known = await read_plain(request, context)
    folder = tempfile.TemporaryDirectory(prefix="aggregator-copy-")
    copy = Path(folder.name) / "manifest"

    def take() -> bytes:
        take_copy(Layout(context.catalog.path).manifest, copy)
        return block_sums(copy)

    def chunks(sums: bytes) -> Iterator[bytes]:
        with folder:
            yield from _joined(differing(copy, sums, known))

    try:
        sums = await context.reads.run(take)
        headers = {"Aggregator-Blocks": str(len(sums) // 8), "Aggregator-Check": str(checksum64(sums))}
        return await response_of(context.reads.pull(lambda: chunks(sums), patient=True), MEDIA, headers)
    except BaseException:
        folder.cleanup()
        raise


@operation(
    "admin",
    "The file of a segment",
    tag=_TAG,
    parameters=(_NUMBER,),
    responses={"200": {"description": "the file", **_BYTES}, "404": {"description": "the file no longer exists"}},
)
async def copy_segment(context: Context, request: Request) -> Response:
    return await _file(context, request, Layout(context.catalog.path).segment(_number(request)))


@operation(
    "admin",
    "The file of a quarantined batch",
    tag=_TAG,
    parameters=(_NUMBER,),
    responses={"200": {"description": "the file", **_BYTES}, "404": {"description": "the file no longer exists"}},
)
async def copy_quarantined(context: Context, request: Request) -> Response:
    return await _file(context, request, batch_path(Layout(context.catalog.path), _number(request)))


async def _file(context: Context, request: Request, path: Path) -> Response:
    Params(request, [])
    return await _bytes(context, "file", path, 0, None)


async def _bytes(
    context: Context, what: str, path: Path, begin: int, length: int | None, headers: Mapping[str, str] | None = None
) -> Response:
    try:
        return await response_of(context.reads.pull(lambda: _chunks(path, begin, length), patient=True), MEDIA, headers)
    except FileNotFoundError:
        raise _gone(what, "it was merged, sealed, or removed by retention") from None


def _number(request: Request) -> int:
    given = request.path_params["number"]
    if not (given.isascii() and given.isdecimal() and len(given) < 19):
        raise _gone("file", f"{given[:40]!r} is not a number of a file")
    return int(given)


def _gone(what: str, why: str) -> ProblemError:
    return ProblemError(404, "gone", f"the {what} no longer exists", f"{why}: read the manifest again")


def _chunks(path: Path, begin: int, length: int | None) -> Iterator[bytes]:
    """Yield bytes of a file; length None: up to its end. Raises FileNotFoundError."""
    with path.open("rb") as file:
        file.seek(begin)
        left = os.fstat(file.fileno()).st_size - begin if length is None else length
        while left and (chunk := file.read(min(left, _CHUNK_BYTES))):
            left -= len(chunk)
            yield chunk


def _joined(records: Iterator[bytes]) -> Iterator[bytes]:
    held, size = [], 0
    for record in records:
        held.append(record)
        size += len(record)
        if size >= _CHUNK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
