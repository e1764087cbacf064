"""Map numbers of an original's rows or data blocks to the new segment, as ranges of numbers that stay together."""

from __future__ import annotations

import tempfile
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]

SPILL_RANGES = 1 << 20
"""Maximum number of ranges (24 MiB) kept in memory; more go to a temporary file."""
_FIELDS = 3  # of a range: first old number, first new number, count


class NumberMap:
    """Maps old numbers to new ones. Add them in ascending order with `add` and `add_range`, then look up with `find`.

    Numbers that were never added are gone. Memory is bounded: the many ranges of a merge of interleaved originals, at
    worst one for each row, go to a temporary file.
    """

    def __init__(self) -> None:
        self._open: tuple[int, int, int] | None = None
        self._held: list[I64] = []
        self._held_count = 0
        self._file: BinaryIO | None = None
        self._ranges: I64 | None = None
        self.count = 0
        """How many numbers were added."""

    def add_range(self, old: int, new: int, count: int) -> None:
        """Map old numbers [old, old + count) to [new, new + count)."""
        self.count += count
        if self._open is not None:
            first, to, length = self._open
            if first + length == old and to + length == new:
                self._open = first, to, length + count
                return
            self._hold(np.array([self._open], dtype=np.int64))
        self._open = old, new, count

    def add(self, old: I64, new: I64) -> None:
        """Map single numbers, both arrays ascending."""
        if not len(old):
            return
        breaks = ((np.diff(old) != 1) | (np.diff(new) != 1)).nonzero()[0] + 1
        starts = np.append(0, breaks)
        counts = np.diff(np.append(starts, len(old)))
        if len(starts) <= 2:
            for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
                self.add_range(int(old[start]), int(new[start]), count)
            return
        self.add_range(int(old[0]), int(new[0]), int(counts[0]))
        assert self._open is not None
        self._hold(np.array([self._open], dtype=np.int64))
        self._hold(np.stack([old[starts[1:-1]], new[starts[1:-1]], counts[1:-1]], axis=1))
        self._open = int(old[starts[-1]]), int(new[starts[-1]]), int(counts[-1])
        self.count += int(counts[1:].sum())

    def _hold(self, ranges: I64) -> None:
        self._held.append(ranges)
        self._held_count += len(ranges)
        if self._held_count >= SPILL_RANGES:
            self._file = self._file or tempfile.TemporaryFile(prefix="esformat-")  # noqa: SIM115 - closed with the object
            self._file.write(np.concatenate(self._held).tobytes())
            self._held, self._held_count = [], 0

    def close(self) -> None:
        """Close the temporary file."""
        if self._file is not None:
            self._file.close()

    def __del__(self) -> None:
        self.close()

    def _finished(self) -> I64:
        if self._ranges is None:
            if self._open is not None:
                self._hold(np.array([self._open], dtype=np.int64))
                self._open = None
            held = np.concatenate([np.zeros((0, _FIELDS), np.int64), *self._held])
            if self._file is None:
                self._ranges = held
            else:
                self._file.write(held.tobytes())
                self._file.flush()
                self._ranges = np.memmap(self._file, np.int64, "r").reshape(-1, _FIELDS)
                self.close()  # the mapping stays
            self._held = []
        return self._ranges

    def ranges(self) -> I64:
        """All ranges, ascending: first old number, first new number and count of each."""
        return self._finished()

    def find(self, numbers: I64) -> I64:
        """The new number of each; -1 if it is gone."""
        ranges = self._finished()
        if not len(ranges):
            return np.full(len(numbers), -1, dtype=np.int64)
        place = np.searchsorted(ranges[:, 0], numbers, side="right") - 1
        chosen = np.asarray(ranges[np.maximum(place, 0)])
        inside = numbers - chosen[:, 0]
        known = (place >= 0) & (inside < chosen[:, 2])
        return np.where(known, chosen[:, 1] + inside, -1)

    def missing(self, total: int) -> I64:
        """The old numbers in [0, total) that are gone, ascending."""
        known = np.zeros(total, dtype=np.bool_)
        for first, _, count in self._finished().tolist():
            known[first : first + count] = True
        return np.nonzero(~known)[0]
