"""`Methods`: the methods that a path supports, over all routes that share it. For `Allow` and OPTIONS."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import Route


class Methods:
    """The methods of an application's routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = routes

    def of(self, path: str) -> list[str]:
        """Return a path's methods, including OPTIONS; none if no route matches it. `*`: the methods of all routes."""
        taken = [route for route in self._routes if path == "*" or route.path_regex.match(path)]
        return sorted({"OPTIONS"}.union(*(route.methods or () for route in taken))) if taken else []
