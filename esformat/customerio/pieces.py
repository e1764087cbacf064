"""Pieces of a buffer as an Arrow array, without copying what lies between them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from esformat.customerio.varint import I64


def pieces(data: bytes, starts: I64, ends: I64) -> pa.Array:
    """An array of which element 2i is the piece [start, end) number i; pieces ascend and do not overlap.

    The odd elements are what lies between. Nothing is copied: `take` the even ones that are wanted.
    """
    wide = len(data) > np.iinfo(np.int32).max
    offsets = np.empty(2 * len(starts) + 1, dtype=np.int64 if wide else np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = ends[-1] if len(ends) else 0
    kind = pa.large_binary() if wide else pa.binary()
    return pa.Array.from_buffers(kind, 2 * len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def take_pieces(array: pa.Array, numbers: I64) -> pa.Array:
    """The pieces of those numbers, as a binary array of their own. They must be less than 2 GiB together."""
    return array.take(pa.array(2 * numbers)).cast(pa.binary())
