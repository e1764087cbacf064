"""`staging/`: segments that other processes write, until the catalog adopts them.

Each write has its own directory there. Tasks that share it call `claim` for record indexes and segment numbers, so that
no two attempts get the same ones. `note` and `undo` ensure that a crash while segments are renamed leaves none behind.
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
"""A write that changed nothing for this long counts as dead."""
_CLAIMS = "claims"
_CLAIMED = struct.Struct(
    "<"
    "q"  # number of record indexes claimed
    "q"  # number of segment numbers claimed
)
_NOTE = "adding.json"


def staging(layout: Layout) -> Path:
    """The staging directory; it may not exist."""
    return layout.root / "staging"


def claim(folder: Path, rows: int) -> tuple[int, int]:
    """Claim record indexes for `rows` events, and a number for their segment, both counted from the start of the write.

    Returns the first index and the number. No other caller with this directory, in any process, gets the same. Raises
    OSError.
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
        os.close(descriptor)  # releases the lock


def sweep(layout: Layout, prefix: str = "") -> None:
    """Delete the directories of writes whose names begin with `prefix`; with "", those of dead writes."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(staging(layout)):
            mine = entry.name.startswith(prefix) if prefix else time.time() - entry.stat().st_mtime > STALE_SECONDS
            if mine and entry.is_dir():
                shutil.rmtree(entry.path, ignore_errors=True)


def note(layout: Layout, numbers: Iterable[int]) -> None:
    """Record durably which segments are about to be renamed into place. Raises OSError."""
    folder = staging(layout)
    make_directory(folder)
    with replaced(folder / _NOTE) as file:
        file.write(json.dumps({"segments": sorted(numbers)}).encode())


def forget_note(layout: Layout) -> None:
    """Delete the note, durably, once the manifest contains the segments. Raises OSError."""
    (staging(layout) / _NOTE).unlink()
    sync_directory(staging(layout))


def undo(layout: Layout, named: Container[int]) -> None:
    """After a crash: delete the noted segments that are not in the manifest. Raises OSError."""
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
