"""`Context`: what every route needs: the catalog, the settings, threads for calls that block, who may do what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request

from aggregator import Catalog
from aggregator.server.access import Access
from aggregator.server.settings import Settings
from aggregator.server.tokens import FILE, Authority
from aggregator.server.work import WorkPool


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of a request that is over. route: its template, "" where there is none; who: name of its token."""

    method: str
    route: str
    status: int
    seconds: float
    sent_bytes: int
    who: str


@dataclass(slots=True)
class Context:
    """One for each application. `ready` is false before it takes requests and while it stops."""

    catalog: Catalog
    settings: Settings
    appends: WorkPool
    reads: WorkPool
    authority: Authority
    ready: bool = False
    body_bytes: int = 0
    """Of request bodies that are held now."""
    open_requests: int = 0
    listeners: list[Callable[[Told], None]] = field(default_factory=list)
    """Called with each request that is over, in the event loop: they must be quick."""

    @classmethod
    def of(cls, catalog: Catalog, settings: Settings) -> Context:
        """With pools as the settings ask for them. Raises InvalidRequestError (a damaged token file)."""
        work = settings.work
        return cls(
            catalog,
            settings,
            WorkPool("append", work.append_threads, work.waiting),
            WorkPool("read", work.read_threads, work.waiting),
            Authority(settings.tokens or catalog.path / FILE),
        )

    def may_see(self, request: Request, topic: str) -> bool:
        """Whether the request's token may read a topic: for answers that name topics."""
        access: Access = request.state.access
        return access.allows("read", topic)

    def tell(self, told: Told) -> None:
        """Pass on what is told of a request."""
        for listener in self.listeners:
            listener(told)

    def close(self) -> None:
        """Let calls that run end. The catalog is its owner's to close."""
        self.ready = False
        self.appends.close()
        self.reads.close()
