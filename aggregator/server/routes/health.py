"""Whether the server lives, and whether it takes requests."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.server.context import Context
from aggregator.server.operation import operation


def routes(context: Context) -> list[Route]:
    """`/healthz`, `/readyz`, and plateau's `/ok`."""

    @operation("open", "The process answers", tag="health")
    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    @operation(
        "open",
        "Requests are taken: the catalog is open and its background work goes on",
        tag="health",
        answers={"200": {"description": "ready"}, "503": {"description": "starting, stopping, or in trouble"}},
    )
    async def readyz(request: Request) -> Response:
        trouble = _trouble(context)
        return JSONResponse({"status": trouble or "ready"}, 503 if trouble else 200)

    @operation("open", "plateau's health check", tag="plateau")
    async def ok(request: Request) -> Response:
        trouble = _trouble(context)
        if trouble:
            return JSONResponse({"message": trouble, "code": 500}, 500)
        return JSONResponse({"ok": "true"})

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/ok", ok)]


def _trouble(context: Context) -> str | None:
    return None if context.ready else "stopping"
