"""`make_app`: the ASGI application over a catalog, with all route groups, error responses and background services."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable
from importlib import import_module

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator import Catalog, lql
from aggregator.server.bodies.shared.problems import handle
from aggregator.server.config.settings import Settings
from aggregator.server.context import Context
from aggregator.server.http.compression import Compression
from aggregator.server.http.groups import Group, Routes
from aggregator.server.http.guard import Guard
from aggregator.server.http.methods import Methods
from aggregator.server.plateau.policies import take_policies

GROUPS = (
    "health", "plateau", "events", "topics", "query", "sql", "contents", "segments", "statements", "pipes", "streams",
    "otlp", "loki", "figures", "docs", "page", "access", "bulk", "copies",
)  # fmt: skip
"""Route modules, in the order in which they are searched. A module is imported by the first request that reaches it."""

SERVICES: tuple[tuple[str, Callable[[Settings], str | None]], ...] = (
    ("syslog", lambda settings: settings.syslog or settings.syslog_tls),
    ("otlp_service", lambda settings: settings.otlp.grpc),
)
"""Modules that run beside the routes, such as the syslog listener, each with the setting that enables it."""
_LATE = (
    ("pyarrow.compute", "field"),
    ("aggregator.streams.statements", "run"),
    ("aggregator.streams.writing", "StreamWrites"),
    ("esformat.parts", "scan_rows"),
    ("esformat.parts", "rows_of_batch"),
    ("esformat.convert", "open_sink"),
)
"""Names that trigger lazy imports. `_warm` looks them up so that no request has to wait for the import."""
WARM_S = 0.1
"""Seconds after the start at which the server does the work that it deferred: importing modules and opening segments.
Earlier requests do the part that they need themselves."""
PAUSE_S = 0.01
"""Pause, in seconds, before checking again if requests that are running delay the opening of a segment."""

_log = logging.getLogger("aggregator.server")


def make_app(catalog: Catalog, settings: Settings | None = None) -> Starlette:
    """Return an ASGI application that serves `catalog`. The caller closes the catalog after the application has
    stopped.
    """
    context = Context.of(catalog, settings or Settings())
    if context.settings.as_plateau:
        take_policies(catalog, context.settings.roll, context.settings.retention)
    groups = [Group(functools.partial(_routes, name), context) for name in GROUPS]
    routes = Routes(groups)

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as services:
            await services.enter_async_context(context.refusals.flush_periodically())
            for name, asked in SERVICES:
                if asked(context.settings) is not None:
                    listening = import_module(f"aggregator.server.services.{name}").listening(context)
                    if catalog.read_only:  # it would lose messages; opening it briefly shows whether it can listen
                        async with listening:
                            _log.info("%s accepts nothing until this server writes", name)
                    else:
                        await services.enter_async_context(listening)
            await services.enter_async_context(context.health.checking(catalog))
            context.ready = True
            warming = asyncio.create_task(_warm(context, routes))
            services.callback(warming.cancel)
            try:
                yield
            finally:
                context.ready = False
                await context.open_responses.close()
        await asyncio.to_thread(context.close)

    methods = Methods(routes)

    async def refuse(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 405:  # Starlette lists only one route's methods
            error.headers = {"Allow": ", ".join(methods.of(request.scope["path"]))}
        return await handle(request, error)

    app = Starlette(
        routes=groups,
        lifespan=life,
        middleware=[Middleware(Guard, context=context, methods=methods), Middleware(Compression)],
        exception_handlers={HTTPException: refuse},
    )
    app.router.redirect_slashes = False  # a path with an empty name is wrong; a redirect would hide that
    app.state.context, app.state.routes = context, routes
    return app


def _routes(name: str, context: Context) -> list[Route]:
    """Import a route module and return its routes."""
    found: list[Route] = import_module(f"aggregator.server.routes.{name}").routes(context)
    return found


async def _warm(context: Context, routes: Routes) -> None:
    """Do the work that the start deferred, in a thread."""
    await asyncio.sleep(WARM_S)
    await asyncio.to_thread(_import_rest, routes)
    await asyncio.to_thread(_open_segments, context)


def _import_rest(routes: Routes) -> None:
    list(routes)
    for module, name in _LATE:
        getattr(import_module(module), name)
    with contextlib.suppress(lql.LqlError):  # lark is not installed
        lql.parse_statement("SELECT")  # the first statement loads the grammar


def _open_segments(context: Context) -> None:
    """Open the segments that the first queries will need, pausing while requests are running."""
    for _ in context.catalog.open_ahead():
        while context.ready and (context.reads.busy or context.appends.busy):
            time.sleep(PAUSE_S)
        if not context.ready:
            return
