"""Counts of finished requests: by method, route and status, and by duration.

Plain numbers, so that counting a request costs almost nothing; `metrics` exports them to Prometheus.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper bounds of the duration buckets, in seconds; one more bucket is unbounded."""


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """Facts about a finished request.

    route: its template, "" if no route matched; who: name of the token; client: its address.
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
    """Durations of the requests of one kind: the number in each bucket, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    seconds: float = 0.0


@dataclass(slots=True)
class RequestCounts:
    """Counts of one application. `add` belongs to the event loop's thread; other threads read copies."""

    ended: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """Finished requests by method, route and status."""
    times: dict[tuple[str, str], Times] = field(default_factory=dict)
    """Durations by method and route."""
    shed: Counter[str] = field(default_factory=Counter)
    """Requests refused with 429, by route. A route is listed, with 0, from its first request on, so that rates can be
    computed."""
    sent_bytes: int = 0

    def add(self, request: FinishedRequest) -> None:
        """Count a finished request."""
        route = request.route or "none"
        self.ended[request.method, route, request.status] += 1
        times = self.times.get((request.method, route))
        if times is None:
            times = self.times[request.method, route] = Times()
        times.counts[bisect_left(BUCKETS_S, request.seconds)] += 1
        times.seconds += request.seconds
        self.shed[route] += request.status == 429
        self.sent_bytes += request.sent_bytes
