"""Return freed memory to the system: allocators do so late, and some never."""

from __future__ import annotations

import ctypes
import sys

import pyarrow as pa

_trim = None
if sys.platform == "linux":
    _trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries keep less freed memory


def release_unused() -> None:
    """Return as much freed memory to the system as Arrow's allocator and the C library can. Takes some milliseconds."""
    pa.default_memory_pool().release_unused()
    if _trim is not None:
        _trim(0)
