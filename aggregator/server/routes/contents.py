"""The contents of a topic: events counted by time, segments, values of indexes. Also the catalog's problems."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.base.histogram import MAX_BUCKETS, MIN_BUCKETS
from aggregator.server.bodies.shared.schemas import json_response, ref
from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation, parameter
from aggregator.server.http.params import Params, wrong
from aggregator.server.routes.events import CHOICE, TOPIC, chosen
from aggregator.server.routes.statements import DEFAULT_BUCKETS, HISTOGRAM, histogram_answer

_BUCKETS = parameter(
    "buckets",
    "Largest number of spans",
    kind="integer",
    minimum=MIN_BUCKETS,
    maximum=MAX_BUCKETS,
    default=DEFAULT_BUCKETS,
)
_OF_INDEX = (
    parameter("index", "Count only events with this `value` of this index"),
    parameter("value", "The value, with `index`"),
    parameter("type", "Type of the value; default: the type of the index", enum=["text", "integer", "boolean"]),
)
_DEFAULT_VALUES, _MOST_VALUES = 100, 10_000
_LIMIT = parameter(
    "limit", "Largest number of values", kind="integer", minimum=1, maximum=_MOST_VALUES, default=_DEFAULT_VALUES
)
_COLUMN = parameter("column", "Name of an index", where="path", example="type", format="index")
_SEGMENT = {
    "segment": 7, "partition": "0", "level": 1, "rows": 500_000, "bytes": 13_000_000, "first_index": 0,
    "last_index": 499_999, "created_us": 1_772_352_100_000_000, "min_timestamp": 1_772_352_000_000_000,
    "max_timestamp": 1_772_352_060_000_000, "state": "sealed",
}  # fmt: skip


def routes(context: Context) -> list[Route]:
    """Return the routes `histogram`, `segments` and `values` of a topic, and `/v1/problems`."""
    path = "/v1/topics/{topic}"
    return [
        Route(f"{path}/histogram", bound(topic_histogram, context), methods=["GET"]),
        Route(f"{path}/segments", bound(segments, context), methods=["GET"]),
        Route(f"{path}/values/{{column}}", bound(values, context), methods=["GET"]),
        Route("/v1/problems", bound(problems, context), methods=["GET"]),
    ]


@operation(
    "read",
    "Count the events of a topic by time",
    tag="events",
    parameters=(TOPIC, *CHOICE, *_OF_INDEX, _BUCKETS),
    description="In at most `buckets` equal spans from `start` to `end`, or over all events. Exact; segments are not "
    "read if the manifest suffices.",
    responses={
        **HISTOGRAM,
        "404": {"description": "no such topic, partition or index"},
        "409": {"description": "a base64 key, but the topic has text keys"},
    },
)
async def topic_histogram(context: Context, request: Request) -> Response:
    known = (*CHOICE, *_OF_INDEX, _BUCKETS)
    params = Params(request, [each["name"] for each in known])
    buckets = params.number("buckets", low=MIN_BUCKETS, high=MAX_BUCKETS) or DEFAULT_BUCKETS
    index = params.text("index")
    if (index is None) != (params.text("value") is None):
        raise wrong("index and value must be sent together", "such as ?index=type&value=purchase")
    make = chosen(context, request, params, index, {})
    return histogram_answer(await context.reads.run(lambda: make().histogram(buckets)))


@operation(
    "read", "The segments of a topic, in order of time", tag="topics", parameters=(TOPIC,),
    description="`state`: `merging` while the segment is merged into another; `erasing` if it may contain erased "
    "events that are not off the disk yet.",
    responses={"200": json_response("facts about each segment; times are µs since 1970, both ends inclusive",
                                    ref("Segments"), {"segments": [_SEGMENT]}),
               "404": {"description": "no such topic"}},
)  # fmt: skip
async def segments(context: Context, request: Request) -> Response:
    Params(request, [])
    name = request.path_params["topic"]
    return JSONResponse({"segments": await context.reads.run(lambda: context.catalog.topic(name).segments())})


@operation(
    "read", "The values of an index, the most frequent first", tag="events", parameters=(TOPIC, _COLUMN, _LIMIT),
    description="`different`: the number of all values. Read from the indexes, unless events are being erased.",
    responses={"200": json_response("each with its number of events", ref("Values"),
                                    {"values": [{"value": "page", "events": 7}], "different": 1}),
               "404": {"description": "no such topic, or index"}},
)  # fmt: skip
async def values(context: Context, request: Request) -> Response:
    limit = Params(request, ["limit"]).number("limit", low=1, high=_MOST_VALUES) or _DEFAULT_VALUES
    name, column = request.path_params["topic"], request.path_params["column"]

    def look() -> dict[str, Any]:
        found = context.catalog.topic(name).index_values(column)
        most = sorted(found.items(), key=lambda pair: -pair[1])[:limit]
        shown = [{"value": value if isinstance(value, bool | int) else str(value), "events": n} for value, n in most]
        return {"values": shown, "different": len(found)}

    return JSONResponse(await context.reads.run(look))


@operation(
    "read",
    "Problems of the catalog, in words",
    tag="health",
    description="`trouble`: why appends or background work fail at the moment. `problems`: what checks and reads "
    "found and what was done about it; they stay until dismissed.",
    responses={"200": json_response("empty if all is well", ref("Problems"), {"trouble": None, "problems": []})},
)
async def problems(context: Context, request: Request) -> Response:
    Params(request, [])

    def look() -> dict[str, Any]:
        found = [asdict(problem) for problem in context.catalog.problems()]
        return {"trouble": context.catalog.trouble, "problems": found}

    return JSONResponse(await context.reads.run(look))
