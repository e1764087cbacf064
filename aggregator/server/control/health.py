"""`Health`: periodic checks of the catalog. `/ok` returns the last result."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator

from aggregator import Catalog
from esformat import EsdbError

MISSED_CHECKS = 10
"""The server counts as ill after this many intervals without a successful check, as plateau's does."""
_log = logging.getLogger("aggregator.server")


class Health:
    """The result of the last check.

    `trouble`: what is wrong now, or None. `problems`: number of known defects that do not stop the catalog, such as
    batches in quarantine.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._good = time.monotonic()
        self.trouble: str | None = None
        self.problems = 0
        self.took_s = 0.0

    @property
    def age_s(self) -> float:
        """Seconds since the last successful check."""
        return time.monotonic() - self._good

    @property
    def ill(self) -> bool:
        """Whether the last successful check is too long ago."""
        return self.age_s > MISSED_CHECKS * self._interval_s

    async def check(self, catalog: Catalog) -> None:
        """Check the catalog once."""
        began = time.monotonic()
        try:
            trouble, self.problems = await asyncio.to_thread(lambda: (catalog.trouble, len(catalog.problems())))
        except EsdbError as error:
            trouble = str(error)
        self.took_s = time.monotonic() - began
        if trouble is None:
            self._good = time.monotonic()
        elif trouble != self.trouble:
            _log.warning("appends or background work fail", extra={"trouble": trouble})
        self.trouble = trouble

    @contextlib.asynccontextmanager
    async def checking(self, catalog: Catalog) -> AsyncIterator[None]:
        """Check the catalog now and at each interval while the context is open."""

        async def again() -> None:
            while True:
                await asyncio.sleep(self._interval_s)
                await self.check(catalog)

        await self.check(catalog)
        task = asyncio.create_task(again())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
