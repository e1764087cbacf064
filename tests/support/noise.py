"""Incompressible payloads, made in one call: for NumPy a call takes longer than a thousand bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def noise(random: np.random.Generator, count: int, size: int) -> pa.Array:
    """`count` random payloads of `size` bytes."""
    held = pa.py_buffer(random.bytes(count * size))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), count, [None, held]).cast(pa.binary())
