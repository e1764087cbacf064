"""The caller's permissions, for programs that adapt their interface to them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.server.bodies.shared.schemas import json_response, ref
from aggregator.server.context import Context
from aggregator.server.control.access import Access
from aggregator.server.control.operation import bound, operation
from aggregator.server.control.tokens import SCOPES
from aggregator.server.http.params import Params


def routes(context: Context) -> list[Route]:
    """Return the route `/v1/access`."""
    return [Route("/v1/access", bound(access, context), methods=["GET"])]


@operation(
    "read", "What the caller may do", tag="topics", checks_topics=True,
    description="`topics`: names of topics, or patterns such as `logs-*`; null: all. `read_only`: the catalog accepts "
    "no changes, whatever the scopes are. `fixed`: the server shows files that do not change.",
    responses={"200": json_response("the rights of its token; all rights if no token is required", ref("Access"),
                                    {"scopes": ["read"], "topics": None, "read_only": False, "fixed": False})},
)  # fmt: skip
async def access(context: Context, request: Request) -> Response:
    Params(request, [])
    found: Access = request.state.access
    scopes = [scope for scope in SCOPES if found.allows(scope)]
    topics = None if found.topics is None else list(found.topics)
    state = {"read_only": context.catalog.read_only, "fixed": context.originals is not None}
    return JSONResponse({"scopes": scopes, "topics": topics, **state})
