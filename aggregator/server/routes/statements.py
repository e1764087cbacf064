"""LQL for interactive programs: analysis of statements without running them, completions, histograms of records."""

from __future__ import annotations

import contextlib
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.base.histogram import MAX_BUCKETS, MIN_BUCKETS, Histogram
from aggregator.lql import parse_statement, to_text
from aggregator.lql.parse.completion import completions
from aggregator.lql.parse.render import source_to_text
from aggregator.lql.parse.tree import CreatePipe, DeletePipe, Select, ShowPartitions, Statement, Truncate
from aggregator.server.bodies.shared.schemas import json_response, ref, shape
from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation
from aggregator.server.http.params import Params, json_object, wrong
from aggregator.server.services.narrowing import BETWEEN, is_open, read_between, with_condition, without_place
from aggregator.server.services.stacking import Stacked, operand_of, stacked
from aggregator.streams.selection import Selection
from aggregator.streams.statements import NO_STREAM

DEFAULT_BUCKETS = 60
_LQL = {"type": "string", "format": "lql"}
_BUCKETS = {"type": ["integer", "null"], "minimum": MIN_BUCKETS, "maximum": MAX_BUCKETS}
_CONDITION = {"type": ["string", "null"], "format": "lql-condition"}
_NAMES = {"type": "array", "items": {"type": "string"}}
_OPERAND = {"type": ["string", "null"], "format": "lql-operand"}
_EXAMPLE = "SELECT FROM {app=web} WHERE msg CONTAINS ERROR"
HISTOGRAM: dict[str, Any] = {
    "200": json_response(
        "`counts[i]` covers `width_us` from `start_us` + i × `width_us` on, in µs since 1970; empty if there are no "
        "records",
        ref("Histogram"),
        {"start_us": 1_772_352_000_000_000, "width_us": 60_000_000, "events": 7, "counts": [3, 0, 4]},
    ),
    "400": {"description": "an invalid request, or one that exceeds its time or memory limit"},
    "429": {"description": "overloaded, or too many slow queries: retry after Retry-After seconds"},
}


def routes(context: Context) -> list[Route]:
    """Return the routes `/v1/statement`, `/v1/completions` and `/v1/histogram`."""
    return [
        Route("/v1/completions", bound(completed, context), methods=["POST"]),
        Route("/v1/statement", bound(statement, context), methods=["POST"]),
        Route("/v1/histogram", bound(histogram, context), methods=["POST"]),
    ]


@operation(
    "read", "Analyse an LQL statement without running it", tag="query",
    description="`kind`: what it returns or does: `records`, `groups` (COUNT, measures, DISTINCT), another `table`, "
    "or a `change`. `query`: its canonical text. `pages`: it returns records, and fixes neither their order nor start "
    "nor number. `where` adds a condition to a SELECT, `without` the negation of one. For an invalid statement, "
    "`place` in the error is the range of the wrong characters.",
    body={"application/json": {"schema": shape({"query": _LQL}, {"where": _CONDITION, "without": _CONDITION}),
                               "example": {"query": _EXAMPLE, "where": "level = error"}}},
    responses={
        "200": json_response("the analysis", ref("Statement"), {
            "kind": "records", "query": "SELECT FROM {app=web} WHERE msg CONTAINS ERROR AND level = error",
            "pages": True, "warnings": [],
        }),
        "400": {"description": "an invalid statement"},
    },
)  # fmt: skip
async def statement(context: Context, request: Request) -> Response:
    Params(request, [])
    body = await json_object(request, context, ("query", "where", "without"))
    text = _query(body)

    def look() -> dict[str, Any]:
        found = parse_statement(text)
        changed = _with_conditions(found, body)
        warnings = _warnings(context, changed, text if changed is found else None)
        pages = isinstance(changed, Select) and not changed.count and is_open(changed)
        return {"kind": _kind(changed), "query": to_text(changed), "pages": pages, "warnings": warnings}

    return JSONResponse(await context.reads.run(look))


@operation(
    "read", "Complete an LQL statement", tag="query",
    description="Suggestions while one is typed: keywords, tags, columns, and after a tag and `=` its values. Each "
    "replaces the last `replaces` characters. `names`: fields that the caller has seen, because the server keeps no "
    "list of fields.",
    body={"application/json": {"schema": shape({"before": {"type": "string"}}, {"names": _NAMES}),
                               "example": {"before": "SELECT FROM a"}}},
    responses={"200": json_response("at most 200", ref("Completions"),
                                    {"completions": [{"text": "app", "replaces": 1}]}),
               "400": {"description": "an invalid request"}},
)  # fmt: skip
async def completed(context: Context, request: Request) -> Response:
    Params(request, [])
    body = await json_object(request, context, ("before", "names"))
    before, seen = body.get("before"), body.get("names", [])
    if not isinstance(before, str):
        raise wrong("before must be a text", "the part of the statement before the cursor")
    if not isinstance(seen, list) or not all(isinstance(name, str) for name in seen):
        raise wrong("names must be a list of texts")

    def look() -> list[dict[str, Any]]:
        catalog = context.catalog
        names = set(seen) | {name for topic in catalog.topics() for name in catalog.topic(topic).scan().schema.names}
        streams = [*catalog.streams(), *({"topic": topic} for topic in catalog.topics())]
        found = completions(before, streams, names=names - {"space", "grouping", "timestamp", "data"})
        return [{"text": text, "replaces": length} for text, length in found]

    return JSONResponse({"completions": await context.reads.run(look)})


