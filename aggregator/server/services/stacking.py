"""Counts of records by time and by the values of a name, for stacked bars. No HTTP."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from aggregator import Catalog, InvalidRequestError
from aggregator.base.histogram import Histogram
from aggregator.lql import parse_statement, to_text
from aggregator.lql.parse.tree import Every, Operand, Select
from aggregator.server.services.narrowing import Between, without_place

SERIES = 6
"""Number of values with bars of their own: more colours are hard to distinguish."""


@dataclass(frozen=True, slots=True)
class Stacked:
    """A histogram, and for each of the most frequent values its counts: (value, counts). Null counts as a value."""

    whole: Histogram
    series: list[tuple[Any, list[int]]]


def operand_of(text: str) -> Operand:
    """Parse the name of a tag, field, column, path, or a call of them. Raises LqlError, InvalidRequestError."""
    found = parse_statement(f"SELECT COUNT GROUP BY {text}")
    keys = found.group_by if isinstance(found, Select) else ()
    if len(keys) != 1 or isinstance(keys[0], Every) or found != Select(count=True, group_by=keys):
        raise InvalidRequestError(f"{text[:40]!r} is not a single name", hint="such as level, or msg.user.id")
    return keys[0]


def stacked(catalog: Catalog, select: Select, operand: Operand, within: Between, whole: Histogram) -> Stacked:
    """Count the records of `whole` by value, over the same bars. Records that arrived since then are included."""
    if not whole.counts:
        return Stacked(whole, [])
    keys = (operand, Every(whole.width_us))
    grouped = Select(count=True, source=select.source, range=select.range, where=select.where, group_by=keys)
    with without_place():
        found = catalog.query(to_text(grouped), start=within[0], end=within[1])
    assert isinstance(found, pa.Table)
    values, times, counts = (found.column(place) for place in range(3))
    places = (times.cast(pa.int64()).to_numpy() - whole.start_us) // whole.width_us
    names = [value if value is None or isinstance(value, bool | int) else str(value) for value in values.to_pylist()]
    found_rows = zip(names, places.tolist(), counts.to_pylist(), strict=True)
    rows = [row for row in found_rows if 0 <= row[1] < len(whole.counts)]
    events: Counter[Any] = Counter()
    for name, _, count in rows:
        events[name] += count
    sums = np.zeros(len(whole.counts), np.int64)
    series = {name: np.zeros_like(sums) for name, _ in events.most_common(SERIES)}  # none for the rest
    for name, place, count in rows:
        sums[place] += count
        if name in series:
            series[name][place] += count
    return Stacked(
        replace(whole, counts=tuple(sums.tolist())), [(name, counted.tolist()) for name, counted in series.items()]
    )
