"""plateau's routes, for its existing clients: topics, appends and pages of records."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator import Receipt, Topic
from aggregator.server.bodies.shared.media import listed
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.schemas import BINARY, PLATEAU_ERROR, by_name, json_response, ref
from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation, parameter
from aggregator.server.http.body import read_body
from aggregator.server.plateau import parameters as query
from aggregator.server.plateau.appending import append
from aggregator.server.plateau.definition import Definition
from aggregator.server.plateau.definitions import Definitions
from aggregator.server.plateau.json_text import json_records
from aggregator.server.plateau.page_format import ARROW_FILE, JSON, RECORDS, arrow_file, media_type
from aggregator.server.plateau.paging import EMPTY, Page, Pager

STATUS_HEADER = "x-iteration-status"
_TAG = "plateau"
_TOPIC = parameter("topic", "Name of a topic", where="path", example="clicks", minLength=1, maxLength=1024)
_PARTITION = parameter("partition", "Name of a partition", where="path", example="web-1", minLength=1, maxLength=1024)
_PAGE = (
    parameter("page_size", "Largest number of records", kind="integer", default=1000, minimum=0, maximum=2**63 - 1),
    parameter("time.start", "No records before, RFC 3339", format="date-time", example="2026-03-01T08:00:00Z"),
    parameter("time.end", "No records after, RFC 3339", format="date-time", example="2026-03-01T09:00:00Z"),
    parameter("dataset[0]", "Columns to return, numbered from 0; * is all", example="*", format="column"),
    parameter("dataset.exclude[0]", "Columns to leave out", format="column"),
    parameter("dataset.separator", "Flatten structs, joining names with this text", example="."),
    parameter(
        "dataset.max_bytes", "Return nulls for columns that are larger", kind="integer", minimum=0, maximum=2**63 - 1
    ),
)
_POSITIONS = {
    **by_name({"type": "integer", "minimum": 0, "maximum": 2**63 - 1}),
    "propertyNames": {"minLength": 1, "maxLength": 1024},
}
_PAGES = {
    "200": {
        "description": "A page",
        "headers": {STATUS_HEADER: {"description": "why the page ends, and where the next one begins: "
                                                   "JSON", "required": False,
                                    "schema": {"type": "string"}}},
        "content": {
            ARROW_FILE: BINARY,
            RECORDS: {"schema": {"type": "array", "items": {"type": "object"}},
                   "example": [{"time": 1_700_000_000_000, "url": "/"}]},
        },
    },
    "400": {"description": "Invalid parameter"},
}  # fmt: skip


def routes(context: Context) -> list[Route]:
    """Return the routes `/topics` and `/topic/…`; `/ok` is with the other health checks."""
    definitions = Definitions(context.catalog)
    pager = Pager(definitions)
    return [
        Route("/topics", bound(topics, context)),
        Route("/topic/{topic}", bound(topic, context)),
        Route("/topic/{topic}/records", bound(topic_records, context, pager), methods=["POST"]),
        Route("/topic/{topic}/partition/{partition}", bound(append_records, context, definitions), methods=["POST"]),
        Route("/topic/{topic}/partition/{partition}/records", bound(partition_records, context, pager)),
    ]


@operation(
    "read",
    "Names of the topics",
    tag=_TAG,
    checks_topics=True,
    errors=PLATEAU_ERROR,
    responses={"200": json_response("The topics", ref("Names"))},
)
async def topics(context: Context, request: Request) -> Response:
    names = await context.reads.run(context.catalog.topics)
    return JSONResponse({"topics": [{"name": name} for name in names if context.may_see(request, name)]})


@operation(
    "read",
    "Partitions of a topic, their record indexes, and bytes",
    tag=_TAG,
    parameters=[_TOPIC],
    errors=PLATEAU_ERROR,
    responses={"200": json_response("The partitions", ref("Partitions"))},
)
async def topic(context: Context, request: Request) -> Response:
    def facts() -> dict[str, Any]:
        if request.path_params["topic"] not in context.catalog.topics():
            return {"partitions": {}, "bytes": 0}  # plateau's programs query a topic before its first append
        stats = context.catalog.topic(request.path_params["topic"]).stats()
        spans = {name: _span(p["first_index"], p["end_index"]) for name, p in stats["partitions"].items()}
        return {"partitions": spans, "bytes": stats["bytes"]}

    return JSONResponse(await context.reads.run(facts))


@operation(
    "write",
    "Append the records of an Arrow file; creates topic and partition",
    tag=_TAG,
    source="plateau",
    description="The first column is `time`: int64 milliseconds, or any timestamp. Durable before responding.",
    parameters=[_TOPIC, _PARTITION],
    body={ARROW_FILE: BINARY},
    errors=PLATEAU_ERROR,
    responses={
        "200": json_response("Half-open record indexes", ref("Span"), {"span": {"start": 0, "end": 100}}),
        "400": {"description": "This Arrow file cannot be stored"},
        "413": {"description": "Body larger than the header x-max-request-size"},
        "429": {"description": "The writer is busy; nothing was stored"},
    },
)
async def append_records(context: Context, definitions: Definitions, request: Request) -> Response:
    given = request.headers.get("content-type", "application/octet-stream")
    if given.partition(";")[0].strip().lower() != ARROW_FILE:
        raise ProblemError(400, "invalid-request", f"cannot parse Content-Type '{given[:100]}'", f"send {ARROW_FILE}")
    body = await read_body(request, context.settings.http, may_be_empty=True)
    place = request.path_params["topic"], request.path_params["partition"]

    def store() -> tuple[Receipt, Definition]:
        return append(
            context.catalog,
            definitions,
            place,
            body.plain(),
            max_bytes=context.settings.http.max_append_bytes * 4,
            roll=context.settings.roll,
            retention=context.settings.retention,
        )

    receipt, definition = await context.appends.run(store)
    context.saw_schema(place, definition.id)
    return JSONResponse({"span": _span(receipt.first, receipt.last + 1)})


@operation(
    "read",
    "Records of a partition, from a record index on",
    tag=_TAG,
    responses=_PAGES,
    errors=PLATEAU_ERROR,
    parameters=[
        _TOPIC,
        _PARTITION,
        parameter("start", "The first record index", kind="integer", required=True, minimum=0, maximum=2**63 - 1),
        *_PAGE,
    ],
)
async def partition_records(context: Context, pager: Pager, request: Request) -> Response:
    media = _media(request)
    given = query.parameters(request.query_params.multi_items(), query.PARTITION_PARAMETERS)
    start = query.whole(given, "start")
    if start is None:
        raise query.invalid("parameter 'start' is missing: send a record index")
    wanted = query.wanted(given, context.settings.http.max_page, context.settings.http.max_page_bytes)
    partition = request.path_params["partition"]

    def read() -> Response:
        found = _found(context, request)
        if found is None or partition not in found.partitions:
            return _nothing(media)
        page = pager.page(found, {partition: start}, wanted)
        span = None if page.first is None else _span(page.first, page.next[partition])
        return _answer(page, media, page.status, {"span": json.dumps(span, separators=(",", ":"))})

    return await context.reads.run(read)


@operation(
    "read", "Records of all partitions, one after the other", tag=_TAG, responses=_PAGES, errors=PLATEAU_ERROR,
    description="The body is `next` from the header of the page before: the position in each partition; {} for the "
                "first page.",
    body={JSON: {"schema": _POSITIONS,
                 "example": {"web-1": 1000}}}, body_needed=False,
    parameters=[
        _TOPIC, parameter("order", "asc, or desc for the newest first", default="asc", enum=["asc", "desc"]),
        parameter("partition_filter[0]", "Names of partitions, or regex:…", example="regex:^web-",
                  format="partition-filter"), *_PAGE,
    ],
)  # fmt: skip
async def topic_records(context: Context, pager: Pager, request: Request) -> Response:
    media = _media(request)
    given = query.parameters(request.query_params.multi_items(), query.TOPIC_PARAMETERS)
    wanted = query.wanted(given, context.settings.http.max_page, context.settings.http.max_page_bytes)
    begin = query.positions(await request.body())

    def read() -> Response:
        found = _found(context, request)
        if found is None:
            return _nothing(media)
        chosen = query.matching(found.partitions, given.get("partition_filter"))
        if wanted.descending and begin:  # partitions created since then are newer
            chosen = [name for name in chosen if name in begin]
        page = pager.page(found, {name: begin.get(name) for name in chosen}, wanted)
        return _answer(page, media, {"status": page.status, "next": {**begin, **page.next}}, {})

    return await context.reads.run(read)


def _found(context: Context, request: Request) -> Topic | None:
    name = request.path_params["topic"]
    return context.catalog.topic(name) if name in context.catalog.topics() else None


def _span(start: int, end: int) -> dict[str, int]:
    return {"start": start, "end": end}


def _media(request: Request) -> str:
    given = listed(request.headers, "accept")
    media = media_type(given)
    if media is None:
        raise ProblemError(
            400,
            "not-acceptable",
            f"cannot emit requested '{given[:100]}' Accept format",
            f"accept {ARROW_FILE} or {JSON}",
        )
    return media


def _nothing(media: str) -> Response:
    """Return the response for a missing topic or partition: as plateau's, which creates it, an empty page."""
    content = arrow_file(EMPTY, {}) if media == ARROW_FILE else b"[]"
    return Response(content, media_type=ARROW_FILE if media == ARROW_FILE else RECORDS)


def _answer(page: Page, media: str, status: object, metadata: dict[str, str]) -> Response:
    text = json.dumps(status, separators=(",", ":"))  # plateau's programs compare this as text
    if media == ARROW_FILE:
        content = arrow_file(page.records, {"status": text, **metadata}, page.cuts)
    else:
        content = json_records(page.records)
    return Response(content, headers={STATUS_HEADER: text}, media_type=ARROW_FILE if media == ARROW_FILE else RECORDS)
