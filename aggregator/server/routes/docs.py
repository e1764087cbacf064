"""The API document, for programs and for people. The page loads nothing from other servers."""

from __future__ import annotations

import json
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from aggregator.server.bodies.shared.schemas import json_response
from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation
from aggregator.server.http.openapi import document

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"


def routes(context: Context) -> list[Route]:
    """Return the routes `/docs` and `/openapi.json`."""
    page = files("aggregator.server").joinpath("docs.html").read_text("utf-8")
    return [Route("/openapi.json", bound(openapi, context)), Route("/docs", bound(docs, page))]


@operation(
    "open",
    "This API as an OpenAPI document",
    tag="documentation",
    responses={"200": json_response("the document", {"type": "object"})},
)
async def openapi(context: Context, request: Request) -> Response:
    found = document(request.app.state.routes, secured=context.authority.requires_token)
    return Response(json.dumps(found), media_type="application/json")


@operation(
    "open",
    "Interactive documentation of this API",
    tag="documentation",
    responses={"200": {"description": "a page", "content": {"text/html": {}}}},
)
async def docs(page: str, request: Request) -> Response:
    return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY, "X-Frame-Options": "DENY"})
