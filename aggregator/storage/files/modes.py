"""Modes of a catalog's files and directories, independent of the umask.

A new catalog is accessible to its owner only: files 0600, directories 0700. Otherwise anyone who can read a catalog
could also hold its locks. Everything in a catalog has the mode of its `manifest.sqlite`, just as SQLite uses it for its
own side files, so other processes need no configuration. Notes and tokens stored elsewhere are always private to their
owner.
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
_DEPTH = 3  # levels of a catalog's files below its root
_OF_A_CATALOG = (
    "catalog.facts", "writer.lock", "readers.lock", "sealing.json", "log", "segments", "staging", "quarantine",
    "reserve", "cache", "following.json",
)  # fmt: skip


def parse_mode(given: int | str) -> int:
    """A file mode from a number, or from octal text. Raises InvalidRequestError."""
    with contextlib.suppress(ValueError):
        mode = int(given, 8) if isinstance(given, str) else given
        if not isinstance(given, bool) and mode & 0o600 == 0o600 and not mode & ~0o666:
            return mode
    raise InvalidRequestError(
        f"file_mode must be a file mode that lets the owner read and write, not {given!r}",
        hint="0o600 (the default) is for the owner only, 0o640 lets a group read; as text '0640'",
    )


def directory_mode(file_mode: int) -> int:
    """The mode of directories for files with that mode: whoever may read the files may enter."""
    return file_mode | (file_mode & 0o444) >> 2


def file_mode_in(directory: Path) -> int:
    """The mode of new files in a directory: that of its catalog, and at least what the owner needs."""
    place = os.fspath(directory)
    for _ in range(_DEPTH):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            mode = os.stat(f"{place}/{MANIFEST}").st_mode  # noqa: PTH116 - many in each opening
            return stat.S_IMODE(mode) & 0o666 | PRIVATE
        place = os.path.dirname(place) or "."  # noqa: PTH120
    return PRIVATE


def create_file(path: Path, flags: int, mode: int | None = None) -> int:
    """Open a file, creating it if absent; return the descriptor. Raises OSError.

    mode: None: that of the catalog that the file belongs to.
    """
    mode = file_mode_in(path.parent) if mode is None else mode
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:  # the umask removed some bits
            os.fchmod(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_directory(directory: Path) -> None:
    """Create a directory and its missing parents. Raises OSError; FileExistsError if a file is in the way."""
    missing = list(takewhile(lambda place: not place.is_dir(), (directory, *directory.parents)))
    for place in reversed(missing):
        mode = directory_mode(file_mode_in(place.parent))
        with contextlib.suppress(FileExistsError):  # another process was faster, or it is a file
            place.mkdir(mode)
            place.chmod(mode)
    if missing and not directory.is_dir():
        raise FileExistsError(str(directory))


def settle_file(path: Path) -> None:
    """Give a file created by other code the mode of its catalog. Raises OSError."""
    path.chmod(file_mode_in(path.parent))


def change_modes(root: Path, file_mode: int) -> None:
    """Set the mode of everything in a catalog, and let everyone who may read it enter its root. Raises OSError."""
    inside = directory_mode(file_mode)
    for path in _of_catalog(root):
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            wanted = inside if path.is_dir() else file_mode
            if stat.S_IMODE(path.stat().st_mode) != wanted:
                path.chmod(wanted)
    before = stat.S_IMODE(root.stat().st_mode)
    if before | inside != before:
        root.chmod(before | inside)


def is_of_a_catalog(path: str) -> bool:
    """Whether a file is one of those that a catalog consists of. path: without symbolic links."""
    parts = path.split("/")
    return any(
        (name in _OF_A_CATALOG or name.startswith(MANIFEST)) and Path("/".join((*parts[:at], MANIFEST))).is_file()
        for at, name in list(enumerate(parts))[-_DEPTH - 1 :]
    )


def _of_catalog(root: Path) -> Iterator[Path]:
    """The files and directories of a catalog, the manifest first, so that new files get the new mode from then on."""
    yield from (root / f"{MANIFEST}{end}" for end in ("", "-wal", "-shm"))
    for name in _OF_A_CATALOG:
        path = root / name
        if path.exists():
            yield path
        yield from path.rglob("*")
