"""Choose the records that TRUNCATE removes. Does no I/O.

Records are passed in order of time, partition and record index, with all streams merged. The oldest of each stream are
removed: everything before one position, and nothing after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
_SLACK = 0.5
"""Tolerance in bytes, because sizes are sums of fractions."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What to remove: records older than `before_us`; the oldest until a stream has at most `most_bytes`, or until all
    streams together have at most `total_bytes`; but never so many that a stream has less than `least_bytes`. None: no
    rule.
    """

    before_us: int | None = None
    most_bytes: float | None = None
    least_bytes: float = 0
    total_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Records in order: the stream's number, the size that each counts as, and its position."""

    streams: I64
    sizes: F64
    times: I64
    partitions: I64
    indexes: I64

    def where(self, mask: Bools) -> Rows:
        """The rows that the mask selects."""
        return Rows(*(getattr(self, name)[mask] for name in ("streams", "sizes", "times", "partitions", "indexes")))


class Trimming:
    """Receives the records of several streams and decides which to remove. `bytes_left`: bytes of each, initially."""

    def __init__(self, rules: Rules, bytes_left: F64) -> None:
        self._rules = rules
        self.bytes_left = bytes_left.copy()
        count = len(bytes_left)
        self.removed = np.zeros(count, np.int64)
        self.last = np.full((3, count), np.iinfo(np.int64).min)  # time, partition, index of the newest removed
        self._settled = np.zeros(count, np.bool_)
        self._total = float(bytes_left.sum())

    def take(self, rows: Rows) -> Rows:
        """Process the next records; return those to remove."""
        rows = rows.where(~self._settled[rows.streams])
        goes = self._unwanted(rows)
        if self._rules.total_bytes is not None:
            goes = self._while_too_much(rows, goes)
        self._settled[rows.streams[~goes]] = True
        gone = rows.where(goes)
        self.bytes_left -= np.bincount(gone.streams, gone.sizes, len(self.bytes_left))
        self.removed += np.bincount(gone.streams, minlength=len(self.removed))
        for place, column in zip(self.last, (gone.times, gone.partitions, gone.indexes), strict=True):
            place[gone.streams] = column  # the last value of each stream wins
        self._total -= float(gone.sizes.sum())
        return gone

    def done(self, next_us: int) -> bool:
        """Whether nothing more is removed, if the next record has that time."""
        rules = self._rules
        if self._settled.all():
            return True
        if rules.total_bytes is not None:
            return self._total <= rules.total_bytes + _SLACK
        late = rules.before_us is None or next_us >= rules.before_us
        return late and (rules.most_bytes is None or bool((self.bytes_left <= rules.most_bytes + _SLACK).all()))

    def _unwanted(self, rows: Rows) -> Bools:
        """The records that their own stream can lose: the oldest of each stream, up to the first to keep."""
        rules = self._rules
        order = np.argsort(rows.streams, kind="stable")
        streams, sizes, times = rows.streams[order], rows.sizes[order], rows.times[order]
        first = np.append(True, streams[1:] != streams[:-1])[: len(streams)]
        left = self.bytes_left[streams] - _before_in_group(sizes, first)
        goes = np.ones(len(streams), np.bool_) if not rules.least_bytes else left - sizes >= rules.least_bytes - _SLACK
        if rules.total_bytes is None:
            unwanted = np.zeros(len(streams), np.bool_)
            if rules.before_us is not None:
                unwanted |= times < rules.before_us
            if rules.most_bytes is not None:
                unwanted |= left > rules.most_bytes + _SLACK
            goes &= unwanted
        stays = (~goes).astype(np.float64)
        goes = np.asarray(_before_in_group(stays, first) + stays) == 0
        back = np.empty(len(order), np.bool_)
        back[order] = goes
        return back

    def _while_too_much(self, rows: Rows, goes: Bools) -> Bools:
        assert self._rules.total_bytes is not None
        sizes = np.where(goes, rows.sizes, 0.0)
        total = self._total - (np.cumsum(sizes) - sizes)
        return goes & (total > self._rules.total_bytes + _SLACK)


def _before_in_group(values: F64, first: Bools) -> F64:
    """For each value, the sum of the values before it in its group; `first`: where groups begin."""
    if not len(values):
        return values
    before = np.cumsum(values) - values
    starts = np.maximum.accumulate(np.where(first, np.arange(len(values)), 0))
    found: F64 = before - before[starts]
    return found
