"""Read events from the files of the running Python: one per file, at its time of modification.

They replace the git history: every machine that runs the demo has these files.
"""

from __future__ import annotations

import json
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from examples.demo.event_set import EventSet

INDEXES = ("suffix", "size")
_SIZES = ((1_000, "under 1 kB"), (10_000, "1 to 10 kB"), (100_000, "10 to 100 kB"))
_SKIPPED = {"__pycache__"}


def read_python_files() -> EventSet:
    """Read the files of the standard library and of the installed packages, each at its time of modification."""
    paths = sysconfig.get_paths()
    packages, library = Path(paths["purelib"]), Path(paths["stdlib"])
    rows = [*_rows(library, "stdlib"), *_rows(packages, "site-packages")]
    return EventSet.from_rows("python-files", "the files of this Python, by time of modification", rows, INDEXES)


def _rows(root: Path, label: str) -> Iterator[dict[str, Any]]:
    for folder, folders, names in os.walk(root):
        # The library's folder may contain another site-packages, which is not part of the library.
        folders[:] = sorted(set(folders) - _SKIPPED - {"site-packages"})
        for name in sorted(names):
            path = Path(folder, name)
            yield _row(path, path.relative_to(root), label)


def _row(path: Path, relative: Path, label: str) -> dict[str, Any]:
    status = path.lstat()
    package = relative.parts[0] if len(relative.parts) > 1 else "(single files)"
    return {
        "space": _text(f"{label}/{package}"),
        "grouping": _text("/".join(relative.parts[1:-1])),
        "timestamp": status.st_mtime_ns // 1_000,
        "data": json.dumps({"file": _text(relative.as_posix()), "bytes": status.st_size}).encode(),
        "suffix": _text(path.suffix) or None,
        "size": next((label for limit, label in _SIZES if status.st_size < limit), "100 kB and more"),
    }


def _text(name: str) -> str:
    """Make a file name valid Unicode: others decode to lone surrogates, which text keys cannot contain."""
    return os.fsencode(name).decode("utf-8", "replace")
