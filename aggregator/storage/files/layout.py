"""The one module that moves files about: where things lie under a catalog's root, and how they come and go."""

from __future__ import annotations

import os
from pathlib import Path

from aggregator.storage.files.modes import MANIFEST, create_directory

SEGMENTS_IN_A_FOLDER = 1000


def sync_directory(directory: Path) -> None:
    """Make names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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

    def segment(self, number: int) -> Path:
        """Where a segment lies."""
        return self.root / segment_name(number)


def manifest_files(manifest: Path) -> list[Path]:
    """The manifest and what SQLite keeps beside it."""
    return [manifest.with_name(manifest.name + end) for end in ("", "-wal", "-shm")]


def segment_name(number: int) -> str:
    """The path of a segment below the root."""
    return f"segments/{number // SEGMENTS_IN_A_FOLDER:06d}/{number:012d}.esdb"


def segment_number(path: Path) -> int | None:
    """The number of a segment file; None for other files."""
    return int(path.stem) if path.suffix == ".esdb" and path.stem.isdecimal() else None


def segment_files(layout: Layout) -> dict[int, Path]:
    """Segment files that are there, by number."""
    found = {}
    for path in layout.segments.glob("*/*.esdb"):
        number = segment_number(path)
        if number is not None:
            found[number] = path
    return found
