"""Pipes: standing queries that copy matching records into a stream. Managed by LQL's statements."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator import Catalog, InvalidRequestError
from aggregator.lql import parse_source, parse_where, to_text
from aggregator.lql.parse.tree import CreatePipe, DeletePipe, DescribePipe, ShowPipes, Statement
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.schemas import json_response, many, shape
from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation, parameter
from aggregator.server.http.params import Params, json_object, wrong
from esformat.parts import as_text

_PIPE = {"name": "errors", "from": "{app=web}", "where": 'msg CONTAINS "ERROR"', "backfill": True}
_SHOWN = {"name": "errors", "from": "{app=web}", "where": 'msg CONTAINS "ERROR"', "copied": 12, "lag": 0, "gone": 0,
          "state": "level"}  # fmt: skip
_LIST = shape({"pipes": many({"type": "object"})})
_BODY = shape(
    {"name": {"type": "string", "minLength": 1}},
    {
        "from": {"type": "string", "format": "lql-source"},
        "where": {"type": "string", "format": "lql-condition"},
        "backfill": {"type": "boolean"},
    },
)
_NAME = parameter("name", "Name of a pipe", where="path", example="errors", minLength=1)


def routes(context: Context) -> list[Route]:
    """Return the routes `/v1/pipes` and `/v1/pipes/{name}`."""
    return [
        Route("/v1/pipes", bound(list_pipes, context), methods=["GET"]),
        Route("/v1/pipes", bound(create_pipe, context), methods=["POST"]),
        Route("/v1/pipes/{name}", bound(get_pipe, context), methods=["GET"]),
        Route("/v1/pipes/{name}", bound(delete_pipe, context), methods=["DELETE"]),
    ]


@operation(
    "read",
    "List pipes",
    tag="pipes",
    responses={"200": json_response("the pipes and their progress", _LIST, {"pipes": [_SHOWN]})},
)
async def list_pipes(context: Context, request: Request) -> Response:
    Params(request, [])
    return JSONResponse({"pipes": await context.reads.run(_rows, context.catalog, ShowPipes())})


@operation(
    "admin",
    "Create a pipe",
    tag="pipes",
    body={"application/json": {"schema": _BODY, "example": _PIPE}},
    description="It copies the records of `from` that satisfy `where` into `{logrange.pipe=NAME}`, each once; with "
    "`backfill` also the existing ones. Creating the same pipe again is allowed.",
    responses={
        "201": json_response("the pipe", {"type": "object"}, _SHOWN),
        "400": {"description": "an invalid condition"},
        "409": {"description": "the pipe exists with another definition"},
    },
)
async def create_pipe(context: Context, request: Request) -> Response:
    Params(request, [])
    body = await json_object(request, context, ("name", "from", "where", "backfill"))
    for name in ("name", "from", "where"):
        if not isinstance(body.get(name, "x"), str):
            raise wrong(f"{name} must be a text")
    if not body.get("name") or not isinstance(body.get("backfill", False), bool):
        raise wrong("a pipe needs a name, and backfill must be true or false", f"such as {json.dumps(_PIPE)}")

    def make() -> dict[str, Any]:
        source = parse_source(body["from"]) if body.get("from") else None
        where = parse_where(body["where"]) if body.get("where") else None
        try:
            _rows(context.catalog, CreatePipe(body["name"], source, where, body.get("backfill", False)))
        except InvalidRequestError as error:
            if body["name"] in [pipe["name"] for pipe in _rows(context.catalog, ShowPipes())]:
                raise ProblemError(409, "pipe-exists", error.message, error.hint) from None
            raise
        return _described(context.catalog, body["name"])

    return JSONResponse(await context.appends.run(make), 201)


@operation(
    "read",
    "Describe a pipe",
    tag="pipes",
    parameters=(_NAME,),
    responses={"200": json_response("the pipe", {"type": "object"}, _SHOWN), "404": {"description": "no such pipe"}},
)
async def get_pipe(context: Context, request: Request) -> Response:
    Params(request, [])
    return JSONResponse(await context.reads.run(_described, context.catalog, request.path_params["name"]))


@operation(
    "admin",
    "Delete a pipe; the copied records stay",
    tag="pipes",
    parameters=(_NAME,),
    responses={"200": json_response("ended", {"type": "object"}), "404": {"description": "no such pipe"}},
)
async def delete_pipe(context: Context, request: Request) -> Response:
    Params(request, [])
    name = request.path_params["name"]

    def end() -> dict[str, Any]:
        _described(context.catalog, name)
        return _rows(context.catalog, DeletePipe(name))[0]

    return JSONResponse(await context.appends.run(end))


def _rows(catalog: Catalog, statement: Statement) -> list[dict[str, Any]]:
    """Return the table that a statement returns, as JSON values; times as text."""
    found = catalog.query(to_text(statement))
    assert isinstance(found, pa.Table)
    for place, field in enumerate(found.schema):
        if pa.types.is_timestamp(field.type):
            found = found.set_column(place, field.name, as_text(found.column(place).combine_chunks()))
    made: list[dict[str, Any]] = found.to_pylist()
    return made


def _described(catalog: Catalog, name: str) -> dict[str, Any]:
    if name not in [pipe["name"] for pipe in _rows(catalog, ShowPipes())]:
        raise ProblemError(404, "no-such-pipe", f"no pipe {name!r}", "see GET /v1/pipes")
    return _rows(catalog, DescribePipe(name))[0]
