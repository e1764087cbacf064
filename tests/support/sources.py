"""The sources of both packages, read once by each process."""

from __future__ import annotations

import ast
import functools
import gc
from pathlib import Path


@functools.cache
def tree_of(module: Path) -> ast.Module:
    """What stands in a file of Python."""
    collecting = gc.isenabled()
    gc.disable()  # looking for garbage among all nodes, again and again, takes three times as long as parsing
    try:
        return ast.parse(module.read_text("utf-8"))
    finally:
        if collecting:
            gc.enable()
