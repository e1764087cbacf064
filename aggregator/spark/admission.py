"""Decide how many of the available events a micro-batch reads. Record indexes are loaded only if they have gaps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Span:
    """Some events of a partition: `rows` events with record indexes in [first, end). `load` returns the exact ones."""

    first: int
    end: int
    rows: int
    size_bytes: int
    load: Callable[[], I64] = field(compare=False, repr=False)


def admit(
    available: Mapping[str, Sequence[Span]],
    begin: Mapping[str, int],
    ends: Mapping[str, int],
    max_rows: int | None,
    max_bytes: int | None,
) -> dict[str, int]:
    """Choose the record index up to which to read each partition, starting from `begin` and not beyond `ends`.

    Admits at most `max_rows` events, and about `max_bytes` stored bytes, but at least one event. Partitions share the
    limits evenly; a share that one does not use goes to those that have more.
    """
    rows = math.inf if max_rows is None else float(max_rows)
    size = math.inf if max_bytes is None else float(max_bytes)
    chosen = dict(ends)
    waiting = {
        name: [span for span in available.get(name, ()) if span.end > begin.get(name, 0) and span.first < end]
        for name, end in ends.items()
        if end > begin.get(name, 0)
    }
    order = sorted(waiting, key=lambda name: sum(span.rows for span in waiting[name]))
    nothing_yet = True
    for place, name in enumerate(order):
        others = len(order) - place
        share = math.ceil(rows / others) if rows < math.inf else rows
        least = 1 if nothing_yet else 0
        cut = _cut(waiting[name], begin.get(name, 0), ends[name], share, size / others, least)
        chosen[name], taken, taken_bytes = cut
        rows, size = rows - taken, size - taken_bytes
        nothing_yet = nothing_yet and not taken
    return chosen


def _cut(
    spans: Sequence[Span], begin: int, end: int, max_rows: float, max_bytes: float, least: int
) -> tuple[int, int, float]:
    """The end of the events from `begin` on that fit the limits, their number, and about how many bytes they have."""
    taken, size = 0, 0.0
    for group in _overlapping(spans):
        rows = sum(span.rows for span in group)
        each = max(1.0, sum(span.size_bytes for span in group) / max(1, rows))
        room = int(max(least - taken, min(max_rows - taken, (max_bytes - size) / each, rows)))
        span = group[0]
        if len(group) == 1 and span.rows == span.end - span.first:
            first = max(span.first, begin)
            count = min(span.end, end) - first
            stop = first + room
        else:
            found = np.sort(np.concatenate([span.load() for span in group]))
            found = found[(found >= begin) & (found < end)]
            count = len(found)
            stop = int(found[room]) if room < count else end
        if count > room:
            return stop, taken + room, size + room * each
        taken, size = taken + count, size + count * each
    return end, taken, size


def uncovered(begin: int, end: int, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges of [begin, end) that none of the half-open spans covers, in order."""
    gone: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if first >= end:
            break
        if first > begin:
            gone.append((begin, first))
        begin = max(begin, last)
    return [*gone, (begin, end)] if begin < end else gone


def _overlapping(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield the spans in order, in groups whose ranges of record indexes overlap."""
    group: list[Span] = []
    end = 0
    for span in sorted(spans, key=lambda span: span.first):
        if group and span.first >= end:
            yield group
            group = []
        group.append(span)
        end = max(end, span.end) if len(group) > 1 else span.end
    if group:
        yield group
