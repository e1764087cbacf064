"""Choose partitions to seal now, and how much of each. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aggregator.engine.seal.compaction import RETENTION_STEPS
from aggregator.policy import Limits, Retention


@dataclass(frozen=True, slots=True)
class Load:
    """The facts that decide whether a partition is sealed now."""

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
    """Maximum bytes in memory to seal into one segment: `most`, or less if topic or catalog keep little, so that
    retention removes little at a time; but enough that the number of segments kept can contain the bytes kept.

    catalog_bytes: maximum size of the catalog. partitions: number of partitions that share the limits of topic and
    catalog. shrinks: bytes in memory per byte of a segment. Topics' limits count segments; the catalog's limit also
    counts its log, so it is taken without `shrinks`.
    """
    for kept, segments, shared_by, smaller in (
        (keeps.bytes, keeps.segments, partitions, shrinks),
        (keeps.partition_bytes, keeps.partition_segments, 1, shrinks),
        (catalog_bytes, None, partitions, 1),
    ):
        if kept is not None:
            shares = (
                RETENTION_STEPS * shared_by if segments is None else max(1, min(RETENTION_STEPS * shared_by, segments))
            )
            most = min(most, max(1, int(kept * smaller) // shares))
    return most


def choose_to_seal(
    loads: Sequence[Load], limits: Limits, log_bytes: int, now_us: int, wanted_bytes: int = 0
) -> list[int]:
    """Partitions to seal now: those past a roll limit, and, if a budget is half used, those that would free most.

    wanted_bytes: size of a batch for which there was no memory.
    """
    chosen = [
        load.partition
        for load in loads
        if load.rows >= load.max_rows
        or load.size_bytes >= load.max_bytes
        or not 0 <= now_us - load.oldest_us < load.max_age_us  # a clock set back seals too early, not never
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
    """When the first partition reaches its maximum age; None if there are none."""
    return min((load.oldest_us + load.max_age_us for load in loads), default=None)
