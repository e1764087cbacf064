"""Modes of a catalog's files and directories, independent of the umask.

A new catalog is its owner's alone: files 0600, directories 0700. Whoever can read a catalog could otherwise hold its
locks as well. Everything in a catalog has the mode of its `manifest.sqlite`, as SQLite has it for what lies beside it,
so that other processes need not be told; notes and tokens that lie elsewhere are their owner's alone.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from aggregator.errors import InvalidRequestError

MANIFEST = "manifest.sqlite"
PRIVATE = 0o600
_DEPTH = 3  # of the files of a catalog below its root
_OF_A_CATALOG = (
    "catalog.facts", "writer.lock", "readers.lock", "sealing.json", "log", "segments", "staging", "quarantine",
    "reserve", "cache", "following.json",
)  # fmt: skip


def parse_mode(given: int | str) -> int:
    """The mode of files from a number, or from text in octal. Raises InvalidRequestError."""
    with contextlib.suppress(ValueError):
        mode = int(given, 8) if isinstance(given, str) else given
        if not isinstance(given, bool) and mode & 0o600 == 0o600 and not mode & ~0o666:
            return mode
    raise InvalidRequestError(
        f"file_mode must be a mode of files that their owner can read and write, not {given!r}",
        hint="0o600 (the default) is for the owner alone, 0o640 lets a group read; as text '0640'",
    )


def directory_mode(file_mode: int) -> int:
    """The mode of directories of files with that mode: who may read them may pass."""
    return file_mode | (file_mode & 0o444) >> 2


def file_mode_in(directory: Path) -> int:
    """The mode of new files in a directory: that of the catalog it belongs to, and no less than its owner needs."""
    place = os.fspath(directory)
    for _ in range(_DEPTH):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            mode = os.stat(f"{place}/{MANIFEST}").st_mode  # noqa: PTH116 - many in each opening
            return stat.S_IMODE(mode) & 0o666 | PRIVATE
        place = os.path.dirname(place) or "."  # noqa: PTH120
    return PRIVATE


def create_file(path: Path, flags: int, mode: int | None = None) -> int:
    """A descriptor of a file, which is made where it is absent. Raises OSError.

    mode: None: that of the files beside it.
    """
    mode = file_mode_in(path.parent) if mode is None else mode
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:  # the umask took some of it
            os.fchmod(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_directory(directory: Path) -> None:
    """Make a directory and those above it that are missing. Raises OSError; FileExistsError where a file is there."""
    missing = list(takewhile(lambda place: not place.is_dir(), (directory, *directory.parents)))
    for place in reversed(missing):
        mode = directory_mode(file_mode_in(place.parent))
        with contextlib.suppress(FileExistsError):  # somebody was quicker, or it is a file
            place.mkdir(mode)
            place.chmod(mode)
    if missing and not directory.is_dir():
        raise FileExistsError(str(directory))


def settle_file(path: Path) -> None:
    """Give a file that others made the mode of its catalog. Raises OSError."""
    path.chmod(file_mode_in(path.parent))


def change_modes(root: Path, file_mode: int) -> None:
    """Give everything in a catalog that mode, and let whoever may read it pass its root. Raises OSError."""
    inside = directory_mode(file_mode)
    for path in _of_catalog(root):
        with contextlib.suppress(FileNotFoundError):  # it went meanwhile
            wanted = inside if path.is_dir() else file_mode
            if stat.S_IMODE(path.stat().st_mode) != wanted:
                path.chmod(wanted)
    before = stat.S_IMODE(root.stat().st_mode)
    if before | inside != before:
        root.chmod(before | inside)


def _of_catalog(root: Path) -> Iterator[Path]:
    """The files and directories of a catalog, the manifest first: what is made from then on has its mode."""
    yield from (root / f"{MANIFEST}{end}" for end in ("", "-wal", "-shm"))
    for name in _OF_A_CATALOG:
        path = root / name
        if path.exists():
            yield path
        yield from path.rglob("*")
