"""When to retry, and how long to wait: a pure decision that the sync and the async client share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import random


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long to try.

    attempts: in total; None: as many as `deadline_s` allows. deadline_s: no attempt begins later than this many seconds
    after the first; None: no limit. After the n-th attempt the wait is drawn from [0, first_s · 2ⁿ], at most longest_s
    ("full jitter": clients that were refused together do not return together). A server's Retry-After is added.
    """

    attempts: int | None = None
    deadline_s: float | None = 60.0
    first_s: float = 0.05
    longest_s: float = 5.0

    def wait_s(
        self, attempt: int, elapsed_s: float, retry_after_s: float | None = None, draw: Callable[[], float] = random
    ) -> float | None:
        """Return seconds to wait after the failed `attempt` (the first is 1); None: give up."""
        if self.attempts is not None and attempt >= self.attempts:
            return None
        ceiling = min(self.longest_s, self.first_s * 2.0 ** min(attempt, 60))
        wait = draw() * ceiling + (retry_after_s or 0.0)
        if self.deadline_s is not None and elapsed_s + wait > self.deadline_s:
            return None
        return wait
