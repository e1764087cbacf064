"""`GET /metrics`: metrics for Prometheus."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation
from aggregator.server.metrics.exposition import CONTENT_TYPE, Metrics


def routes(context: Context) -> list[Route]:
    """Return the route `/metrics`."""
    return [Route("/metrics", bound(figures, context, Metrics(context)))]


@operation(
    "read",
    "Metrics for Prometheus",
    tag="health",
    responses={"200": {"description": "the text format", "content": {CONTENT_TYPE: {}}}},
)
async def figures(context: Context, metrics: Metrics, request: Request) -> Response:
    return Response(await context.reads.run(metrics.page), media_type=CONTENT_TYPE)
