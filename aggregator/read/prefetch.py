"""Opens segments before a scan needs them.

For a history in many segments of the store: in parallel, so that all of them together take the round trips of one.
After a start, for all topics: one by one, while there are no queries.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from aggregator.model import SegmentInfo
from aggregator.read.query import Query
from aggregator.storage.segments.pool import SegmentPool
from esformat import EsdbError, parts

THREADS = 32
MOST_BEGUN = 1 << 14
"""Number of histories that are remembered as begun: they are, or were, in the cache."""
FIRST_SEGMENTS = 8
"""Number of segments to begin if a limit may be reached soon."""


@cache
def _threads(_process: int) -> ThreadPoolExecutor:
    """One pool per process: threads do not survive a fork."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="aggregator-ahead")


def prefetch(pool: SegmentPool, segments: Sequence[SegmentInfo], query: Query) -> None:
    """Open the segments that are read from the store, and begin to fetch their events of the query's space.

    Errors are ignored: the scan meets them again and reports them.
    """
    if query.space is None or query.by_index or not pool.has_store:
        return
    begun, space = pool.begun, query.space
    far = [info for info in segments if (info.number, space) not in begun and pool.is_far(info)]
    if query.limit is not None:
        far = far[-FIRST_SEGMENTS:] if query.reverse else far[:FIRST_SEGMENTS]
    if len(begun) > MOST_BEGUN:
        begun.clear()
    begun.update((info.number, space) for info in far)
    waiting = [info for info in far if not _begun(pool, info, space)]
    if len(waiting) > 1:
        list(_threads(os.getpid()).map(lambda info: _begin(pool, info, space), waiting))


def _begun(pool: SegmentPool, info: SegmentInfo, space: bytes) -> bool:
    """Begin to fetch if nothing must be read first. Return whether that was possible."""
    segment = pool.opened(info)
    return segment is not None and parts.announce_space(segment, space, wait=False)


def _begin(pool: SegmentPool, info: SegmentInfo, space: bytes) -> None:
    with contextlib.suppress(EsdbError, OSError):
        parts.announce_space(pool.get(info), space, wait=True)


def open_newest(pool: SegmentPool, segments: Iterable[SegmentInfo]) -> Iterator[None]:
    """Open the newest segments that have files, one per step, as long as the pool has room for them.

    Errors are ignored: the scan meets them again and reports them.
    """
    for info in sorted(segments, key=lambda each: each.max_timestamp, reverse=True):
        if not pool.has_room():
            return
        with contextlib.suppress(EsdbError, OSError):
            pool.open_ahead(info)
        yield
