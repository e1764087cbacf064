"""Requests that ended, counted as they end: by method, route and status, and by how long they took.

Plain numbers, so that a request costs next to nothing; `metrics` gives them to Prometheus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper ends of the times that are told apart; the last is open."""


@dataclass(frozen=True, slots=True)
class Told:
    """Facts about a finished request.

    route: its template, "" where there is none; who: name of its token; client: address that it came from.
    """

    method: str
    route: str
    status: int
    seconds: float
    sent_bytes: int
    who: str
    client: str = ""


@dataclass(slots=True)
class Times:
    """How long the requests of one kind took: how many ended within each bucket, and all of their seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    seconds: float = 0.0


@dataclass(slots=True)
class RequestCounts:
    """Of one application. `add` belongs to the event loop's thread; others read copies."""

    ended: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """By method, route and status."""
    times: dict[tuple[str, str], Times] = field(default_factory=dict)
    """By method and route."""
    shed: Counter[str] = field(default_factory=Counter)
    """By route: those that were refused with 429. A route is there from its first request on, as rates need it."""
    sent_bytes: int = 0

    def add(self, told: Told) -> None:
        """Count a request."""
        route = told.route or "none"
        self.ended[told.method, route, told.status] += 1
        times = self.times.get((told.method, route))
        if times is None:
            times = self.times[told.method, route] = Times()
        times.counts[bisect_left(BUCKETS_S, told.seconds)] += 1
        times.seconds += told.seconds
        self.shed[route] += told.status == 429
        self.sent_bytes += told.sent_bytes
