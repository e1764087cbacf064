"""Segments that are opened before a scan comes to them.

Of a history that lies in many segments of the store: side by side. One after the other, each would cost the round trips
that are asked for here of all of them at once. After a start, of all topics: one by one, while nobody asks anything.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from aggregator.model import SegmentInfo
from aggregator.read.query import Question
from aggregator.storage.segments.pool import SegmentPool
from esformat import EsdbError, parts

THREADS = 32
MOST_BEGUN = 1 << 14
"""Histories that are remembered as begun: they are in the cache, or were."""
FEW = 8
"""Segments that are begun where a limit may be reached soon."""


@cache
def _threads(_process: int) -> ThreadPoolExecutor:
    """One pool a process: threads do not survive a fork."""
    return ThreadPoolExecutor(THREADS, thread_name_prefix="aggregator-ahead")


def begin_ahead(pool: SegmentPool, segments: Sequence[SegmentInfo], question: Question) -> None:
    """Open the segments that are read from the store, and begin to fetch what they have of the question's space.

    What fails is met again by the scan, which tells it.
    """
    if question.space is None or question.by_index or not pool.has_store:
        return
    begun, space = pool.begun, question.space
    far = [info for info in segments if (info.number, space) not in begun and pool.is_far(info)]
    if question.limit is not None:
        far = far[-FEW:] if question.reverse else far[:FEW]
    if len(begun) > MOST_BEGUN:
        begun.clear()
    begun.update((info.number, space) for info in far)
    waiting = [info for info in far if not _begun(pool, info, space)]
    if len(waiting) > 1:
        list(_threads(os.getpid()).map(lambda info: _begin(pool, info, space), waiting))


def _begun(pool: SegmentPool, info: SegmentInfo, space: bytes) -> bool:
    """Begin where nothing has to be read first; whether that is done."""
    segment = pool.opened(info)
    return segment is not None and parts.announce_space(segment, space, wait=False)


def _begin(pool: SegmentPool, info: SegmentInfo, space: bytes) -> None:
    with contextlib.suppress(EsdbError, OSError):
        parts.announce_space(pool.get(info), space, wait=True)


def open_newest(pool: SegmentPool, segments: Iterable[SegmentInfo]) -> Iterator[None]:
    """Open the newest segments that have files, one with each step, as long as the pool has room for them.

    What fails is met again by the scan, which tells it.
    """
    for info in sorted(segments, key=lambda each: each.max_timestamp, reverse=True):
        if not pool.has_room():
            return
        with contextlib.suppress(EsdbError, OSError):
            pool.open_ahead(info)
        yield
