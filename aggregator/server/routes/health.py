"""Health checks: whether the process answers, and whether it accepts requests."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.server.bodies.shared.schemas import PLATEAU_ERROR, WHOLE, json_response, shape
from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation

_TAG = "health"
_READY = shape({"status": {"enum": ["ready", "not ready"]}}, {"problems": WHOLE})


def routes(context: Context) -> list[Route]:
    """Return the routes `/healthz`, `/readyz`, and plateau's `/ok`."""
    return [
        Route("/healthz", healthz),
        Route("/readyz", bound(readyz, context)),
        Route("/ok", bound(ok, context)),
    ]


@operation(
    "open",
    "Whether the process responds",
    tag=_TAG,
    responses={"200": json_response("it responds", shape({"status": {"const": "ok"}}))},
)
async def healthz(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


@operation(
    "open",
    "Whether the server accepts requests: it is not stopping, and its catalog works",
    tag=_TAG,
    responses={
        "200": json_response("ready", _READY),
        "503": json_response("starting, stopping, or the catalog does not work", _READY),
    },
)
async def readyz(context: Context, request: Request) -> Response:
    ready = context.ready and not context.health.ill
    body: dict[str, str | int] = {"status": "ready" if ready else "not ready"}
    if context.health.problems:
        body["problems"] = context.health.problems
    return JSONResponse(body, 200 if ready else 503)


@operation(
    "open",
    "plateau's health check",
    tag="plateau",
    errors=PLATEAU_ERROR,
    responses={
        "200": json_response("well", shape({"ok": {"const": "true"}})),
        "500": {"description": "no successful check for ten checkpoint intervals"},
    },
)
async def ok(context: Context, request: Request) -> Response:
    if context.health.ill:
        return JSONResponse({"message": "no heartbeat", "code": 500}, 500)
    return JSONResponse({"ok": "true"})