@operation(
    "read",
    "Count the records of a SELECT by time",
    tag="query",
    description="Counts what FROM, RANGE and WHERE select; other clauses are ignored. At most `buckets` equal spans "
    "from `start` to `end`, or over all records. Exact; uses statistics instead of reading where possible. `by`, the "
    "name of a tag, field, column or path, adds `series`: the counts of its most frequent values, at most six; a null "
    "value stands for records without it. All records are read then.",
    body={
        "application/json": {
            "schema": shape({"query": _LQL}, {"buckets": _BUCKETS, "by": _OPERAND, **BETWEEN}),
            "example": {"query": _EXAMPLE, "buckets": 60},
        }
    },
    responses=HISTOGRAM,
)
async def histogram(context: Context, request: Request) -> Response:
    Params(request, [])
    body = await json_object(request, context, ("query", "buckets", "by", *BETWEEN))
    text, (start, end) = _query(body), read_between(body)
    buckets = body.get("buckets")
    buckets = DEFAULT_BUCKETS if buckets is None else buckets
    buckets = int(buckets) if isinstance(buckets, float) and buckets.is_integer() else buckets
    if isinstance(buckets, bool) or not isinstance(buckets, int) or not MIN_BUCKETS <= buckets <= MAX_BUCKETS:
        raise wrong("buckets must be a whole number", f"expected a number from {MIN_BUCKETS} to {MAX_BUCKETS:,}")

    by = body.get("by")
    if by is not None and not isinstance(by, str):
        raise wrong("by must be a name", "such as level")

    def count() -> Histogram | Stacked:
        select = parse_statement(text)
        if isinstance(select, Select):
            with without_place():
                operand = None if by is None else operand_of(by)
            found = context.catalog.query(text, start=start, end=end)
            if isinstance(found, Selection):
                whole = found.histogram(buckets)
                return whole if operand is None else stacked(context.catalog, select, operand, (start, end), whole)
        raise wrong("only the records of a SELECT are counted by time", "leave COUNT and GROUP BY out")

    return histogram_answer(await context.reads.run(count))


def histogram_answer(found: Histogram | Stacked) -> Response:
    """Return a histogram as JSON."""
    whole = found.whole if isinstance(found, Stacked) else found
    result: dict[str, Any] = {
        "start_us": whole.start_us,
        "width_us": whole.width_us,
        "events": whole.total,
        "counts": list(whole.counts),
    }
    if isinstance(found, Stacked):
        result["series"] = [{"value": value, "events": sum(counts), "counts": counts} for value, counts in found.series]
    return JSONResponse(result)


def _warnings(context: Context, found: Statement, text: str | None) -> list[str]:
    """Return warnings about parts of a statement that match nothing. text: as sent; None: modified. Raises LqlError."""
    if isinstance(found, ShowPartitions | Truncate) and found.source is not None:
        return [] if context.catalog.streams(source_to_text(found.source)) else [NO_STREAM]
    if not isinstance(found, Select) or found.count:
        return []
    with without_place() if text is None else contextlib.nullcontext():
        made = context.catalog.query(to_text(found) if text is None else text)
    return made.warnings if isinstance(made, Selection) else []


def _query(body: dict[str, Any]) -> str:
    found = body.get("query")
    if not isinstance(found, str):
        raise wrong("query must be a text", f"such as {_EXAMPLE!r}")
    return found


def _with_conditions(found: Statement, body: dict[str, Any]) -> Statement:
    for name, without in (("where", False), ("without", True)):
        condition = body.get(name)
        if condition is None:
            continue
        if not isinstance(condition, str):
            raise wrong(f"{name} must be a condition", "such as 'level = error'")
        if not isinstance(found, Select):
            raise wrong(f"{name} needs a SELECT", "add it to a SELECT")
        found = with_condition(found, condition, without=without)
    return found


def _kind(found: Statement) -> str:
    if isinstance(found, Select):
        return "groups" if found.count else "records"
    return "change" if isinstance(found, Truncate | CreatePipe | DeletePipe) else "table"
