"""Gives memory that was freed back to the system, which allocators put off for long, and some for ever."""

from __future__ import annotations

import ctypes
import sys

import pyarrow as pa

_trim = None
if sys.platform == "linux":
    _trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, others do not keep as much


def release_unused() -> None:
    """Let Arrow's allocator and the C library's give back what they can. Takes some milliseconds."""
    pa.default_memory_pool().release_unused()
    if _trim is not None:
        _trim(0)
