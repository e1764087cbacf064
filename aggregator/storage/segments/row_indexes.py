"""`RowIndexes`: the rows of a segment that have given record indexes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


NEAR_ROWS = 1024
"""By so many rows at most a page may read more than it gives: about two frames of 64 KiB of short records."""


def rows_near(
    rows: int, min_ahead: int | None, max_ahead: int | None, first: int, end: int | None
) -> tuple[int, int] | None:
    """Rows [low, last) of a segment that hold all with record indexes [first, end), and few others; None: not known.

    min_ahead, max_ahead: how far record indexes of the segment are ahead of the numbers of their rows.
    """
    if min_ahead is None or max_ahead is None or max_ahead - min_ahead > NEAR_ROWS:
        return None
    low = min(max(0, first - max_ahead), rows)
    return low, rows if end is None else min(max(low, end - min_ahead), rows)


class RowIndexes:
    """The record index of each row of a segment, in the order of the file.

    Kept as how far each is ahead of the row's number: nothing where the events lie as they were appended.
    """

    def __init__(self, parts: Iterable[I64], rows: int, first_index: int, last_index: int) -> None:
        """parts: the record indexes of all `rows` rows, some at a time; they lie between the first and the last one."""
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
        """Of memory."""
        return 0 if self._ahead is None else self._ahead.nbytes

    def rows(self, first: int, end: int | None) -> I64:
        """The rows, ascending, that have record indexes [first, end). Looks only at rows that are near enough."""
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
