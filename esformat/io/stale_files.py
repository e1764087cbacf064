"""Hidden files of writers that were killed: each writer locks its own, and the next one there removes the rest.

The system lets go of a lock when its process ends, whatever ends it; a file whose lock can be had belongs to nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import secrets
from pathlib import Path
from typing import Any, BinaryIO

PARTIAL_SUFFIX = ".partial"
BUFFER_BYTES = 1 << 20
WRITTEN_TOGETHER_BYTES = 4 << 20
"""The system is told to put so many on the disk; much smaller pieces cost more than they save."""
_OWN = re.compile(r"\..*\.w[0-9a-f]{12}\.partial", re.DOTALL)


def partial_name(name: str, token: str) -> str:
    """A hidden name beside `name` that no file system finds too long; `token` tells several writers apart."""
    short = os.fsencode(name)[:128].decode("utf-8", "ignore")
    return f".{short}.{token}{PARTIAL_SUFFIX}"


def open_partial(path: Path) -> tuple[Path, BinaryIO]:
    """Create and lock the hidden file of a writer of `path`, for writing and reading. Raises OSError."""
    while True:
        partial = path.with_name(partial_name(path.name, f"w{secrets.token_hex(6)}"))
        file = io.BufferedRandom(_WrittenEarly(partial, "x+"), BUFFER_BYTES)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            _lock(file)
            if os.path.samestat(os.fstat(file.fileno()), partial.stat()):
                return partial, file
        file.close()  # another writer took it for a leftover before it was locked


class _WrittenEarly(io.FileIO):
    """A file that the system begins to put on the disk while more is written, so that the sync at its end finds little
    left to wait for.
    """

    _waiting = 0

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        self._waiting += written
        if self._waiting >= WRITTEN_TOGETHER_BYTES:
            if hasattr(os, "posix_fadvise"):  # macOS has none
                # Linux begins to write what was changed, and drops what is on the disk already: nothing of this.
                with contextlib.suppress(OSError):
                    os.posix_fadvise(self.fileno(), self.tell() - self._waiting, self._waiting, os.POSIX_FADV_DONTNEED)
            self._waiting = 0
        return written


def remove_leftovers(directory: Path) -> None:
    """Remove hidden files in `directory` whose writers are gone. What cannot be removed stays."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        found = [Path(entry.path) for entry in entries if entry.name[0] == "." and _OWN.fullmatch(entry.name)]
        for partial in found:
            with contextlib.suppress(OSError):
                _remove(partial)


def _remove(partial: Path) -> None:
    with partial.open("r+b") as file:
        if _lock(file):  # or it cannot be told whether its writer lives
            partial.unlink()


def _lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed; False where none can be. Raises BlockingIOError if somebody else has."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True
