"""`make_app`: the ASGI application over a catalog: all route groups, errors as answers, services beside them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator import Catalog
from aggregator.server.bodies.shared.problems import handle
from aggregator.server.config.settings import Settings
from aggregator.server.context import Context
from aggregator.server.http.compression import Compression
from aggregator.server.http.entry import entered
from aggregator.server.http.guard import Guard
from aggregator.server.http.methods import Methods
from aggregator.server.routes import bulk, docs, events, health, loki, otlp, pipes, plateau, query, streams, topics
from aggregator.server.services import otlp_service
from aggregator.server.services.syslog import syslog

GROUPS: tuple[Callable[[Context], list[Route]], ...] = (
    events.routes,
    health.routes,
    docs.routes,
    plateau.routes,
    topics.routes,
    query.routes,
    pipes.routes,
    streams.routes,
    otlp.routes,
    loki.routes,
    bulk.routes,
)
"""Every group of routes. They are looked through in this order: what is asked most comes first."""

SERVICES: tuple[Callable[[Context], AbstractAsyncContextManager[None]], ...] = (syslog, otlp_service.otlp)
"""What runs beside the routes while the application does, such as a listener for syslog."""


def make_app(catalog: Catalog, settings: Settings | None = None) -> Starlette:
    """An ASGI application that serves `catalog`, which stays its owner's to close after the application has stopped."""
    context = Context.of(catalog, settings or Settings())
    routes = [route for group in GROUPS for route in group(context)]

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as services:
            await services.enter_async_context(context.refusals.told_in_time())
            for service in SERVICES:
                await services.enter_async_context(service(context))
            await services.enter_async_context(context.health.looking(catalog))
            context.ready = True
            try:
                yield
            finally:
                context.ready = False
                await context.answers.close()
        await asyncio.to_thread(context.close)

    methods = Methods(routes)

    async def refuse(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 405:  # Starlette's names those of one route
            error.headers = {"Allow": ", ".join(methods.of(request.scope["path"]))}
        return await handle(request, error)

    app = Starlette(
        routes=[entered(route, context) for route in routes],
        lifespan=life,
        middleware=[Middleware(Guard, context=context, methods=methods), Middleware(Compression)],
        exception_handlers={HTTPException: refuse},
    )
    app.state.context, app.state.routes = context, routes
    return app
