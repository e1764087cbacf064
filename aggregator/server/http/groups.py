"""Routes in groups, each made when a request comes that no group before it takes: a server starts without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from aggregator.server.context import Context
from aggregator.server.http.entry import entered

_TAKEN = "aggregator.route"
"""Where a request's scope has the route that takes it."""


class Group(BaseRoute):
    """A group of routes, as one that takes what any of them does. Safe to share between threads."""

    def __init__(self, make: Callable[[Context], list[Route]], context: Context) -> None:
        self._make, self._context = make, context
        self._lock = Lock()
        self._made: tuple[list[Route], list[Route]] | None = None

    @property
    def routes(self) -> list[Route]:
        """As they were made."""
        return self._both()[0]

    def _both(self) -> tuple[list[Route], list[Route]]:
        """The routes, and the same with what each request has to pass before."""
        if self._made is None:
            with self._lock:
                if self._made is None:
                    plain = self._make(self._context)
                    self._made = plain, [entered(route, self._context) for route in plain]
        return self._made

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """How well one of the routes takes a request: the first that does wholly, or else the first whose path does."""
        best: tuple[Match, Scope] = (Match.NONE, {})
        for route in self._both()[1]:
            match, found = route.matches(scope)
            if match.value > best[0].value:
                best = match, {**found, _TAKEN: route}
                if match == Match.FULL:
                    break
        return best

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let that route answer."""
        await scope[_TAKEN].handle(scope, receive, send)


class Routes:
    """All routes of an application, in the order in which they are looked through. To iterate makes them."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups

    def __iter__(self) -> Iterator[Route]:
        for group in self.groups:
            yield from group.routes
