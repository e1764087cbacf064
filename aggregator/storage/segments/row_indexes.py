"""`RowIndexes`: find the rows of a segment by record index."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


NEAR_ROWS = 1024
"""Limit for the rows that a page may read in excess: about two frames of 64 KiB of short records."""


def rows_near(
    rows: int, min_ahead: int | None, max_ahead: int | None, first: int, end: int | None
) -> tuple[int, int] | None:
    """Rows [low, last) of a segment that include all with record indexes [first, end), and few others; None: unknown.

    min_ahead, max_ahead: bounds of the difference between a record index and its row number.
    """
    if min_ahead is None or max_ahead is None or max_ahead - min_ahead > NEAR_ROWS:
        return None
    low = min(max(0, first - max_ahead), rows)
    return low, rows if end is None else min(max(low, end - min_ahead), rows)


class RowIndexes:
    """The record index of each row of a segment, in file order.

    Stored as the difference from the row's number, which takes no memory if the events are stored in append order.
    """

    def __init__(self, parts: Iterable[I64], rows: int, first_index: int, last_index: int) -> None:
        """parts: the record indexes of all `rows` rows, in batches; they are between `first_index` and `last_index`."""
        self._rows, self._first = rows, first_index
        small = last_index - first_index < 1 << 31 and rows < 1 << 31
        ahead: npt.NDArray[np.int32] | I64 = np.empty(rows, np.int32) if small else np.empty(rows, np.int64)
        at = 0
        for part in parts:
            ahead[at : at + len(part)] = part - np.arange(first_index + at, first_index + at + len(part))
            at += len(part)
        self._low, self._high = int(ahead.min(initial=0)), int(ahead.max(initial=0))
        self._ahead = ahead if self._low < self._high else None

    @property
    def size_bytes(self) -> int:
        """Memory used."""
        return 0 if self._ahead is None else self._ahead.nbytes

    def rows(self, first: int, end: int | None) -> I64:
        """The rows, ascending, with record indexes [first, end). Examines only nearby rows."""
        first -= self._first
        begin = min(max(0, first - self._high), self._rows)
        last = self._rows if end is None else min(max(begin, end - self._first - self._low), self._rows)
        near = np.arange(begin, last)
        if self._ahead is None:
            return near
        indexes: I64 = near + self._ahead[begin:last]
        wanted = indexes >= first
        chosen: I64 = near[wanted if end is None else wanted & (indexes < end - self._first)]
        return chosen
