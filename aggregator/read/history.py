"""A space's history as events, merged by time from each segment's own fast path.

It gives what `merge` would give of the same sources. Where a history is a handful of events in each of many segments,
work per batch would be most of what is done.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

from esformat import Event

SORTED_EVENTS = 100_000
"""A history that cannot be longer is read and sorted at once; a longer one is merged as it is read."""

_time: Callable[[Event], int] = attrgetter("timestamp")


class Part(NamedTuple):
    """Events of the history that one segment has, or some unsealed batches.

    low, high: no event is earlier or later, µs. partition, first_index, last_index: their record indexes, for ties.
    in_order: whether those of one time come by record index. most: no more events than so many. events: reads them, in
    the direction of the question, at most its limit.
    """

    low: int
    high: int
    partition: int
    first_index: int
    last_index: int
    in_order: bool
    most: int
    events: Callable[[], Iterator[Event]]


_order: Callable[[Part], tuple[int, int, int]] = itemgetter(2, 3, 4)
"""Partition and record indexes: of events at the same time, those of the smaller order come first."""


def ties_are_clear(parts: Sequence[Part]) -> bool:
    """Whether events of equal time are in order when those of one part come before those of another."""
    spans = sorted(map(_order, parts))
    return all(part.in_order for part in parts) and all(a[0] != b[0] or a[2] < b[1] for a, b in pairwise(spans))


def merge_history(parts: Sequence[Part], *, reverse: bool, limit: int | None) -> Iterator[Event]:
    """The events of all parts by time, then partition, then record index; `reverse` is the exact mirror."""
    most = sum(part.most for part in parts)
    if limit is not None and limit < most:
        return iter(_first_events(parts, reverse, limit))
    ordered = sorted(parts, key=_order, reverse=reverse)
    if most > SORTED_EVENTS:
        return heapq.merge(*(part.events() for part in ordered), key=_time, reverse=reverse)
    events = list(chain.from_iterable(part.events() for part in ordered))
    if len(ordered) > 1:
        events.sort(key=_time, reverse=reverse)  # stable in both directions: ties stay in the order of the parts
    return iter(events)


def _first_events(parts: Sequence[Part], reverse: bool, limit: int) -> list[Event]:
    """The first `limit` events in the question's direction. A part that cannot add to them is not read."""
    kept: list[tuple[int, tuple[int, int, int], Event]] = []
    for part in sorted(parts, key=lambda part: -part.high if reverse else part.low):
        if not limit or (len(kept) == limit and (part.high < kept[-1][0] if reverse else part.low > kept[-1][0])):
            break
        kept += [(event.timestamp, _order(part), event) for event in islice(part.events(), limit)]
        kept.sort(key=itemgetter(0, 1), reverse=reverse)
        del kept[limit:]
    return [event for _, _, event in kept]
