"""`SpaceIndex`: which of many rows have a space, found by a mark of 16 bits of each key.

It is made in a few calls for all rows together, and costs about as much as comparing every key 16 times.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

I64 = npt.NDArray[np.int64]

_MARKS = 1 << 16
_PLACES = 16  # a byte counts by its value and its place, modulo this
_WEIGHTS = np.random.default_rng(0).integers(0, 1 << 63, _PLACES * 256, dtype=np.int64)  # any odd mixture would do
_LIST: list[int] = _WEIGHTS.tolist()
_LONGEST = 64  # bytes


class SpaceIndex:
    """Rows by space. `worth_it` says of which keys it is quicker than comparing all of them."""

    def __init__(self, spaces: pa.Array) -> None:
        """spaces: text or bytes, without nulls."""
        marks = _marks(spaces)
        self._spaces = spaces
        self._rows = np.argsort(marks, kind="stable").astype(np.int32)  # of 16 bits: a radix sort
        self._starts = np.append(0, np.cumsum(np.bincount(marks, minlength=_MARKS)))

    @staticmethod
    def worth_it(rows: int, key_bytes: int) -> bool:
        """Long keys are compared as quickly as they are marked."""
        return key_bytes <= _LONGEST * rows

    def find(self, space: pa.Scalar) -> I64:
        """Rows, ascending, of a space. space: of the type of the keys."""
        mark = _mark(space.as_buffer())
        rows = self._rows[self._starts[mark] : self._starts[mark + 1]]
        same = pc.equal(self._spaces.take(pa.array(rows)), space)
        return rows[np.asarray(same.to_numpy(zero_copy_only=False), np.bool_)].astype(np.int64)


def _mark(key: pa.Buffer) -> int:
    """The mark of one key, as `_marks` gives it."""
    weighed: int = sum(_LIST[(place % _PLACES) << 8 | byte] for place, byte in enumerate(key.to_pybytes()))
    return (weighed >> 40) % _MARKS


def _marks(keys: pa.Array) -> npt.NDArray[np.uint16]:
    """A mark of each key, the same for the same key."""
    _, places, data = keys.buffers()
    ends = np.frombuffer(places, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts, lengths = ends[:-1] - ends[0], np.diff(ends)
    content = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None else np.zeros(0, np.uint8)
    place = np.arange(len(content), dtype=np.int32)
    place -= np.repeat(starts, lengths)
    place &= _PLACES - 1
    place <<= 8
    place |= content
    weights = np.append(_WEIGHTS.take(place), 0)  # one more: a key without bytes may stand at the end
    sums = np.where(lengths > 0, np.add.reduceat(weights, starts), 0)
    return (sums.view(np.uint64) >> np.uint64(40)).astype(np.uint16)
