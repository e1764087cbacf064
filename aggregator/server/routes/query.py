"""LQL over HTTP: whole results, pages by position with long polling, and live tails as server-sent events."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.lql import parse_statement, to_text
from aggregator.lql.parse.tree import CreatePipe, DeletePipe, Select, Truncate
from aggregator.server.bodies.shared.media import ARROW_STREAM, CSV, ESDB, JSON, LINES, OUTPUTS, PARQUET, TEXT
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.schemas import BINARY, shape
from aggregator.server.context import Context
from aggregator.server.control.arrival_waiter import ArrivalWaiter
from aggregator.server.control.operation import bound, operation, parameter
from aggregator.server.http.params import Params, limit_in, statement_in, wrong
from aggregator.server.http.responses import (
    EVENTS,
    Batches,
    StreamedResponse,
    encode,
    encode_text,
    media_for,
    response_of,
    stream_response,
)
from aggregator.server.services.narrowing import BETWEEN, Between, newest_first, read_between, without_place
from aggregator.server.services.paging import Page, limited, parse_select, read_page, select_at
from aggregator.server.services.segment_file import stream_segment
from aggregator.streams.selection import Selection

POSITION = "Aggregator-Position"
_GONE = "Aggregator-Gone"
_DEFAULT_PAGE, _LARGEST_PAGE = 1_000, 100_000
_LONGEST_WAIT_S = 60.0
_BEAT_S = 15.0  # interval of keep-alive messages on a tail without records
_TAIL_ROWS = 1_000
_EXAMPLE = {"query": 'SELECT FROM {app=web} WHERE msg CONTAINS "ERROR" LIMIT 10'}
_RECORD = '{"space": "{app=web}", "timestamp": "2026-03-01T08:00:00.000000Z", "data": "ERROR: no disk"}\n'
_LQL = {"type": "string", "format": "lql"}
_AT = {"type": ["string", "null"], "format": "position"}
_BODY = {
    **shape(
        {"query": _LQL},
        {
            "position": _AT,
            "wait": {"type": ["number", "null"], "minimum": 0, "maximum": _LONGEST_WAIT_S},
            "limit": {"type": ["integer", "null"], "minimum": 1, "maximum": _LARGEST_PAGE},
            "reverse": {"type": ["boolean", "null"]},
            **BETWEEN,
        },
    ),
    "dependentRequired": {"wait": ["position"]},
}
_ANSWERS: dict[str, Any] = {
    "200": {
        "description": "the records, streamed; with a position, one page",
        "headers": {
            POSITION: {"description": "where the next page begins", "schema": {"type": "string"}},
            _GONE: {"description": "records after the position that were removed",
                    "schema": {"type": "integer"}},
        },
        "content": {LINES: {"example": _RECORD}, CSV: {}, ARROW_STREAM: BINARY, PARQUET: BINARY, ESDB: BINARY,
                    TEXT: {"example": "ERROR: no disk\n"}},
    },
    "400": {"description": "an invalid statement or position, the hint shows the place; or the statement exceeds its "
            "time or memory limit"},
    "429": {"description": "overloaded, or too many slow queries: retry after Retry-After seconds"},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _QueryRequest:
    text: str
    position: str | None = None
    wait_s: float = 0.0
    limit: int | None = None
    reverse: bool = False
    between: Between = (None, None)

    @property
    def changed(self) -> bool:
        """Whether the statement is modified before it runs."""
        return self.limit is not None or self.reverse


def routes(context: Context) -> list[Route]:
    """Return the routes `POST /v1/query` and `GET /v1/tail`."""
    arrivals = ArrivalWaiter(context.catalog.arrivals)
    return [
        Route("/v1/query", bound(query, context, arrivals), methods=["POST"]),
        Route("/v1/tail", bound(tail, context, arrivals), methods=["GET"]),
    ]


@operation(
    "read",
    "Run an LQL statement",
    tag="query",
    responses=_ANSWERS,
    description="Without `position` the whole result is streamed. With `head`, `tail` or a position from the header "
    "`Aggregator-Position`, the response is a page of at most `limit` records; it waits up to `wait` seconds for the "
    "first one. `Accept: text/plain` returns records in the format of the statement, or else only their messages. "
    "`start`, `end` and `reverse` restrict a SELECT to a time range and return its newest records first. Statements "
    "that change something need the scope `admin`.",
    body={
        JSON: {"schema": _BODY, "example": {**_EXAMPLE, "position": "tail", "wait": 0.1, "limit": 1000}},
        TEXT: {"schema": _LQL, "example": _EXAMPLE["query"]},
    },
)
async def query(context: Context, arrivals: ArrivalWaiter, request: Request) -> Response:
    Params(request, [])
    body = await _query_request(request, context)
    if body.position is not None:
        return await _page(context, arrivals, request, body, media_for(request))
    media = media_for(request, (*OUTPUTS, TEXT, ESDB))
    if body.wait_s:
        raise wrong("wait needs a position", "send position: tail, or one from an earlier response")
    start, end = body.between
    statement = await context.reads.run(parse_statement, body.text)
    changes = isinstance(statement, Truncate | CreatePipe | DeletePipe)
    if changes:
        request.state.access.require_all_topics("admin")
    if isinstance(statement, Select):
        statement = limited(statement, body.limit) if body.limit is not None else statement
        statement = newest_first(statement) if body.reverse else statement

    def make() -> Batches | pa.Table:
        if not body.changed:
            return context.catalog.query(body.text, start=start, end=end)
        with without_place():
            return context.catalog.query(to_text(statement), start=start, end=end)

    pool = context.appends if changes else context.reads
    if media == TEXT:
        return await response_of(pool.pull(lambda: _text(make())), TEXT)
    if media == ESDB:
        return await stream_segment(pool, make)
    return await stream_response(pool, make, media)


async def _page(
    context: Context, arrivals: ArrivalWaiter, request: Request, body: _QueryRequest, media: str
) -> Response:
    assert body.position is not None, "else the result is not a page"
    position = body.position
    select = limited(await context.reads.run(parse_select, body.text), body.limit or _DEFAULT_PAGE)
    until = time.monotonic() + body.wait_s
    while True:
        seen = arrivals.count
        page, content = await context.reads.run(
            lambda at: _encoded(read_page(context.catalog, select, at), media), position
        )
        left = until - time.monotonic()
        if page.table.num_rows or left <= 0 or arrivals.ended or not context.ready:
            break
        position = page.position
        await arrivals.wait(seen, min(left, 1.0))
        if await request.is_disconnected():
            break
        request.state.token_check.check()
        await context.reads.wait_for_room()
    headers = {POSITION: page.position} | ({_GONE: str(page.gone)} if page.gone else {})
    return Response(content, 200, headers, media)


@operation(
    "read",
    "Follow a SELECT: stream its records as they arrive",
    tag="query",
    description="Server-sent events, each with a record as JSON and, as `id`, the position after it. A client that "
    "reconnects with `Last-Event-ID` continues there, without gaps or repeated records.",
    parameters=(
        parameter("query", "A SELECT", required=True, example=_EXAMPLE["query"], format="lql-select"),
        parameter("position", "Where to start: head, tail, or a position", default="tail", format="position"),
        parameter("Last-Event-ID", "Takes precedence over `position`", where="header", format="position"),
    ),
    responses={
        "200": {
            "description": "a stream without an end",
            "content": {"text/event-stream": {"example": f"id: p1XNm…\ndata: {_RECORD}\n"}},
        }
    },
)
async def tail(context: Context, arrivals: ArrivalWaiter, request: Request) -> Response:
    params = Params(request, ["query", "position"])
    text = params.text("query")
    if text is None:
        raise wrong("the parameter query is missing", "such as ?query=SELECT%20FROM%20%7Bapp%3Dweb%7D")
    position = request.headers.get("last-event-id") or str(params.text("position", "tail"))
    select = await context.reads.run(parse_select, text)
    standing = await context.reads.run(lambda: select_at(context.catalog, select, position).position)
    first = b": listening\n\n"
    if position.lower() == "tail" and not select.offset:  # fix the position before the client is told
        position = standing
        first = b": listening\nid: %b\n\n" % position.encode()
    return StreamedResponse(first, _events(context, arrivals, select, position), EVENTS, {"Cache-Control": "no-store"})


async def _events(context: Context, arrivals: ArrivalWaiter, select: Select, position: str) -> AsyncIterator[bytes]:
    beat = time.monotonic()
    left = select.limit if select.limit is not None and select.limit >= 0 else None
    while left != 0 and not arrivals.ended and context.ready:
        seen = arrivals.count
        await context.reads.wait_for_room()
        answer = await context.reads.run(
            select_at, context.catalog, limited(select, _TAIL_ROWS if left is None else min(left, _TAIL_ROWS)), position
        )
        given = 0
        async with contextlib.aclosing(_pulled(context, answer)) as pieces:
            async for rows, piece in pieces:
                given += rows
                yield piece
        await context.reads.wait_for_room()
        position = await context.reads.run(getattr, answer, "position")
        left = left if left is None else left - given
        if given:
            beat = time.monotonic()
            continue
        await arrivals.wait(seen, 1.0)
        late = time.monotonic() - beat > _BEAT_S
        beat = time.monotonic() if late else beat
        yield b": alive\n\n" if late else b""  # empty: lets a disconnect be noticed


def _pulled(context: Context, answer: Selection) -> AsyncGenerator[tuple[int, bytes]]:
    return cast("AsyncGenerator[tuple[int, bytes]]", context.reads.pull(lambda: _records(answer), patient=True))


def _text(found: Batches | pa.Table) -> Iterator[bytes]:
    """Return records formatted by the statement's format string. Raises ProblemError for tables."""
    if not isinstance(found, Selection):
        raise ProblemError(406, "not-acceptable", "only the records of a SELECT are available as text")
    return encode_text(found.lines())


