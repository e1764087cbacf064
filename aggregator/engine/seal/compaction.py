"""Choose segments to merge into larger ones. Pure functions.

Segments of one partition and schema merge in the order of their record indexes. The catalog automatically merges
`fan_in` neighbours of one level into one of the next: the older events are, the larger their segments, and each event
is written once for each level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from aggregator.model import SegmentInfo
from aggregator.policy import Limits, Retention

MAX_INPUTS = 32
"""Maximum number of segments in one merge: each is open, with its own cache."""
MAX_SEGMENT_BYTES = 512 << 20
"""Segments do not grow beyond this size by merging."""
RETENTION_STEPS = 10
"""A merged segment has at most 1/RETENTION_STEPS of what retention keeps, so that retention removes a little at a
time."""


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """Maximum size of a merged segment, in bytes, and span from its first to its last event, in µs."""

    max_bytes: int = MAX_SEGMENT_BYTES
    max_span_us: int | None = None


def merge_limits(policy: Retention, limits: Limits) -> MergeLimits:
    """Merge limits that leave retention enough segments to choose from."""
    sizes = [kept // RETENTION_STEPS for kept in (policy.bytes, policy.partition_bytes) if kept is not None]
    if limits.max_bytes is not None:  # it counts the merged segment and, until they are deleted, its inputs
        sizes.append(limits.max_bytes // (2 * RETENTION_STEPS))
    span = None if policy.age_us is None else policy.age_us // RETENTION_STEPS
    return MergeLimits(min([MAX_SEGMENT_BYTES, *sizes]), span)


def merges_due(segments: Iterable[SegmentInfo], limits: MergeLimits, fan_in: int) -> list[list[SegmentInfo]]:
    """Groups to merge automatically: `fan_in` neighbours of one level, in the order of record indexes."""
    groups = []
    for run in _runs(segments):
        for _, same in groupby(run, key=lambda segment: segment.level):
            groups += [group for group in _packed(list(same), limits, fan_in) if len(group) == fan_in]
    return groups


def merges_possible(segments: Iterable[SegmentInfo], limits: MergeLimits) -> list[list[SegmentInfo]]:
    """Groups to merge on request: all neighbours that fit together."""
    return [group for run in _runs(segments) for group in _packed(run, limits, MAX_INPUTS) if len(group) > 1]


def _runs(segments: Iterable[SegmentInfo]) -> Iterator[list[SegmentInfo]]:
    """Segments that may merge with each other, in the order of their record indexes."""

    def kind(segment: SegmentInfo) -> tuple[int, int]:
        return segment.partition, segment.schema

    ordered = sorted(segments, key=lambda segment: (*kind(segment), segment.first_index))
    return (list(run) for _, run in groupby(ordered, key=kind))


def _packed(run: Sequence[SegmentInfo], limits: MergeLimits, most: int) -> Iterator[list[SegmentInfo]]:
    """Cut a sequence of segments into groups as large as the limits allow."""
    group: list[SegmentInfo] = []
    size = low = high = 0
    for segment in run:
        first = not group
        low, high, size = (
            min(segment.min_timestamp, segment.min_timestamp if first else low),
            max(segment.max_timestamp, segment.max_timestamp if first else high),
            size + segment.size_bytes,
        )
        too_long = limits.max_span_us is not None and high - low > limits.max_span_us
        if group and (len(group) == most or size > limits.max_bytes or too_long):
            yield group
            group = []
            size, low, high = segment.size_bytes, segment.min_timestamp, segment.max_timestamp
        group.append(segment)
    if group:
        yield group
