"""`AdaptiveSlices`: evaluate a batch in slices small enough to cancel quickly."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from aggregator.base.allowance import check

_FIRST_BYTES = 16 << 10  # the slowest regular expression takes 0.3 s for this many
_LARGEST_BYTES = 1 << 30
_QUICK_S, _SLOW_S = 0.005, 0.05  # target time of a slice: longer than its overhead, but too short to notice


class AdaptiveSlices:
    """Adapts the size of slices to the time that the last ones took. Threads may share one: the latest update wins."""

    def __init__(self) -> None:
        self._bytes = _FIRST_BYTES

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in slices, at least one. The time until the next one is requested counts as the work on a slice.

        Raises the errors of `Allowance.check`, between slices.
        """
        row_bytes = sum(map(_value_bytes, batch.columns)) or 1.0
        begin = 0
        while not begin or begin < batch.num_rows:
            check()
            rows = max(1, int(self._bytes / row_bytes))
            began = time.perf_counter()
            part = batch.slice(begin, rows)
            yield part
            begin += rows
            self._learn(time.perf_counter() - began, full=part.num_rows == rows)

    def _learn(self, took: float, *, full: bool) -> None:
        if took > _SLOW_S:
            self._bytes = max(1, int(self._bytes * _QUICK_S / took))
        elif took < _QUICK_S and full:
            self._bytes = min(2 * self._bytes, _LARGEST_BYTES)


def _value_bytes(column: pa.Array) -> float:
    """The approximate average size of a value in bytes; for a dictionary, of the decoded value."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary
    return float(column.nbytes / max(1, len(column)))
