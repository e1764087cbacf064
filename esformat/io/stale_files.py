"""Stale hidden files of killed writers: each writer locks its file, and the next one in the directory removes the rest.

The system releases a lock when its process ends, for whatever reason, so an unlocked file belongs to nobody.
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
"""After this many bytes the system is told to write them to disk; much smaller pieces cost more than they save."""
_OWN = re.compile(r"\..*\.w[0-9a-f]{12}\.partial", re.DOTALL)


def partial_name(name: str, token: str) -> str:
    """A hidden name next to `name`, short enough for every file system; `token` distinguishes several writers."""
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
        file.close()  # another writer took it for a stale file before it was locked


class _WrittenEarly(io.FileIO):
    """A file that the system starts to write to disk while more is written, so that the final sync has little left to
    wait for.
    """

    _waiting = 0

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        self._waiting += written
        if self._waiting >= WRITTEN_TOGETHER_BYTES:
            if hasattr(os, "posix_fadvise"):  # macOS lacks it
                # Linux starts to write dirty pages, and drops clean ones from its cache: none of these are clean.
                with contextlib.suppress(OSError):
                    os.posix_fadvise(self.fileno(), self.tell() - self._waiting, self._waiting, os.POSIX_FADV_DONTNEED)
            self._waiting = 0
        return written


def remove_stale_files(directory: Path) -> None:
    """Remove hidden files in `directory` whose writers are dead. Files that cannot be removed stay."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        found = [Path(entry.path) for entry in entries if entry.name[0] == "." and _OWN.fullmatch(entry.name)]
        for partial in found:
            with contextlib.suppress(OSError):
                _remove(partial)


def _remove(partial: Path) -> None:
    with partial.open("r+b") as file:
        if _lock(file):  # otherwise it is unknown whether its writer is alive
            partial.unlink()


def _lock(file: BinaryIO) -> bool:
    """Lock a file until it is closed; False if it cannot be locked. Raises BlockingIOError if another process did."""
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True
