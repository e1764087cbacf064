"""Arrow columns as NumPy arrays, with types for mypy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def ints(column: pa.Array) -> Ints:
    """Return a column of integers without nulls as int64."""
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.int64)


def mask(column: pa.Array) -> Mask:
    """Return a column of booleans; null becomes False."""
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)
