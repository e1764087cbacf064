"""Paths under a catalog's root, and the moves and deletions of its files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from aggregator.storage.files.modes import MANIFEST, create_directory, create_file
from esformat.parts import naming, sync_directory

PARTIAL = ".partial"
"""Suffix of files being written; they are removed at opening."""
SEGMENTS_IN_A_FOLDER = 1000
OTHER_FILES = "has other files: a catalog should have a directory of its own"


def partial_of(path: Path) -> Path:
    """Where a file is written before it is renamed."""
    return path.with_name(f".{path.name}{PARTIAL}")


@contextlib.contextmanager
def replaced(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Open a file for writing that is renamed to `path` when the block ends: complete and synced, or not at all.

    Its directory is synced, too. After an error the new file is removed, and an existing file at `path` is unchanged.
    mode: None: the mode of the catalog's files. Raises OSError.
    """
    partial = partial_of(path)
    partial.unlink(missing_ok=True)  # left by a crash
    try:
        with (
            naming(str(path), "the file is unchanged"),
            os.fdopen(create_file(partial, os.O_WRONLY, mode), "wb") as file,
        ):
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def same_file(path: Path, known: os.stat_result) -> bool:
    """Whether the file at `path` now is the known one."""
    try:
        found = os.stat(path)  # noqa: PTH116  called for every group of appends: twice as fast as a method of Path
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (found.st_ino, found.st_dev) == (known.st_ino, known.st_dev)


def make_directory(directory: Path) -> None:
    """Create a directory durably, if it does not exist."""
    if not directory.is_dir():
        create_directory(directory)
        sync_directory(directory.parent)


class Layout:
    """Paths of a catalog. No name that a user chooses becomes part of one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest = root / MANIFEST
        self.facts = root / "catalog.facts"
        self.writer_lock = root / "writer.lock"
        self.reader_locks = root / "readers.lock"
        self.log = root / "log"
        self.segments = root / "segments"
        self.quarantine = root / "quarantine"
        self.reserve = root / "reserve"
        self.cache = root / "cache"
        self.following = root / "following.json"

    def segment(self, number: int) -> Path:
        """The path of a segment."""
        return self.root / segment_name(number)


def is_catalog(root: Path) -> bool:
    """Whether a directory has a catalog, or the parts of one."""
    layout = Layout(root)
    return layout.manifest.exists() or layout.log.is_dir() or layout.segments.is_dir()


def has_other_files(root: Path) -> bool:
    """Whether a directory in which a catalog would be created has files of other programs."""
    known = {path.name for path in vars(Layout(root)).values()} | {"lost+found"}  # at the root of a volume
    return not is_catalog(root) and any(path.name not in known for path in entries(root))


def manifest_files(manifest: Path) -> list[Path]:
    """The manifest and the files that SQLite keeps beside it."""
    return [manifest.with_name(manifest.name + end) for end in ("", "-wal", "-shm")]


def segment_name(number: int) -> str:
    """The path of a segment below the root."""
    return f"segments/{number // SEGMENTS_IN_A_FOLDER:06d}/{number:012d}.esdb"


def segment_number(name: str) -> int | None:
    """The number of a segment from its file name; None for other files."""
    stem, _, kind = name.rpartition(".")
    return int(stem) if kind == "esdb" and stem.isdecimal() else None


def segment_files(layout: Layout) -> dict[int, Path]:
    """The existing segment files by number. Raises PermissionError."""
    paths = [path for folder in entries(layout.segments) for path in entries(folder)]
    return {number: path for path in paths if (number := segment_number(path.name)) is not None}


def entries(directory: Path) -> list[Path]:
    """The entries of a directory; none if it does not exist.

    Raises PermissionError, unlike `Path.glob`, which skips unreadable directories.
    """
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
