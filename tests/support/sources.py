"""The sources of both packages, read once by each process."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def tree_of(module: Path) -> ast.Module:
    """What stands in a file of Python."""
    return ast.parse(module.read_text("utf-8"))
