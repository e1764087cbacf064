"""Hidden events, of erased spaces and truncated streams, until they are gone from disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import esformat
from aggregator.base.merge import numbers
from aggregator.model import LAST, RECORD_INDEX, Cut, SegmentInfo

Tombstones = Mapping[tuple[int, bytes], tuple[Cut, ...]]
"""(partition, space) -> the cuts that hide its events."""
Hidden = Mapping[bytes, tuple[Cut, ...]]
"""space -> the cuts that hide its events in one partition."""
FEW_SPACES = 32
"""Up to this many spaces of a segment are searched one by one; more are searched in one pass."""
Bools = npt.NDArray[np.bool_]


def hidden_in(tombstones: Tombstones, partition: int) -> dict[bytes, tuple[Cut, ...]]:
    """The hidden spaces of a partition."""
    return {space: cuts for (number, space), cuts in tombstones.items() if number == partition}


def ends_of(hidden: Hidden) -> dict[bytes, int]:
    """The record index before which events of each space may be hidden."""
    return {space: max(cut.end_index for cut in cuts) for space, cuts in hidden.items()}


def erased_spaces(tombstones: Tombstones) -> set[bytes]:
    """Spaces that were erased, not only truncated."""
    return {space for (_, space), cuts in tombstones.items() if any(cut.erases for cut in cuts)}


def without_hidden(table: pa.Table | pa.RecordBatch, hidden: Hidden) -> pa.Table | pa.RecordBatch:
    """The visible events of a table or batch with the columns `space`, `timestamp` and `record_index`."""
    mask = hidden_rows(table, hidden)
    return table if mask is None else table.filter(pa.array(~mask))


def hidden_rows(table: pa.Table | pa.RecordBatch, hidden: Hidden) -> Bools | None:
    """Which events of such a table are hidden; None if no row's space has hidden events."""
    if not hidden or not len(table):
        return None
    spaces = table.column("space")
    places = pc.index_in(spaces, pa.array(list(hidden), pa.binary()).cast(spaces.type))
    if places.null_count == len(places):
        return None
    codes = np.asarray(pc.fill_null(places, len(hidden)).to_numpy())
    times, indexes = numbers(table, "timestamp"), numbers(table, RECORD_INDEX)
    mask = np.zeros(len(table), np.bool_)
    for depth in range(max(map(len, hidden.values()))):
        layer = [cuts[depth] if depth < len(cuts) else _NOTHING for cuts in hidden.values()] + [_NOTHING]
        ends, before, ties = (
            np.array([getattr(cut, name) for cut in layer], np.int64)[codes]
            for name in ("end_index", "time_us", "tie_index")
        )
        mask |= (indexes < ends) & ((times < before) | ((times == before) & (indexes < ties)))
    return mask


_NOTHING = Cut(-1, -LAST, -1)


def count_hidden(segment: esformat.Segment, info: SegmentInfo, hidden: Hidden) -> dict[bytes, int]:
    """The number of hidden events of each space in a segment of the partition; spaces with none are left out.

    Raises OSError, esformat.CorruptSegmentError.
    """
    reached = {space: cuts for space, cuts in hidden.items() if _reaches(info, space, cuts)}
    if len(reached) <= FEW_SPACES:
        found = {space: _hidden_of(segment, info, space, cuts) for space, cuts in reached.items()}
    else:
        found = dict.fromkeys(reached, 0)
        for batch in segment.scan(columns=["space", "timestamp", RECORD_INDEX]).batches():
            table = pa.Table.from_batches([batch])
            mask = hidden_rows(table, reached)
            if mask is not None:
                for key, count in _counts(table.column("space").filter(pa.array(mask))):
                    found[key] += count
    return {space: count for space, count in found.items() if count}


def _counts(spaces: pa.ChunkedArray) -> Iterable[tuple[bytes, int]]:
    for item in pc.value_counts(spaces.cast(pa.binary())).to_pylist():
        yield item["values"], item["counts"]


def _reaches(info: SegmentInfo, space: bytes, cuts: Iterable[Cut]) -> bool:
    if not info.min_space <= space <= info.max_space:
        return False
    return any(info.first_index < cut.end_index and info.min_timestamp <= cut.time_us for cut in cuts)


def _hidden_of(segment: esformat.Segment, info: SegmentInfo, space: bytes, cuts: tuple[Cut, ...]) -> int:
    found = segment.find(space)
    if found is None:
        return 0
    if any(info.last_index < cut.end_index and (cut.erases or info.max_timestamp < cut.time_us) for cut in cuts):
        return found.num_events
    last = max(cut.time_us for cut in cuts)
    scan = found.scan(columns=["space", "timestamp", RECORD_INDEX], end=None if last == LAST else last + 1)
    mask = hidden_rows(scan.to_table(), {space: cuts})
    return 0 if mask is None else int(mask.sum())
