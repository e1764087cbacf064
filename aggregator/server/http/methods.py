"""`Methods`: which methods a path takes, over all routes that share it: for `Allow` and answers to OPTIONS."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import Route


class Methods:
    """Of the routes of an application."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = routes

    def of(self, path: str) -> list[str]:
        """The methods, OPTIONS included; none for a path that no route takes. `*`: of every route."""
        taken = [route for route in self._routes if path == "*" or route.path_regex.match(path)]
        return sorted({"OPTIONS"}.union(*(route.methods or () for route in taken))) if taken else []
