"""A sealed segment as a file: the structure of its bytes, and whether they are valid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import esformat
from aggregator import SegmentMissingError, Topic
from aggregator.base.allowance import check
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.schemas import json_response, ref
from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation, parameter
from aggregator.server.http.params import Params
from aggregator.server.routes.events import TOPIC
from aggregator.server.services.column_facts import column_facts
from esformat import Source
from esformat.parts import anatomy

_SEGMENT = parameter("segment", "Number of a segment", where="path", kind="integer", example=1, minimum=0)
_NONE = {"404": {"description": "no such topic or segment; the segment may have been merged"}}
_PART = {"kind": "index", "name": "type", "bytes": 397, "blocks": 2, "facts": {"values": 5, "events": 200_000}}
_COLUMN = {"name": "type", "type": "string", "bytes": 53_961, "sampled": True}

_HELD = {
    "name": "type",
    "type": "string",
    "nulls": 0,
    "least": "click",
    "greatest": "signup",
    "mean_bytes": 5.1,
    "different": 5,
}


def routes(context: Context) -> list[Route]:
    """Return the route `/v1/topics/{topic}/segments/{segment}`, and its `columns` and `verify`."""
    path = "/v1/topics/{topic}/segments/{segment}"
    return [
        Route(path, bound(segment_anatomy, context), methods=["GET"]),
        Route(f"{path}/columns", bound(segment_columns, context), methods=["GET"]),
        Route(f"{path}/verify", bound(verify_segment, context), methods=["POST"]),
    ]


@operation(
    "read", "The parts of a segment, in bytes", tag="topics", parameters=(TOPIC, _SEGMENT),
    description="`parts` add up to the file: data blocks in order, the directory, indexes, filters, dictionaries, "
    "templates. `columns` are their shares of the data, estimated from some blocks if `sampled`.",
    responses={"200": json_response("the parts and the columns", ref("Anatomy"), {
        "segment": 1, "file": "1.esdb", "events": 200_000, "spaces": 8_000, "size_bytes": 2_587_132, "codec": "zstd",
        "parts": [_PART], "columns": [_COLUMN]}), **_NONE},
)  # fmt: skip
async def segment_anatomy(context: Context, request: Request) -> Response:
    Params(request, [])

    def look(topic: Topic, number: int, path: Path | Source) -> dict[str, Any]:
        with esformat.open(path, cache_bytes=0) as segment:
            info = segment.info()
        erased = set(topic.erasures())
        found = asdict(anatomy(path))
        for part in found["parts"]:
            space = part["facts"].pop("first_space", None)
            if isinstance(space, str) and space not in erased:
                part["facts"]["first_space"] = space
        facts = {name: info[name] for name in ("events", "spaces", "codec")}
        return {"segment": number, "file": Path(path.name).name, **facts, **found}

    return await _of_file(context, request, look)


@operation(
    "read", "Verify a segment", tag="topics", parameters=(TOPIC, _SEGMENT),
    description="Checks every rule of the format, as `aggregator verify` does for all segments. Reads the whole "
                "segment.",
    responses={"200": json_response("`ok`, or the problems with their byte offsets", ref("Verification"), {
        "ok": True, "events": 200_000, "blocks": 131, "size_bytes": 2_587_132, "problems": []}), **_NONE},
)  # fmt: skip
async def verify_segment(context: Context, request: Request) -> Response:
    Params(request, [])

    def verify(topic: Topic, number: int, path: Path | Source) -> dict[str, Any]:
        report = esformat.verify(path, progress=lambda done, whole: check())
        facts = {name: getattr(report, name) for name in ("ok", "events", "blocks", "size_bytes")}
        return {**facts, "problems": [asdict(problem) for problem in report.problems]}

    return await _of_file(context, request, verify)


@operation(
    "read",
    "Statistics of the columns of a segment",
    tag="topics",
    parameters=(TOPIC, _SEGMENT),
    description="Nulls, the least and the greatest value as text, the mean length of texts, and, if there is an "
    "index, the number of different values. Reads the whole segment. Refused if the segment has events that are being "
    "erased.",
    responses={
        "200": json_response("each column", ref("ColumnFacts"), {"segment": 1, "columns": [_HELD]}),
        "409": {"description": "the segment may contain events that are being erased"},
        **_NONE,
    },
)
async def segment_columns(context: Context, request: Request) -> Response:
    Params(request, [])

    def look(topic: Topic, number: int, path: Path | Source) -> dict[str, Any]:
        if any(each["state"] == "erasing" for each in topic.segments() if each["segment"] == number):
            raise ProblemError(
                409,
                "segment-erasing",
                "the segment may contain events that are being erased",
                "retry when they are gone",
            )
        with esformat.open(path, cache_bytes=0) as segment:
            return {"segment": number, "columns": column_facts(segment, check)}

    return await _of_file(context, request, look)


async def _of_file(
    context: Context, request: Request, look: Callable[[Topic, int, Path | Source], dict[str, Any]]
) -> Response:
    """Return the result of `look` for the file of the segment in the path. Raises ProblemError (404)."""
    name, given = request.path_params["topic"], request.path_params["segment"]
    missing = ProblemError(
        404,
        "no-such-segment",
        f"topic {name!r} has no segment {given[:40]}",
        "it may have been merged: list its segments again",
    )

    def run() -> dict[str, Any]:
        topic = context.catalog.topic(name)
        number = int(given) if given.isascii() and given.isdigit() and len(given) < 20 else -1
        path = topic.segment_file(number)
        if path is None:
            raise missing
        try:
            return look(topic, number, (context.originals or {}).get(number, path))
        except (FileNotFoundError, SegmentMissingError):
            raise missing from None

    return JSONResponse(await context.reads.run(run))
