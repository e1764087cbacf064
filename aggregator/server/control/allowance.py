"""`Asking`: a request as the reads for it see it: what it may use, and whether its client is still there."""

from __future__ import annotations

from contextvars import ContextVar

from starlette.types import Receive

from aggregator import Allowance

_asking: ContextVar[Asking | None] = ContextVar("aggregator_asking", default=None)


class Asking:
    """One for each request; belongs to the event loop's thread. `gone`: the client has left."""

    def __init__(self, allowance: Allowance, receive: Receive) -> None:
        """receive: the request's own messages."""
        self.allowance = allowance
        self.gone = False
        self._receive = receive

    def begin(self) -> None:
        """Let reads of this request, which has a task of its own, find it by `asking`."""
        _asking.set(self)

    async def watch(self) -> None:
        """Wait until the client leaves, and cancel what is done for it. The body must have been read, if it has one."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.allowance.cancel("the client disconnected")


def asking() -> Asking | None:
    """The request that is being answered here."""
    return _asking.get()
