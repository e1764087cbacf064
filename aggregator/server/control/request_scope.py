"""`RequestScope`: a request as its reads see it: its limits, and whether its client is still connected."""

from __future__ import annotations

from contextvars import ContextVar

from starlette.types import Receive

from aggregator import Allowance

_current_request: ContextVar[RequestScope | None] = ContextVar("aggregator_request", default=None)


class RequestScope:
    """One per request; belongs to the event loop's thread. `gone` is true once the client has disconnected."""

    def __init__(self, allowance: Allowance, receive: Receive) -> None:
        """receive: the ASGI channel of the request."""
        self.allowance = allowance
        self.gone = False
        self._receive = receive

    def begin(self) -> None:
        """Make `current_request` return this object in the request's own task."""
        _current_request.set(self)

    async def watch(self) -> None:
        """Wait until the client disconnects, then cancel the request's work. The body, if any, must have been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.allowance.cancel("the client disconnected")


def current_request() -> RequestScope | None:
    """Return the request that the current task answers."""
    return _current_request.get()
