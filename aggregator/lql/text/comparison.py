"""What the six operators of order do with arrays: Arrow's function for each."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

Comparison = Callable[[pa.Array, pa.Scalar], pa.BooleanArray]
ORDER = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


def comparison(op: str) -> Comparison:
    """The function for `op`. It is looked up by its name, since `pyarrow.compute` is loaded when it is used."""
    found: Comparison = getattr(pc, ORDER[op])
    return found