def _encoded(page: Page, media: str) -> tuple[Page, bytes]:
    return page, b"".join(encode(iter(page.table.to_batches()), page.table.schema, media))


def _records(answer: Selection) -> Iterator[tuple[int, bytes]]:
    """Yield a selection's records as server-sent events, a batch at a time, with their number."""
    for batch in answer.batches():
        lines = b"".join(encode(iter([batch]), batch.schema, LINES)).splitlines()
        pairs = zip(answer.positions(), lines, strict=True)
        yield len(lines), b"".join(b"id: %b\ndata: %b\n\n" % (position.encode(), line) for position, line in pairs)


async def _query_request(request: Request, context: Context) -> _QueryRequest:
    """Return the request in the body. Raises ProblemError: 400, 415."""
    found = await statement_in(request, context, _BODY["properties"], _EXAMPLE)
    position, wait = found.get("position"), found.get("wait")
    wait = 0 if wait is None else wait
    if position is not None and not isinstance(position, str):
        raise wrong("position must be a text", "expected head, tail, or one from an earlier response")
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= _LONGEST_WAIT_S:
        raise wrong("wait must be a number of seconds", f"expected a number from 0 to {_LONGEST_WAIT_S:g}")
    limit = limit_in(found, _LARGEST_PAGE) if position is not None else limit_in(found)
    reverse, between = found.get("reverse"), read_between(found)
    if reverse is not None and not isinstance(reverse, bool):
        raise wrong("reverse must be true or false")
    if position is not None and (reverse or between != (None, None)):
        raise wrong("start, end and reverse cannot be combined with position", "pages go from old to new")
    return _QueryRequest(found["query"], position, float(wait), limit, bool(reverse), between)
