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
    row_bytes: about how large an event is. open: looks what is there; None for nothing.
    """

    low: int
    high: int
    partition: int
    first_index: int
    last_index: int
    row_bytes: int
    open: Callable[[], Opened | None]


class Opened(NamedTuple):
    """What a part has. in_order: whether events of one time come by record index. most: no more events than so many.
    events: reads them, in the direction of the question, at most its limit.
    """

    in_order: bool
    most: int
    events: Callable[[], Iterator[Event]]


_order: Callable[[Part], tuple[int, int, int]] = itemgetter(2, 3, 4)
"""Partition and record indexes: of events at the same time, those of the smaller order come first."""


def merge_history(
    parts: Sequence[Part], *, reverse: bool, limit: int | None, few: tuple[int, int] | None = None
) -> Iterator[Event] | None:
    """The events of all parts by time, then partition, then record index; `reverse` is the exact mirror.

    None where it is not clear which of two events of equal time comes first. few: rows and bytes; None is given where
    there may be more.
    """
    spans = sorted(map(_order, parts))
    if any(a[0] == b[0] and a[2] >= b[1] for a, b in pairwise(spans)):
        return None
    if limit is not None:
        row_bytes = max((part.row_bytes for part in parts), default=0)
        if few is not None and (limit > few[0] or limit * row_bytes > few[1]):
            return None
        return _first_events(parts, reverse, limit)
    ordered = [(part, part.open()) for part in sorted(parts, key=_order, reverse=reverse)]
    there = [(part, opened) for part, opened in ordered if opened is not None]
    if not all(opened.in_order for _, opened in there):
        return None
    most = sum(opened.most for _, opened in there)
    if few is not None and (most > few[0] or sum(part.row_bytes * opened.most for part, opened in there) > few[1]):
        return None
    if most > SORTED_EVENTS:
        return heapq.merge(*(opened.events() for _, opened in there), key=_time, reverse=reverse)
    events = list(chain.from_iterable(opened.events() for _, opened in there))
    if len(there) > 1:
        events.sort(key=_time, reverse=reverse)  # stable in both directions: ties stay in the order of the parts
    return iter(events)


def _first_events(parts: Sequence[Part], reverse: bool, limit: int) -> Iterator[Event] | None:
    """The first `limit` events in the question's direction. A part that cannot add to them is not opened."""
    kept: list[tuple[int, tuple[int, int, int], Event]] = []
    for part in sorted(parts, key=lambda part: -part.high if reverse else part.low):
        if not limit or (len(kept) == limit and (part.high < kept[-1][0] if reverse else part.low > kept[-1][0])):
            break
        opened = part.open()
        if opened is None:
            continue
        if not opened.in_order:
            return None
        kept += [(event.timestamp, _order(part), event) for event in islice(opened.events(), limit)]
        if len(kept) >= limit:
            kept.sort(key=_place, reverse=reverse)
            del kept[limit:]
    kept.sort(key=_place, reverse=reverse)
    return iter([event for _, _, event in kept])


_place: Callable[[tuple[int, tuple[int, int, int], Event]], tuple[int, tuple[int, int, int]]] = itemgetter(0, 1)
