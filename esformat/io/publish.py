"""How a file comes to be under its name: written beside it, synced, renamed, the directory synced. All or nothing."""

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
from esformat.io.stale_files import open_partial, remove_leftovers


class Publication:
    """A file that appears under `path` with `commit`, complete, or not at all.

    Until then it lies in the same directory under a hidden name of its own, which the next one there removes if the
    process is killed. It can be read, too.
    """

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        """`path` may be a symbolic link: the file that it leads to is written, and the link stays.

        Raises UsageError if `path` exists and may not be overwritten, or is no regular file, which none may replace;
        OSError if it cannot be written.
        """
        self.name = str(path)
        self._overwrite = overwrite
        self.path = _behind_links(path)
        if not overwrite and path.exists():
            raise self._exists()
        remove_leftovers(self.path.parent)
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
        """Where temporary files go that it is made from: where there is room for it there is room for them, mostly."""
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
        self.file.close()  # only now: it keeps others from taking the file for a leftover
        sync_directory(self.path.parent)

    def _link(self) -> None:
        """Rename, but never over a file that is there: a hard link cannot replace one."""
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
        """Leave nothing behind."""
        with contextlib.suppress(OSError):  # closing writes what is left: on a full disk it fails once more
            self.file.close()
        with contextlib.suppress(FileNotFoundError):
            self._partial.unlink()

    def withdraw(self) -> None:
        """Take the file away again that `commit` made visible. Raises OSError."""
        self.path.unlink(missing_ok=True)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def naming(name: str, kept: str = "it was not made") -> Iterator[None]:
    """Say in the error of a full disk which file it was, and what is left of it: a write by number knows neither."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        raise OSError(error.errno, f"{os.strerror(error.errno)}; {kept}", name) from error


STDOUT = "-"
"""The name that stands for standard output."""


class Streamed:
    """Standard output, which takes a file's bytes as they are written; what was written is not taken back."""

    def __init__(self) -> None:
        self.name, self.file = "<stdout>", standard_output()

    def commit(self) -> None:
        """Write what waits in the stream's buffer."""
        self.file.flush()

    def abort(self) -> None:
        """Leave it to the reader of the stream to see that its end is missing."""


@contextlib.contextmanager
def finished_file(target: str) -> Iterator[str]:
    """Give a path for a file that must be made as a whole: of "-" a temporary one, copied to standard output then."""
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
    """Standard output, for bytes. Raises UsageError where it is closed."""
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
    """The regular file that `path` names, or will name, where it is a symbolic link to one.

    Raises UsageError if something else has the name: a device or a pipe would be gone after the rename.
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
