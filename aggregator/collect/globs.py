"""Expand globs like Python's `glob`, except that `**` does not follow links in a circle."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress


def paths_of(pattern: str) -> Iterator[str]:
    """Yield matching files and folders. Hidden ones match only patterns with a dot; unreadable folders are empty."""
    parts = pattern.split("/")
    if "**" not in parts:
        yield from glob.iglob(pattern)  # noqa: PTH207 - Path has no absolute patterns
        return
    at = parts.index("**")
    before, after = "/".join(parts[:at]) or "/" * at, "/".join(parts[at + 1 :] or "*")
    for start in glob.iglob(before) if before else [""]:  # noqa: PTH207 - as above
        for folder in _folders(start, frozenset()):
            yield from paths_of(os.path.join(glob.escape(folder), after))  # noqa: PTH118 - "" stays


def real_paths(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each path with the one that it has without symbolic links. Each folder is resolved once."""
    folders: dict[str, str] = {}
    for path in paths:
        folder, name = os.path.split(path)
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        real = os.path.join(folders[folder], name)  # noqa: PTH118
        yield path, os.path.realpath(real) if os.path.islink(real) else real  # noqa: PTH114


def _folders(start: str, around: frozenset[tuple[int, int]]) -> Iterator[str]:
    """Yield a folder and the visible ones below it, following links. around: device and inode of the folders above."""
    with suppress(OSError):
        status = os.stat(start or ".")  # noqa: PTH116 - of many
        own = status.st_dev, status.st_ino
        if own in around:
            return
        yield start
        with os.scandir(start or ".") as entries:
            inner = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
        for name in inner:
            yield from _folders(os.path.join(start, name), around | {own})  # noqa: PTH118 - "" stays
