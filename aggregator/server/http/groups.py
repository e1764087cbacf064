"""Groups of routes, each created by the first request that no earlier group handles, so that a server starts fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from aggregator.server.context import Context
from aggregator.server.http.entry import entered

_TAKEN = "aggregator.route"
"""Key in a request's scope of the route that handles it."""


class Group(BaseRoute):
    """A group of routes that acts as one route. Thread-safe."""

    def __init__(self, make: Callable[[Context], list[Route]], context: Context) -> None:
        self._make, self._context = make, context
        self._lock = Lock()
        self._made: tuple[list[Route], list[Route]] | None = None

    @property
    def routes(self) -> list[Route]:
        """The routes as declared."""
        return self._both()[0]

    def _both(self) -> tuple[list[Route], list[Route]]:
        """Return the routes, and the same routes with the checks that precede each request."""
        if self._made is None:
            with self._lock:
                if self._made is None:
                    plain = self._make(self._context)
                    self._made = plain, [entered(route, self._context) for route in plain]
        return self._made

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a request with the routes: the first full match, otherwise the first match of the path."""
        best: tuple[Match, Scope] = (Match.NONE, {})
        for route in self._both()[1]:
            match, found = route.matches(scope)
            if match.value > best[0].value:
                best = match, {**found, _TAKEN: route}
                if match == Match.FULL:
                    break
        return best

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request to the matching route."""
        await scope[_TAKEN].handle(scope, receive, send)


class Routes:
    """All routes of an application in search order. Iterating creates them."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups

    def __iter__(self) -> Iterator[Route]:
        for group in self.groups:
            yield from group.routes
