"""Pieces of a buffer as an Arrow array, without copying the buffer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from esformat.customerio.varint import I64


def pieces(data: bytes, starts: I64, ends: I64) -> pa.Array:
    """Return an array whose element 2i is piece i, [start, end). Pieces must ascend and not overlap.

    The odd elements are the gaps between pieces. Nothing is copied; `take` the even ones needed.
    """
    wide = len(data) > np.iinfo(np.int32).max
    offsets = np.empty(2 * len(starts) + 1, dtype=np.int64 if wide else np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    offsets[-1] = ends[-1] if len(ends) else 0
    kind = pa.large_binary() if wide else pa.binary()
    return pa.Array.from_buffers(kind, 2 * len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def take_pieces(array: pa.Array, numbers: I64) -> pa.Array:
    """Return the pieces with these numbers as a new binary array. Their total size must be below 2 GiB."""
    return array.take(pa.array(2 * numbers)).cast(pa.binary())
