"""A space's history as events, merged by time from each segment's own fast path.

The result is the same as that of `merge` for the same sources. If a history has a handful of events in each of many
segments, `merge` would spend most of its time on work per batch.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from esformat import Event

SORTED_EVENTS = 100_000
"""A history of at most this many events is read whole and sorted; a longer one is merged as it is read."""

_time: Callable[[Event], int] = attrgetter("timestamp")


class Part(Protocol):
    """A source of events of the history: a segment, or some unsealed batches of one partition.

    min_timestamp, max_timestamp: no event is earlier or later, µs. partition, first_index, last_index: the events'
    partition and record indexes, to order ties. row_bytes: approximate size of an event.
    """

    @property
    def min_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def partition(self) -> int | None: ...
    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def row_bytes(self) -> int: ...


class Opened(NamedTuple):
    """An opened part. in_order: whether events of equal time are ordered by record index. most: maximum number of
    events. events: reads them in the direction of the query, up to its limit.
    """

    in_order: bool
    most: int
    events: Callable[[], Iterator[Event]]


P = TypeVar("P", bound=Part)
Open = Callable[[P, bool], list[Event] | Opened | None]
"""Opens a part; returns None if it has no events. If the second argument is true and they are cheap to read, returns
the events themselves, in order and in the direction of the query.
"""

_order: Callable[[Any], tuple[int, int, int]] = attrgetter("partition", "first_index", "last_index")
"""The order of parts: of events at the same time, those of the part with the smaller key come first."""


def merge_history(
    parts: Sequence[P], opened: Open[P], *, reverse: bool, limit: int | None, few: tuple[int, int] | None = None
) -> Iterator[Event] | None:
    """The events of all parts by time, then partition, then record index; `reverse` is the exact mirror.

    None if it is unclear which of two events of equal time comes first. few: maximum rows and bytes; None is returned
    if there may be more.
    """
    ordered = sorted(parts, key=_order)
    if any(a[0] == b[0] and a[2] >= b[1] for a, b in pairwise(map(_order, ordered))):
        return None
    if limit is not None:
        row_bytes = 0 if few is None else max((part.row_bytes for part in parts), default=0)
        if few is not None and (limit > few[0] or limit * row_bytes > few[1]):
            return None
        return _first_events(parts, opened, reverse, limit)
    found = []
    most = size = 0
    for part in reversed(ordered) if reverse else ordered:
        has = opened(part, most <= SORTED_EVENTS)
        if has is None:
            continue
        if isinstance(has, Opened) and not has.in_order:
            return None
        count = has.most if isinstance(has, Opened) else len(has)
        most += count
        if few is not None:
            size += part.row_bytes * count
            if most > few[0] or size > few[1]:
                return None
        found.append(has)
    read: list[Iterable[Event]] = [has.events() if isinstance(has, Opened) else has for has in found]
    if most > SORTED_EVENTS:
        return heapq.merge(*read, key=_time, reverse=reverse)
    events = list(chain.from_iterable(read))
    if len(read) > 1:
        events.sort(key=_time, reverse=reverse)  # stable in both directions: ties stay in the order of the parts
    return iter(events)


def _first_events(parts: Sequence[P], opened: Open[P], reverse: bool, limit: int) -> Iterator[Event] | None:
    """The first `limit` events in the query's direction. Parts that cannot contribute are not opened."""
    kept: list[tuple[int, tuple[int, int, int], Event]] = []
    for part in sorted(parts, key=lambda part: -part.max_timestamp if reverse else part.min_timestamp):
        last = kept[-1][0] if len(kept) == limit and limit else None
        if not limit or (last is not None and (part.max_timestamp < last if reverse else part.min_timestamp > last)):
            break
        has = opened(part, True)
        if has is None:
            continue
        if isinstance(has, Opened) and not has.in_order:
            return None
        events: Iterable[Event] = has.events() if isinstance(has, Opened) else has
        kept += [(event.timestamp, _order(part), event) for event in islice(events, limit)]
        if len(kept) >= limit:
            kept.sort(key=_place, reverse=reverse)
            del kept[limit:]
    kept.sort(key=_place, reverse=reverse)
    return iter([event for _, _, event in kept])


_place: Callable[[tuple[int, tuple[int, int, int], Event]], tuple[int, tuple[int, int, int]]] = itemgetter(0, 1)
