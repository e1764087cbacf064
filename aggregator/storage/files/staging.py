"""`staging/`: segments that other processes write, until the catalog takes them in.

Each write has a directory of its own there. Tasks that share it ask `claim` for record indexes and numbers, so that no
two attempts are given the same. `note` and `undo` see to it that a crash while segments get their names leaves none.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import struct
import time
from collections.abc import Container, Iterable
from pathlib import Path

from aggregator.storage.files.layout import Layout, make_directory, replaced
from aggregator.storage.files.modes import create_directory, create_file
from esformat.parts import sync_directory

STALE_SECONDS = 24 * 3600
"""A write that changed nothing for so long is taken for dead."""
_CLAIMS = "claims"
_CLAIMED = struct.Struct(
    "<"
    "q"  # record indexes that were given
    "q"  # numbers that were given
)
_NOTE = "adding.json"


def staging(layout: Layout) -> Path:
    """The directory; it may not be there."""
    return layout.root / "staging"


def claim(folder: Path, rows: int) -> tuple[int, int]:
    """Record indexes for so many events, and a number for their segment, both counted from the first of the write.

    Gives the first of them. Nobody else who asks in this directory, in whatever process, gets them. Raises OSError.
    """
    create_directory(folder)
    descriptor = create_file(folder / _CLAIMS, os.O_RDWR)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        stored = os.pread(descriptor, _CLAIMED.size, 0)
        indexes, numbers = _CLAIMED.unpack(stored) if len(stored) == _CLAIMED.size else (0, 0)
        os.pwrite(descriptor, _CLAIMED.pack(indexes + rows, numbers + 1), 0)
        return indexes, numbers
    finally:
        os.close(descriptor)  # which lets go of the lock


def sweep(layout: Layout, prefix: str = "") -> None:
    """Delete the directories of writes whose names begin so; with "", of those that are dead."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(staging(layout)):
            mine = entry.name.startswith(prefix) if prefix else time.time() - entry.stat().st_mtime > STALE_SECONDS
            if mine and entry.is_dir():
                shutil.rmtree(entry.path, ignore_errors=True)


def note(layout: Layout, numbers: Iterable[int]) -> None:
    """Note durably which segments are about to get their names. Raises OSError."""
    folder = staging(layout)
    make_directory(folder)
    with replaced(folder / _NOTE) as file:
        file.write(json.dumps({"segments": sorted(numbers)}).encode())


def forget_note(layout: Layout) -> None:
    """The segments are in the manifest. Durable when this returns: the note must not come back. Raises OSError."""
    (staging(layout) / _NOTE).unlink()
    sync_directory(staging(layout))


def undo(layout: Layout, named: Container[int]) -> None:
    """After a crash: delete the noted segments that the manifest does not name. Raises OSError."""
    path = staging(layout) / _NOTE
    try:
        numbers = json.loads(path.read_bytes())["segments"]
    except FileNotFoundError:
        return
    folders = set()
    for number in numbers:
        segment = layout.segment(number)
        if number not in named and segment.exists():
            segment.unlink()
            folders.add(segment.parent)
    for folder in folders:
        sync_directory(folder)
    forget_note(layout)
