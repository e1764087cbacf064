"""What a crash would leave of a catalog."""

from __future__ import annotations

import shutil
from pathlib import Path


def crash_image(root: Path, to: Path) -> Path:
    """Copy the files of a catalog that is open: what a crash at this moment would leave.

    A file that is still written under another name is left out: it may be gone before it is copied.
    """
    return Path(shutil.copytree(root, to, ignore=shutil.ignore_patterns("*.partial"), dirs_exist_ok=True))
