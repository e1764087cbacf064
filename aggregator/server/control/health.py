"""`Health`: periodic checks of the catalog, whose last result `/ok` answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator

from aggregator import Catalog
from esformat import EsdbError

PATIENCE = 10
"""Intervals without a good look after which the server counts as ill, as plateau's does."""
_log = logging.getLogger("aggregator.server")


class Health:
    """What the last looks found. `trouble`: what is wrong now, or None; `problems`: how many the catalog knows of, as
    batches in quarantine, with which it goes on all the same.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._good = time.monotonic()
        self.trouble: str | None = None
        self.problems = 0
        self.took_s = 0.0

    @property
    def age_s(self) -> float:
        """How long ago the catalog was last found well."""
        return time.monotonic() - self._good

    @property
    def ill(self) -> bool:
        """Whether that is too long ago."""
        return self.age_s > PATIENCE * self._interval_s

    async def look(self, catalog: Catalog) -> None:
        """Check once."""
        began = time.monotonic()
        try:
            trouble, self.problems = await asyncio.to_thread(lambda: (catalog.trouble, len(catalog.problems())))
        except EsdbError as error:
            trouble = str(error)
        self.took_s = time.monotonic() - began
        if trouble is None:
            self._good = time.monotonic()
        elif trouble != self.trouble:
            _log.warning("the catalog is in trouble", extra={"trouble": trouble})
        self.trouble = trouble

    @contextlib.asynccontextmanager
    async def looking(self, catalog: Catalog) -> AsyncIterator[None]:
        """Check at each interval while this is open."""

        async def again() -> None:
            while True:
                await asyncio.sleep(self._interval_s)
                await self.look(catalog)

        await self.look(catalog)
        task = asyncio.create_task(again())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
