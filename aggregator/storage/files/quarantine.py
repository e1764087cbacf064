"""Quarantine for damaged files: they are kept, never read again, and counted in the catalog's size."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from aggregator.storage.files.layout import Layout, make_directory
from aggregator.storage.files.modes import create_file
from esformat.parts import sync_directory


def quarantine_file(layout: Layout, path: Path, *, keep: bool = False) -> Path:
    """Move a file into quarantine, or copy it there and `keep` the original; return the new path. Raises OSError."""
    make_directory(layout.quarantine)
    target = _free_name(layout.quarantine, path)
    if not keep:
        path.rename(target)
        sync_directory(path.parent)
    else:
        try:
            os.link(path, target)  # the file is never written again
        except OSError:  # a file system without hard links
            with path.open("rb") as old, os.fdopen(create_file(target, os.O_WRONLY), "wb") as new:
                shutil.copyfileobj(old, new)
    sync_directory(layout.quarantine)
    return target


def _free_name(directory: Path, path: Path) -> Path:
    names = (path.name if not number else f"{path.name}.{number}" for number in range(1 << 20))
    return next(directory / name for name in names if not (directory / name).exists())
