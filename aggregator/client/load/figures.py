"""`Figures`: the results of all requests in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

PERCENTILES = (50.0, 99.0, 99.9)
_SHED = (429, 503)


@dataclass(slots=True)
class Figures:
    """Collected per thread, then added up.

    Times are in seconds. `late`: requests that began more than 10 ms after they were due because every connection was
    busy.
    """

    waits: list[float] = field(default_factory=list)
    refusal_waits: list[float] = field(default_factory=list)
    events: int = 0
    answer_bytes: int = 0
    late: int = 0
    errors: Counter[str] = field(default_factory=Counter)

    def add(self, status: int, events: int, wait_s: float, refusal_s: float, answer_bytes: int, error: str) -> None:
        """Count one request. wait_s: since it was due; refusal_s: since it was sent."""
        if 200 <= status < 300:
            self.waits.append(wait_s)
            self.events += events
            self.answer_bytes += answer_bytes
        elif status in _SHED:
            self.refusal_waits.append(refusal_s)
        else:
            self.errors[error or f"status {status}"] += 1

    def report(self, seconds: float) -> dict[str, object]:
        """Return plain values, with times in ms."""
        done = len(self.waits)
        shed, failed = len(self.refusal_waits), self.errors.total()
        return {
            "seconds": round(seconds, 3), "requests": done + shed + failed, "done": done,
            "done_per_s": round(done / seconds, 1), "shed": shed, "failed": failed, "errors": dict(self.errors),
            "late": self.late, "events": self.events, "events_per_s": round(self.events / seconds),
            "answer_mb_per_s": round(self.answer_bytes / seconds / 1e6, 2),
            "latency_ms": percentiles(self.waits), "refusal_ms": percentiles(self.refusal_waits),
        }  # fmt: skip


def total(parts: Iterable[Figures]) -> Figures:
    """Add up all figures."""
    whole = Figures()
    for part in parts:
        whole.waits += part.waits
        whole.refusal_waits += part.refusal_waits
        whole.events += part.events
        whole.answer_bytes += part.answer_bytes
        whole.late += part.late
        whole.errors += part.errors
    return whole


def percentiles(seconds: list[float]) -> dict[str, float] | None:
    """Return p50, p99, p99.9 and the maximum, in ms; None for an empty list."""
    if not seconds:
        return None
    values = np.percentile(seconds, PERCENTILES) * 1000
    named = {f"p{which:g}": round(float(value), 3) for which, value in zip(PERCENTILES, values, strict=True)}
    return named | {"max": round(max(seconds) * 1000, 3)}
