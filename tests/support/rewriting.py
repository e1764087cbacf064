"""Assertions of all tests rewritten once, where the processes of xdist would each rewrite all of them.

pytest keeps what it has rewritten, but processes that start together, in a new checkout, find nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite  # nothing public rewrites a module without importing it


def rewrite_ahead(config: pytest.Config, folder: Path) -> None:
    """Rewrite the tests in a folder of which pytest has kept nothing, in a process for each core."""
    if sys.dont_write_bytecode or not getattr(config.option, "numprocesses", None):
        return
    kept = {path: rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}" for path in folder.rglob("test_*.py")}
    new = [path for path, cached in kept.items() if rewrite._read_pyc(path, cached) is None]
    cores = os.cpu_count() or 1
    children = []
    for first in range(cores):
        child = os.fork()
        if not child:
            _rewrite({path: kept[path] for path in new[first::cores]}, config)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _rewrite(files: dict[Path, Path], config: pytest.Config) -> None:
    """In a process of its own, which ends here; what fails is done, and told of, by the processes that need it."""
    try:
        for path, cached in files.items():
            cached.parent.mkdir(exist_ok=True)
            stat, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, cached)
    finally:
        os._exit(0)
