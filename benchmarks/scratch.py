"""Files that a run builds once and later runs reuse; their names identify everything they depend on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from benchmarks.contenders.protocol import Contender


def empty(directory: Path) -> Path:
    """Create the directory, deleting any previous contents."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def files(directory: Path) -> list[Path]:
    """Every file below a directory."""
    return [path for path in directory.rglob("*") if path.is_file()]


def size_bytes(directory: Path) -> int:
    """The bytes of every file below a directory."""
    return sum(path.stat().st_size for path in files(directory))


def sync(directory: Path) -> None:
    """Sync every file below a directory, and the directories themselves, to disk."""
    for path in (*files(directory), *(p for p in directory.rglob("*") if p.is_dir()), directory):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def built(contender: Contender, layout: str, events: int, data: str, table: Callable[[], pa.Table], root: Path) -> Path:
    """Return the directory with the events as written by the contender, writing them if they do not exist.

    `data` is the fingerprint of the events; `table` generates them.
    """
    stem = f"{contender.name}-{layout}-{events}-"
    target = root / f"{stem}{data}-{contender.fingerprint()}"
    if target.exists():
        return target
    for stale in root.glob(f"{stem}*"):
        shutil.rmtree(stale)
    partial = empty(root / f".{stem}partial")
    contender.write(table(), partial, layout)
    partial.rename(target)
    return target
