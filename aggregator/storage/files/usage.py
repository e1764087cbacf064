"""Disk usage of a catalog by purpose, measured from its files."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aggregator.storage.files.layout import Layout, manifest_files


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes on disk.

    segments: live ones. waiting: retired ones that a scan still reads. manifest: including its backup. reserve: kept
    for a full disk. cache: data read from the store. free: available on the disk.
    """

    segments: int
    waiting: int
    log: int
    manifest: int
    quarantine: int
    reserve: int
    cache: int
    free: int

    @property
    def total(self) -> int:
        """Everything but free space."""
        return self.segments + self.waiting + self.other

    @property
    def other(self) -> int:
        """Everything but segments."""
        return self.log + self.manifest + self.quarantine + self.reserve + self.cache


def measure(layout: Layout, *, segments: int, waiting: int) -> Usage:
    """Measure the usage. The sizes of segments are passed in, because the manifest knows them."""
    return Usage(
        segments,
        waiting,
        sum(sizes_in(layout.log)),
        sum(_manifest_sizes(layout)),
        sum(sizes_in(layout.quarantine)),
        sum(sizes_in(layout.reserve)),
        sum(sizes_below(layout.cache)),
        free_bytes(layout.root),
    )


def free_bytes(directory: Path) -> int:
    """Free bytes on the disk of a directory."""
    return shutil.disk_usage(directory).free


def sizes_below(directory: Path) -> Iterator[int]:
    """Bytes of each file in the subfolders of a directory, which may be absent."""
    with contextlib.suppress(FileNotFoundError):
        for folder in os.scandir(directory):
            if folder.is_dir():
                yield from sizes_in(Path(folder.path))


def _manifest_sizes(layout: Layout) -> Iterator[int]:
    for path in (*manifest_files(layout.manifest), layout.facts):
        with contextlib.suppress(FileNotFoundError):
            yield path.stat().st_size


def sizes_in(directory: Path) -> Iterator[int]:
    """Bytes of each file in a directory, which may be absent."""
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return
    for entry in entries:
        with contextlib.suppress(FileNotFoundError):
            yield entry.stat().st_size
