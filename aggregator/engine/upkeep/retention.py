"""Choose the segments that retention removes. Pure functions.

The oldest are removed first. These are the ones that were sealed first, so that late events, or a clock that was set
back, do not make new arrivals the oldest. Only the limit on age uses the events' own timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aggregator.model import QuarantinedBatch, SegmentInfo
from aggregator.policy import Retention

Retained = SegmentInfo | QuarantinedBatch
"""The unit that retention keeps or removes."""


@dataclass(frozen=True, slots=True)
class Expired:
    """A segment or quarantined batch to remove, and why: "age", "segments", "bytes", "partition segments",
    "partition bytes", "catalog bytes", "free disk".
    """

    segment: Retained
    reason: str


@dataclass(frozen=True, slots=True)
class Space:
    """Disk limits and usage of the catalog as a whole, in bytes; None: no limit.

    other_bytes: size of everything except segments, which stays: log, manifest, quarantine, reserve.
    free_bytes: free space on the disk, including what retired segments will free.
    """

    max_bytes: int | None
    other_bytes: int
    min_free_bytes: int | None
    free_bytes: int


def oldest_first(segments: Iterable[Retained]) -> list[Retained]:
    """Segments and quarantined batches in the order in which they were sealed or quarantined."""
    return sorted(segments, key=lambda segment: (segment.created_us, segment.first_index, segment.number))


def expired(segments: Sequence[Retained], policy: Retention, now_us: int) -> list[Expired]:
    """The segments and quarantined batches of a topic that its policy no longer keeps: by age, then by the limits of
    each partition, then by those of the topic; the oldest first in each case.

    One expires by age when its newest event is too old.
    """
    to_delete: list[Expired] = []
    kept: list[Retained] = []
    for segment in oldest_first(segments):
        if policy.age_us is not None and now_us - segment.max_timestamp > policy.age_us:
            to_delete.append(Expired(segment, "age"))
        else:
            kept.append(segment)
    if policy.partition_bytes is not None or policy.partition_segments is not None:
        partitions: dict[int, list[Retained]] = {}
        for segment in kept:
            partitions.setdefault(segment.partition, []).append(segment)
        kept = []
        for in_partition in partitions.values():
            over = _over(in_partition, policy.partition_segments, policy.partition_bytes, "partition ")
            to_delete += over
            kept += in_partition[len(over) :]
        kept = oldest_first(kept)
    return to_delete + _over(kept, policy.segments, policy.bytes)


def _over(kept: Sequence[Retained], max_segments: int | None, max_bytes: int | None, whose: str = "") -> list[Expired]:
    """The first of these, until the rest is within the limits. Batches do not count as segments."""
    to_delete: list[Expired] = []
    kept_bytes = sum(segment.size_bytes for segment in kept)
    count = sum(isinstance(segment, SegmentInfo) for segment in kept)
    for segment in kept:
        if max_segments is not None and count > max_segments:
            to_delete.append(Expired(segment, f"{whose}segments"))
        elif max_bytes is not None and kept_bytes > max_bytes:
            to_delete.append(Expired(segment, f"{whose}bytes"))
        else:
            break
        kept_bytes -= segment.size_bytes
        count -= isinstance(segment, SegmentInfo)
    return to_delete


def over_limit(segments: Sequence[Retained], space: Space) -> list[Expired]:
    """The segments and quarantined batches, of all topics, to remove so that the catalog is within `space`, the oldest
    first. The batches are already part of `space.other_bytes`.
    """
    to_delete: list[Expired] = []
    held = space.other_bytes + sum(segment.size_bytes for segment in segments if isinstance(segment, SegmentInfo))
    free = space.free_bytes
    for segment in oldest_first(segments):
        if space.max_bytes is not None and held > space.max_bytes:
            to_delete.append(Expired(segment, "catalog bytes"))
        elif space.min_free_bytes is not None and free < space.min_free_bytes:
            to_delete.append(Expired(segment, "free disk"))
        else:
            break
        held -= segment.size_bytes
        free += segment.size_bytes
    return to_delete
