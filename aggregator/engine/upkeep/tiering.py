"""Choose segments to evict from the disk of a catalog with a store, and stale objects in the store. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping

from aggregator.model import SegmentInfo
from aggregator.policy import KeepLocal
from aggregator.storage.store.objects import parse_name

GRACE_US = 24 * 3600 * 1_000_000
"""Minimum age of an unnamed object before it is deleted: the manifest may be about to name a younger one."""


def to_evict(
    local: Iterable[tuple[str, SegmentInfo]], arrived: Container[int], keep: KeepLocal, now_us: int, over_bytes: int = 0
) -> list[SegmentInfo]:
    """Choose segments whose files to evict, the oldest first.

    local: segments with files, each with the name of its topic. arrived: numbers of segments that the store has: no
    others are chosen. over_bytes: free at least this much, whatever `keep` says.
    """
    newest_first = sorted(local, key=lambda each: (each[1].max_timestamp, each[1].number), reverse=True)
    evicted: list[SegmentInfo] = []
    kept_local: list[SegmentInfo] = []
    kept = Counter[str]()
    for topic, info in newest_first:
        own = keep.topics.get(topic, keep)
        among = topic if topic in keep.topics else ""
        kept[among] += info.size_bytes
        old = own.age_us is not None and now_us - info.max_timestamp > own.age_us
        over = own.bytes is not None and kept[among] > own.bytes
        if info.number in arrived:
            (evicted if old or over else kept_local).append(info)
    freed = sum(info.size_bytes for info in evicted)
    while kept_local and freed < over_bytes:
        evicted.append(kept_local.pop())
        freed += evicted[-1].size_bytes
    return sorted(evicted, key=lambda info: (info.max_timestamp, info.number))


def strays(present: Mapping[str, int], named: Container[str], now_us: int, grace_us: int = GRACE_US) -> list[str]:
    """Choose objects of segments that nothing names. present: when each was uploaded. Times are by the store's clock.

    With a grace of 0 their age is ignored: the store may report one time in whole seconds and the other in µs.
    """
    return sorted(
        name
        for name, put_us in present.items()
        if parse_name(name) is not None and name not in named and (not grace_us or now_us - put_us >= grace_us)
    )
