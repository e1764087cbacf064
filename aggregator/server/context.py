"""`Context`: what every route needs: the catalog, the settings, threads for calls that block."""

from __future__ import annotations

from dataclasses import dataclass, field

from aggregator import Catalog
from aggregator.server.settings import Settings
from aggregator.server.work import WorkPool


@dataclass(slots=True)
class Context:
    """One for each application. `ready` is false before it takes requests and while it stops."""

    catalog: Catalog
    settings: Settings
    appends: WorkPool
    reads: WorkPool
    ready: bool = field(default=False)

    @classmethod
    def of(cls, catalog: Catalog, settings: Settings) -> Context:
        """With pools as the settings ask for them."""
        work = settings.work
        return cls(
            catalog,
            settings,
            WorkPool("append", work.append_threads, work.waiting),
            WorkPool("read", work.read_threads, work.waiting),
        )

    def close(self) -> None:
        """Let calls that run end. The catalog is its owner's to close."""
        self.ready = False
        self.appends.close()
        self.reads.close()
