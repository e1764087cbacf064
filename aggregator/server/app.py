"""`make_app`: the ASGI application over a catalog: all route groups, errors as answers, services beside them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from aggregator import AggregatorError, Catalog
from aggregator.server.context import Context
from aggregator.server.operation import operation_of
from aggregator.server.problems import ProblemError, handle
from aggregator.server.routes import events, health
from aggregator.server.settings import Settings
from esformat import EsdbError

GROUPS: tuple[Callable[[Context], list[Route]], ...] = (health.routes, events.routes)
"""Every group of routes."""

SERVICES: tuple[Callable[[Context], AbstractAsyncContextManager[None]], ...] = ()
"""What runs beside the routes while the application does, such as a listener for syslog."""


def make_app(catalog: Catalog, settings: Settings | None = None) -> Starlette:
    """An ASGI application that serves `catalog`, which stays its owner's to close after the application has stopped."""
    context = Context.of(catalog, settings or Settings())
    routes = [route for group in GROUPS for route in group(context)]
    for route in routes:
        operation_of(route.endpoint)

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as services:
            for service in SERVICES:
                await services.enter_async_context(service(context))
            context.ready = True
            try:
                yield
            finally:
                context.ready = False
        context.close()

    app = Starlette(
        routes=routes,
        lifespan=life,
        exception_handlers=dict.fromkeys((HTTPException, EsdbError, AggregatorError, ProblemError, Exception), handle),
    )
    app.state.context = context
    return app
