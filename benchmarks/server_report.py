"""Tables of the results of `benchmarks.server`, for the terminal and docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.section import VERDICT_HEADINGS, Headed, Target, verdicts

Works = Mapping[str, Mapping[str, Any]]


def _of(works: Works, id_: str, *figures: str) -> float | None:
    found: Any = works.get(id_, {})
    for figure in figures:
        found = found.get(figure) if isinstance(found, Mapping) else None
    return None if found is None else float(found)


def _processor_us(works: Works) -> float | None:
    """Processor time of the server per event of H1 during ingest, which includes concurrent sealing."""
    seconds, events = _of(works, "H1", "processor_s"), _of(works, "H1", "events")
    return None if seconds is None or not events else seconds / events * 1e6


TARGETS = [
    Target("H1", "≥ 1,200,000 events/s, durable", lambda w: _of(w, "H1", "events_per_s"), 1.2e6, True, "{:,.0f} /s"),
    Target("H1", "≤ 0.6 µs of the server's processor an event", lambda w: _processor_us(w), 0.6, False, "{:.2f} µs"),
    Target("H1p", "≥ 1,200,000 events/s, durable", lambda w: _of(w, "H1p", "events_per_s"), 1.2e6, True, "{:,.0f} /s"),
    Target("H2", "≥ 700,000 events/s", lambda w: _of(w, "H2", "events_per_s"), 700_000, True, "{:,.0f} /s"),
    Target("H3", "p99 ≤ 5 ms", lambda w: _of(w, "H3", "latency_ms", "p99"), 5, False, "{:.1f} ms"),
    Target("H3", "median ≤ 5 ms", lambda w: _of(w, "H3", "latency_ms", "p50"), 5, False, "{:.1f} ms"),
    Target("H4", "goodput ≥ 90 % of the closed loop's", lambda w: _of(w, "H4", "goodput"), 0.9, True, "{:.0%}"),
    Target("H4", "refusals within 50 ms (p99)", lambda w: _of(w, "H4", "refusal_ms", "p99"), 50, False, "{:.1f} ms"),
    Target("H4", "5 s later ≥ 90 % of it again", lambda w: _of(w, "H4", "after"), 0.9, True, "{:.0%}"),
    Target("H5", "a page in ≤ 5 ms (p50)", lambda w: _of(w, "H5", "latency_ms", "p50"), 5, False, "{:.1f} ms"),
    Target("H5", "read again at once (p50)", lambda w: _of(w, "H5", "again_ms", "p50"), 5, False, "{:.1f} ms"),
    Target("H5", "≤ 5 ms of processor, mean of both", lambda w: _of(w, "H5", "processor_ms"), 5, False, "{:.1f} ms"),
    Target("H5", "≤ 64 MiB above idle", lambda w: _of(w, "H5", "rise_mib"), 64, False, "{:.0f} MiB"),
]  # fmt: skip
HEADINGS = (
    "work", "events/s", "requests/s done", "latency p50 / p99 / p99.9 ms", "refused", "refused after p50 / p99 ms",
    "server: resident MiB",
)  # fmt: skip


def figures(works: Works) -> list[tuple[str, ...]]:
    """A row for each work, and one for concurrent ingest if there was any."""
    rows = []
    for id_, found in works.items():
        if "problem" in found:
            rows.append((id_, "FAILED", found["problem"], "", "", "", ""))
            continue
        latency, refusal = found["latency_ms"] or {}, found["refusal_ms"] or {}
        rows.append(
            (
                id_, f"{found['events_per_s']:,}" if found["events"] else "–", f"{found['done_per_s']:,.0f}",
                " / ".join(f"{latency.get(name, 0):,.1f}" for name in ("p50", "p99", "p99.9")), f"{found['shed']:,}",
                " / ".join(f"{refusal[name]:,.1f}" for name in ("p50", "p99")) if refusal else "–",
                f"{found['resident_mib']:,.0f}" if "resident_mib" in found else "–",
            )
        )  # fmt: skip
        if "beside" in found:
            beside = found["beside"]
            waits = beside["latency_ms"]
            rows.append(
                (
                    f"{id_}: ingest", f"{beside['events_per_s']:,}", f"{beside['done_per_s']:,.0f}",
                    " / ".join(f"{waits[name]:,.1f}" for name in ("p50", "p99", "p99.9")), f"{beside['shed']:,}", "–",
                    "",
                )
            )  # fmt: skip
    return rows


def tables(works: Works) -> list[Headed]:
    """The headings and rows of each table."""
    return [(VERDICT_HEADINGS, verdicts(TARGETS, works)), (HEADINGS, figures(works))]
