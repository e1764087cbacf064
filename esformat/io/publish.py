"""Publish a file atomically: write it under a hidden name, sync it, rename it, sync the directory."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from esformat.errors import UsageError
from esformat.io.stale_files import open_partial, remove_stale_files


class Publication:
    """A file that appears under `path`, complete, with `commit`, or not at all.

    Until then it is in the same directory under a unique hidden name; if the process is killed, the next publication
    in that directory removes it. The file can also be read.
    """

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        """`path` may be a symbolic link: the file that it points to is written, and the link stays.

        Raises UsageError if `path` exists and may not be overwritten, or is not a regular file, which is never
        replaced; OSError if it cannot be written.
        """
        self.name = str(path)
        self._overwrite = overwrite
        self.path = _behind_links(path)
        if not overwrite and path.exists():
            raise self._exists()
        remove_stale_files(self.path.parent)
        try:
            self._partial, self.file = open_partial(self.path)
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "No such directory", str(path.parent)) from None
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            raise OSError(error.errno, error.strerror, str(path.parent)) from None

    @property
    def spill_directory(self) -> Path:
        """The directory for temporary files while building: a disk with room for the file mostly has room for them."""
        return self.path.parent

    def _exists(self) -> UsageError:
        return UsageError("the file exists", path=self.name, hint="choose another name, or overwrite=True")

    def commit(self) -> None:
        """Make the file durable and visible. Raises UsageError if another file took the name meanwhile."""
        self.file.flush()
        os.fsync(self.file.fileno())
        if self._overwrite:
            self._partial.replace(self.path)
        else:
            self._link()
        self.file.close()  # only now: its lock keeps others from removing the file as stale
        sync_directory(self.path.parent)

    def _link(self) -> None:
        """Rename, but never over an existing file: a hard link cannot replace one."""
        try:
            os.link(self._partial, self.path)
        except FileExistsError:
            self.abort()
            raise self._exists() from None
        except OSError:  # a file system without hard links
            if self.path.exists():
                self.abort()
                raise self._exists() from None
            self._partial.rename(self.path)
            return
        self._partial.unlink()

    def abort(self) -> None:
        """Delete the unfinished file."""
        with contextlib.suppress(OSError):  # closing flushes the buffer, which fails again on a full disk
            self.file.close()
        with contextlib.suppress(FileNotFoundError):
            self._partial.unlink()

    def withdraw(self) -> None:
        """Delete the file that `commit` made visible. Raises OSError."""
        self.path.unlink(missing_ok=True)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def naming(name: str, kept: str = "it was not created") -> Iterator[None]:
    """Add a file's name, and what became of the file, to the error of a full disk, which lacks both.

    kept: what became of the file.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        raise OSError(error.errno, f"{os.strerror(error.errno)}; {kept}", name) from error


def naming_stdout() -> contextlib.AbstractContextManager[None]:
    """Name standard output in the error of a full disk."""
    return naming("standard output", "the output written before remains")


STDOUT = "-"
"""The name that stands for standard output."""


class Streamed:
    """Standard output as a file: bytes are passed on as they are written, and cannot be taken back."""

    def __init__(self) -> None:
        self.name, self.file = "<stdout>", standard_output()

    def commit(self) -> None:
        """Flush the stream's buffer."""
        self.file.flush()

    def abort(self) -> None:
        """Do nothing: the reader of the stream must notice that its end is missing."""


@contextlib.contextmanager
def finished_file(target: str) -> Iterator[str]:
    """Yield a path for a file that must be created as a whole; for "-", of a temporary file that is then copied to
    standard output.
    """
    if target != STDOUT:
        yield target
        return
    out = standard_output()
    with tempfile.TemporaryDirectory(prefix="esdb-") as folder:
        path = Path(folder) / "stdout"
        yield str(path)
        with path.open("rb") as made:
            shutil.copyfileobj(made, out, 1 << 20)
    out.flush()


def standard_output() -> BinaryIO:
    """Standard output as a binary stream. Raises UsageError if it is closed."""
    if sys.stdout is None:
        raise UsageError("standard output is closed")
    return sys.stdout.buffer


_KINDS = (
    (stat.S_ISDIR, "directory"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISSOCK, "socket"),
)


def _behind_links(path: Path) -> Path:
    """The regular file that `path` names, or will name: the target of a symbolic link, otherwise `path` itself.

    Raises UsageError if something else has the name: a rename would replace a device or a pipe.
    """
    with contextlib.suppress(FileNotFoundError):
        mode = path.stat().st_mode
        kind = next((name for is_one, name in _KINDS if is_one(mode)), None)
        if kind is not None:
            hint = "choose another name" if kind == "directory" else "choose another name; `-` is standard output"
            raise UsageError(f"is a {kind}, not a regular file", path=str(path), hint=hint)
    return path.resolve() if path.is_symlink() else path


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
