"""The Arrow function for each of the six ordering operators."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

Comparison = Callable[[pa.Array, pa.Scalar], pa.BooleanArray]
ORDER = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


def comparison(op: str) -> Comparison:
    """The function for `op`. Looked up by name, because `pyarrow.compute` is loaded on first use."""
    found: Comparison = getattr(pc, ORDER[op])
    return found
