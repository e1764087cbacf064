"""Erased spaces: events of a partition that are hidden below a record index."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.merge import numbers
from aggregator.model import RECORD_INDEX

Tombstones = Mapping[tuple[int, bytes], int]
"""(partition, space) -> record index below which its events are erased."""


def hidden_in(tombstones: Tombstones, partition: int) -> dict[bytes, int]:
    """The erased spaces of a partition."""
    return {space: end for (number, space), end in tombstones.items() if number == partition}


def without_hidden(table: pa.Table, hidden: Mapping[bytes, int]) -> pa.Table:
    """The events of a table with the columns `space` and `record_index` that are not erased."""
    if not hidden or not len(table):
        return table
    spaces = table.column("space")
    erased = pa.array(list(hidden), pa.binary()).cast(spaces.type)
    places = pc.index_in(spaces, erased)
    if places.null_count == len(places):
        return table
    ends = np.array([*hidden.values(), -1], np.int64)
    end_of_row = ends[np.asarray(pc.fill_null(places, len(hidden)).to_numpy())]
    return table.filter(pa.array(numbers(table, RECORD_INDEX) >= end_of_row))
