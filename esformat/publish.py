"""How a file comes to be under its name: written beside it, synced, renamed, the directory synced. All or nothing."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from esformat.errors import UsageError
from esformat.leftovers import open_partial, remove_leftovers


class Publication:
    """A file that appears under `path` with `commit`, complete, or not at all.

    Until then it lies in the same directory under a hidden name of its own, which the next one there removes if the
    process is killed. It can be read, too.
    """

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        """Raises UsageError if `path` exists and may not be overwritten; OSError if it cannot be written."""
        self.path = path
        self.name = str(path)
        self._overwrite = overwrite
        if not overwrite and path.exists():
            raise self._exists()
        remove_leftovers(path.parent)
        self._partial, self.file = open_partial(path)

    @property
    def spill_directory(self) -> Path:
        """Where temporary files go that it is made from: where there is room for it there is room for them, mostly."""
        return self.path.parent

    def _exists(self) -> UsageError:
        return UsageError("the file exists", path=str(self.path), hint="choose another name, or overwrite=True")

    def commit(self) -> None:
        """Make the file durable and visible. Raises UsageError if another file took the name meanwhile."""
        self.file.flush()
        os.fsync(self.file.fileno())
        if os.name == "nt":  # Windows renames no file that is open
            self.file.close()
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


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    if os.name == "nt":  # Windows has no handle of a directory to sync
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
