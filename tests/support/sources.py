"""The source code of both packages, read once per process."""

from __future__ import annotations

import ast
import functools
import gc
from pathlib import Path


@functools.cache
def tree_of(module: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    collecting = gc.isenabled()
    gc.disable()  # garbage collection among all nodes takes three times as long as parsing
    try:
        return ast.parse(module.read_text("utf-8"))
    finally:
        if collecting:
            gc.enable()
