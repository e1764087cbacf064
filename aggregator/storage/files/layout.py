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
"""How names of files end that are being written; at opening they are removed."""
SEGMENTS_IN_A_FOLDER = 1000


def partial_of(path: Path) -> Path:
    """Where a file is written before it takes its name."""
    return path.with_name(f".{path.name}{PARTIAL}")


@contextlib.contextmanager
def replaced(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Give a file to write that takes the name `path` when the block ends: whole and synced, or not at all.

    Its directory is synced, too. After an error nothing is left of it, and what had the name keeps it.
    mode: None: that of the catalog's files. Raises OSError.
    """
    partial = partial_of(path)
    partial.unlink(missing_ok=True)  # of a crash
    try:
        with (
            naming(str(path), "it stays as it was"),
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
    """Whether the file that has that name now is the one that is known."""
    try:
        found = os.stat(path)  # noqa: PTH116  asked for every group of appends: twice as quick as a method of Path
    except (FileNotFoundError, NotADirectoryError):
        return False
    return (found.st_ino, found.st_dev) == (known.st_ino, known.st_dev)


def make_directory(directory: Path) -> None:
    """A directory that is there after a crash too."""
    if not directory.is_dir():
        create_directory(directory)
        sync_directory(directory.parent)


class Layout:
    """Paths of a catalog. Nothing a user names becomes part of one."""

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
        """Where a segment lies."""
        return self.root / segment_name(number)


def manifest_files(manifest: Path) -> list[Path]:
    """The manifest and what SQLite keeps beside it."""
    return [manifest.with_name(manifest.name + end) for end in ("", "-wal", "-shm")]


def segment_name(number: int) -> str:
    """The path of a segment below the root."""
    return f"segments/{number // SEGMENTS_IN_A_FOLDER:06d}/{number:012d}.esdb"


def segment_number(name: str) -> int | None:
    """The number of a segment by the name of its file; None for other files."""
    stem, _, kind = name.rpartition(".")
    return int(stem) if kind == "esdb" and stem.isdecimal() else None


def segment_files(layout: Layout) -> dict[int, Path]:
    """Segment files that are there, by number. Raises PermissionError."""
    paths = [path for folder in entries(layout.segments) for path in entries(folder)]
    return {number: path for path in paths if (number := segment_number(path.name)) is not None}


def entries(directory: Path) -> list[Path]:
    """What lies in a directory; nothing where there is none. Raises PermissionError: `Path.glob` passes over what may
    not be read.
    """
    try:
        return list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
