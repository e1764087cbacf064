"""The files that a crash would leave of a catalog."""

from __future__ import annotations

import shutil
from pathlib import Path


def crash_image(root: Path, to: Path) -> Path:
    """Copy the files of an open catalog: what a crash at this moment would leave.

    Files that are still written under a temporary name are left out, because they may disappear before they are copied.
    """
    return Path(shutil.copytree(root, to, ignore=shutil.ignore_patterns("*.partial"), dirs_exist_ok=True))
