"""Prove that a scan over columns really produced them, at a cost that does not depend on their form.

All timestamps are read. Of the other columns, the last value of each batch is read: an Arrow array is decoded as a
whole or not at all, and adding up lengths would cost more for views and codes than for offsets. The warm-up checks once
per scan that every value is correct.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.contenders.protocol import COLUMNS

TOUCHED = [name for name in COLUMNS if name != "timestamp"]


class Totals(NamedTuple):
    """The totals of a scan over columns."""

    rows: int
    timestamps: int  # all of them, XORed
    nulls: int


def touch(batches: Iterable[pa.RecordBatch]) -> Totals:
    """Consume the batches, reading from every column."""
    rows = timestamps = nulls = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        rows += batch.num_rows
        timestamps ^= int(np.bitwise_xor.reduce(batch.column("timestamp").cast(pa.int64()).to_numpy()))
        for name in TOUCHED:
            column = batch.column(name)
            nulls += column.null_count + (column[-1].as_py() is None)
    return Totals(rows, timestamps, nulls)
