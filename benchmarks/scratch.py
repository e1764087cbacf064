"""Files that a run builds once and later runs find again, under names that say all that they depend on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from benchmarks.contenders.protocol import Contender


def empty(directory: Path) -> Path:
    """Make the directory anew, without anything in it."""
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
    """Bring every file below a directory, and the directories themselves, to disk."""
    for path in (*files(directory), *(p for p in directory.rglob("*") if p.is_dir()), directory):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def built(contender: Contender, layout: str, events: int, data: str, table: Callable[[], pa.Table], root: Path) -> Path:
    """The directory that holds what the contender made of the events; written first if it is not there yet.

    `data` is the fingerprint of the events, `table` makes them.
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
