"""Choose partitions to seal now, and how much of each. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aggregator.engine.seal.compaction import SHARES
from aggregator.policy import Limits, Retention


@dataclass(frozen=True, slots=True)
class Load:
    """What is needed to decide whether a partition is sealed now."""

    partition: int
    rows: int
    size_bytes: int
    oldest_us: int
    max_rows: int
    max_bytes: int
    max_age_us: int
    pins_log: bool = False


def sealed_at_once(
    most: int, keeps: Retention, catalog_bytes: int | None, partitions: int = 1, shrinks: float = 1.0
) -> int:
    """Bytes that become one segment: `most`, or fewer where topic or catalog keep few, so that little goes at a time;
    but so many that as many segments as are kept can hold as many bytes as are kept.

    catalog_bytes: what the catalog keeps. partitions: so many share what topic and catalog keep. shrinks: so many bytes
    in memory become one of a segment, in which topics count what they keep; a catalog counts its log as well.
    """
    for kept, segments, shared_by, smaller in (
        (keeps.bytes, keeps.segments, partitions, shrinks),
        (keeps.partition_bytes, keeps.partition_segments, 1, shrinks),
        (catalog_bytes, None, partitions, 1),
    ):
        if kept is not None:
            shares = SHARES * shared_by if segments is None else max(1, min(SHARES * shared_by, segments))
            most = min(most, max(1, int(kept * smaller) // shares))
    return most


def choose_to_seal(
    loads: Sequence[Load], limits: Limits, log_bytes: int, now_us: int, wanted_bytes: int = 0
) -> list[int]:
    """Partitions to seal now: those past a roll limit, and, where a budget is half used, those that would free most.

    wanted_bytes: what a batch takes for which there was no memory.
    """
    chosen = [
        load.partition
        for load in loads
        if load.rows >= load.max_rows
        or load.size_bytes >= load.max_bytes
        or not 0 <= now_us - load.oldest_us < load.max_age_us  # a clock that went back seals too early, never never
    ]
    left = [load for load in loads if load.partition not in set(chosen)]
    held = sum(load.size_bytes for load in left)
    most = min(limits.memory_bytes // 2, limits.memory_bytes - wanted_bytes)
    for load in sorted(left, key=lambda load: load.size_bytes, reverse=True):
        if held > most or (load.pins_log and log_bytes > limits.log_bytes // 2):
            chosen.append(load.partition)
            held -= load.size_bytes
    return chosen


def next_due_us(loads: Iterable[Load]) -> int | None:
    """When the first of them comes of age; None without any."""
    return min((load.oldest_us + load.max_age_us for load in loads), default=None)
