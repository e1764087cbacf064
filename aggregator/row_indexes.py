"""`RowIndexes`: which rows of a segment have which record indexes. Pure values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
MOST_BETWEEN = 1 << 12
"""Rows that nobody asked for between two runs of wanted ones, which are read with them."""


class RowIndexes:
    """The record index of each row of a segment, in the order of the file."""

    def __init__(self, of_row: I64) -> None:
        self.of_row = of_row
        self.ascending = bool((of_row[1:] > of_row[:-1]).all())
        """Whether the file has its events in the order in which they were appended."""

    def runs(self, first: int, end: int | None) -> tuple[list[tuple[int, int]], int]:
        """Runs [first, last) of rows that hold all record indexes in [first, end), and how many of the rows do."""
        if self.ascending:
            low = int(np.searchsorted(self.of_row, first))
            high = len(self.of_row) if end is None else int(np.searchsorted(self.of_row, end))
            return ([(low, high)] if low < high else []), max(0, high - low)
        wanted = self.of_row >= first
        rows = np.flatnonzero(wanted if end is None else wanted & (self.of_row < end))
        if not len(rows):
            return [], 0
        breaks = np.flatnonzero(np.diff(rows) > MOST_BETWEEN)
        starts = rows[np.concatenate([[0], breaks + 1])]
        ends = rows[np.concatenate([breaks, [len(rows) - 1]])] + 1
        return list(zip(starts.tolist(), ends.tolist(), strict=True)), len(rows)
