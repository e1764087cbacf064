"""Payloads that nothing makes smaller, all at once: NumPy takes longer for a call than for a thousand bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def noise(random: np.random.Generator, count: int, size: int) -> pa.Array:
    """So many payloads of so many bytes."""
    held = pa.py_buffer(random.bytes(count * size))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), count, [None, held]).cast(pa.binary())
