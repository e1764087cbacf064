"""Choose events for a meaningful time line: busy spaces, and a busy period."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from examples.demo.event_set import EventSet

SPACES_SHOWN = 10
VALUES_SHOWN = 5  # colours that are easy to tell apart; the rest are "other"
DOTS_AT_MOST = 4_000
_STRETCHES = 100
_STRETCHES_IN_USE = 12  # a time line with events in fewer of its hundredths is mostly empty
_EVENTS_AT_LEAST = 150
OTHER = "other"
# Years 1600 to 2500. Times outside mean "never" or are mistakes, and calendar axes cannot show them.
_DRAWABLE_US = (-11_676_096_000_000_000, 16_725_225_600_000_000)


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Events of a few spaces: for each event its row (a space), its time and its colour (a value of an index)."""

    spaces: Sequence[str]
    rows: npt.NDArray[np.int64]
    timestamps_us: npt.NDArray[np.int64]
    values: Sequence[str]  # the value of each colour, most frequent first
    value_codes: npt.NDArray[np.int64]


def choose_time_line(events: EventSet) -> TimeLine:
    """Choose spaces and a period; the time line is empty if no event can be drawn."""
    table = _within(events.table, *_DRAWABLE_US)
    if table.num_rows == 0:
        nothing = np.zeros(0, dtype=np.int64)
        return TimeLine([], nothing, nothing, [""], nothing)
    table = _within(table, *_lively_stretch(_timestamps(table)))
    busiest = _most_frequent(table["space"], SPACES_SHOWN)
    table = table.filter(pc.is_in(table["space"], pa.array(busiest, table.schema.field("space").type)))
    table = table.sort_by("timestamp").take(_evenly(table.num_rows, DOTS_AT_MOST))
    spaces = table["space"].unique()  # in the order of their first events
    rows = pc.index_in(table["space"], spaces)
    values, codes = _colours(table, events.indexes)
    return TimeLine(spaces.to_pylist(), rows.to_numpy().astype(np.int64), _timestamps(table), values, codes)


def _lively_stretch(timestamps: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Narrow the period to its busiest hundredth, repeatedly, while nearly all events are in a few hundredths."""
    low, high = int(timestamps.min()), int(timestamps.max()) + 1
    while high - low > _STRETCHES:
        inside = timestamps[(timestamps >= low) & (timestamps < high)]
        counts, edges = np.histogram(inside, bins=_STRETCHES, range=(low, high))
        busiest = int(np.argmax(counts))
        if np.count_nonzero(counts) >= _STRETCHES_IN_USE or counts[busiest] < _EVENTS_AT_LEAST:
            break
        low, high = int(edges[busiest]), int(np.ceil(edges[busiest + 1]))
    return low, high


def _within(table: pa.Table, low: int, high: int) -> pa.Table:
    timestamps = _timestamps(table)
    return table.filter(pa.array((timestamps >= low) & (timestamps < high)))


def _timestamps(table: pa.Table) -> npt.NDArray[np.int64]:
    timestamps: npt.NDArray[np.int64] = table["timestamp"].cast(pa.int64()).to_numpy()
    return timestamps


def _most_frequent(column: pa.ChunkedArray, limit: int) -> list[str]:
    counts = sorted(column.value_counts().to_pylist(), key=lambda each: (-each["counts"], str(each["values"])))
    return [each["values"] for each in counts[:limit]]


def _evenly(count: int, limit: int) -> pa.Array:
    return pa.array(np.unique(np.linspace(0, count - 1, min(count, limit)).astype(np.int64)))


def _colours(table: pa.Table, indexes: Sequence[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Colour events by the first index with several values: the frequent ones, and the code of each event's value."""
    for name in indexes:
        texts = table[name].cast(pa.string())
        values = [value for value in _most_frequent(texts, VALUES_SHOWN) if value is not None]
        if len(values) > 1:
            codes = pc.fill_null(pc.index_in(texts, pa.array(values)), len(values)).to_numpy().astype(np.int64)
            return values + ([OTHER] if (codes == len(values)).any() else []), codes
    return [""], np.zeros(table.num_rows, dtype=np.int64)
