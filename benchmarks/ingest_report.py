"""Tables of the results of `benchmarks.ingest`, for the terminal and docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.section import VERDICT_HEADINGS, Headed, Target, verdicts

SUBJECT, WITH_PROCESS = "aggregator", "aggregator-process"
Works = Mapping[str, Mapping[str, Mapping[str, Any]]]


def _of(works: Works, id_: str, figure: str, subject: str = SUBJECT) -> float | None:
    found = works.get(id_, {}).get(subject, {}).get(figure)
    return None if found is None else float(found)


def _figure(id_: str, figure: str, subject: str = SUBJECT) -> Callable[[Works], float | None]:
    return lambda works: _of(works, id_, figure, subject)


def _flatness(works: Works) -> float | None:
    few, many = _of(works, "I3-10", "rate"), _of(works, "I3-50000", "rate")
    return None if few is None or many is None else many / few


def _beside(id_: str, *peers: str) -> Callable[[Works], float | None]:
    """Return a function for the ratio of our rate to that of the fastest peer; None if one was not measured."""

    def ratio(works: Works) -> float | None:
        mine, theirs = _of(works, id_, "rate"), [_of(works, id_, "rate", peer) for peer in peers]
        known = [rate for rate in theirs if rate is not None]
        return None if mine is None or len(known) < len(peers) else mine / max(known)

    return ratio


def _most_memory(works: Works) -> float | None:
    """Peak memory of the aggregator, minus that of the process before opening it, which is mostly the load."""
    found = [
        _own_memory(works[id_][subject])
        for id_ in ("I1", "I2", "I2-1", "I3-10", "I3-50000", "I4")
        for subject in (SUBJECT, WITH_PROCESS)
        if "resident_mib" in works.get(id_, {}).get(subject, {})
    ]
    return max(found, default=None)


def _own_memory(found: Mapping[str, Any]) -> float:
    return float(found["resident_mib"] - found["before_mib"])


TARGETS = [
    Target("I1", "batches of 1,000: ≥ 1,000,000 events/s", _figure("I1", "rate"), 1_000_000, True, "{:,.0f} /s"),
    Target("I1", "≥ 1.3 × LMDB", _beside("I1", "lmdb"), 1.3, True, "{:.2f} ×"),
    Target("I2", "batches of 100, 16 threads: ≥ RocksDB", _beside("I2", "rocksdb"), 1, True, "{:.2f} ×"),
    Target(
        "I2-1",
        "single events: ≥ the quickest of SQLite, LMDB and RocksDB",
        _beside("I2-1", "sqlite", "lmdb", "rocksdb"),
        1,
        True,
        "{:.2f} ×",
    ),
    Target("I3", "50,000 spaces: ≥ 0.8 of the rate over 10", _flatness, 0.8, True, "{:.2f}"),
    Target(
        "I4",
        "newest 100 events of a space meanwhile: p99 ≤ 5 ms",
        _figure("I4", "read_p99_ms"),
        5,
        False,
        "{:.1f} ms",
    ),
    Target("I4", "the same, sealing in a process", _figure("I4", "read_p99_ms", WITH_PROCESS), 5, False, "{:.1f} ms"),
    Target("I5", "reopened after a kill with 1 GiB of log: ≤ 15 s", _figure("I5", "seconds"), 15, False, "{:.1f} s"),
    Target(
        "I6", "segments of a space among 100,000, few have it: ≤ 5 ms", _figure("I6", "p50_ms"), 5, False, "{:.2f} ms"
    ),
    Target("I6", "the same, all 100,000 may have it: ≤ 5 ms", _figure("I6", "all_p50_ms"), 5, False, "{:.2f} ms"),
    Target(
        "I7",
        "history of a space over 100 segments, warm: ≤ 0.5 ms",
        _figure("I7", "apart_p50_ms"),
        0.5,
        False,
        "{:.2f} ms",
    ),
    Target("I7", "the same after compaction: ≤ 0.2 ms", _figure("I7", "merged_p50_ms"), 0.2, False, "{:.3f} ms"),
    Target(
        "I8",
        "10,000 topics, 100,000 streams and segments: ≤ 1 s",
        _figure("I8", "seconds"),
        1,
        False,
        "{:.2f} s",
    ),
    Target("all", "≤ 1,024 MiB resident, what was there before left out", _most_memory, 1024, False, "{:,.0f} MiB"),
]


def rates(works: Works) -> list[tuple[str, ...]]:
    """Rows of work, store, events per second, latency, memory, disk, processor time, load."""
    rows = []
    for id_, stores in works.items():
        for name, found in stores.items():
            if "failed" in found:
                rows.append((id_, name, "FAILED", "", "", "", "", str(found["load"])))
            elif "rate" in found:
                rows.append(
                    (
                        id_, name, f"{found['rate']:,.0f}", f"{found['p50_ms']:.1f} / {found['p99_ms']:.1f}",
                        f"{found['resident_mib']:,.0f} / {_own_memory(found):,.0f}", _per_event(found),
                        f"{found['cpu_us']:.1f}" if "cpu_us" in found else "–", str(found["load"]),
                    )
                )  # fmt: skip
    return rows


def _per_event(found: Mapping[str, Any]) -> str:
    """Bytes of the files per event; a dash if retention removed some."""
    return "–" if found.get("retained") else f"{found['disk_mib'] * (1 << 20) / found['events']:.0f}"


RATE_HEADINGS = (
    "work",
    "store",
    "events/s",
    "append p50 / p99 ms",
    "resident MiB / more than before",
    "bytes/event on disk",
    "processor µs/event",
    "load",
)


def tables(works: Works) -> list[Headed]:
    """The headings and rows of each table."""
    return [(VERDICT_HEADINGS, verdicts(TARGETS, works)), (RATE_HEADINGS, rates(works))]
