"""The writer lock: one process may write; others learn which. The kernel releases it when the holder dies.

The lock is on a file, not on its name: if somebody deletes or replaces `writer.lock`, another process can lock the new
file. So the writer checks before it acknowledges anything (`WriterLock.check`). If no other process was faster, which
the epoch in the manifest shows, it locks the new file; otherwise it stops writing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from aggregator.base.forked import leave_when_forked
from aggregator.errors import CatalogLockedError
from aggregator.storage.files.layout import same_file
from aggregator.storage.files.modes import create_file
from esformat.parts import naming

_ALL = 2**64 - 1
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:%_\[\]-]{1,270}")


class WriterLock:
    """The lock that the writer of a catalog holds from opening to closing."""

    def __init__(self, path: Path, is_last_opened: Callable[[], bool] = lambda: False) -> None:
        """Take the lock. is_last_opened: whether the manifest shows no later opening by another writer.

        Raises CatalogLockedError, which names the holder, immediately; OSError.
        """
        self._path, self._is_last_opened = path, is_last_opened
        self._encoded = os.fsencode(path)
        self._checking = Lock()
        self._descriptor = _locked_file(path)
        self._file, self._root = os.fstat(self._descriptor), path.parent.stat()
        self._holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
        leave_when_forked(self)
        try:
            with naming(str(path), "free space on the disk first"):
                self._sign()
        except BaseException:
            self.release()
            raise

    def _sign(self) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(self._holder).encode(), 0)

    def announce(self, address: str | None) -> None:
        """Publish the address at which the holder serves the catalog; None: it is not served any more."""
        with self._checking:
            self._holder.pop("address", None)
            self._holder |= {} if address is None else {"address": address}
            if self._descriptor >= 0:
                with contextlib.suppress(OSError):  # the file's contents are for people
                    self._sign()

    @property
    def named(self) -> tuple[bytes, int, int]:
        """The path that the lock's file must have, and the file's device and inode as unsigned numbers."""
        return self._encoded, self._file.st_dev & _ALL, self._file.st_ino & _ALL

    def check(self) -> None:
        """Make sure that nobody else can write. Raises CatalogLockedError if somebody may; OSError."""
        if not same_file(self._path, self._file):
            with self._checking:
                if not same_file(self._path, self._file):
                    self._take_again()

    def _take_again(self) -> None:
        if not same_file(self._path.parent, self._root):
            raise self._lost("the catalog's directory was moved or replaced")
        try:
            descriptor = _locked_file(self._path)
        except CatalogLockedError as error:
            raise self._lost(f"{self._path.name} was deleted or replaced, and {error.message}", error.holder) from None
        if not self._is_last_opened():
            os.close(descriptor)
            raise self._lost(f"{self._path.name} was deleted or replaced, and another process has written since")
        old, self._descriptor, self._file = self._descriptor, descriptor, os.fstat(descriptor)
        os.close(old)
        self._sign()

    def _lost(self, what: str, holder: dict[str, Any] | None = None) -> CatalogLockedError:
        return CatalogLockedError(
            f"this process must stop writing: {what} while it had the catalog open",
            path=str(self._path.parent),
            hint="close it here, open it again in the one process that writes, and do not touch *.lock files",
            holder=holder or {},
        )

    def leave_to_parent(self) -> None:
        """In a forked process: the lock belongs to the parent and ends with it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):  # the file's contents are for people
                os.ftruncate(self._descriptor, 0)
            with contextlib.suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # a process forked meanwhile has the file open
            os.close(self._descriptor)
            self._descriptor = -1


def _locked_file(path: Path) -> int:
    """A descriptor of the file at `path`, created if absent, and locked."""
    while True:
        descriptor = create_file(path, os.O_RDWR)
        try:
            if not _lock(descriptor):
                holder = _holder(descriptor)
                raise CatalogLockedError(
                    f"the catalog is open for writing by {_described(holder)}",
                    path=str(path.parent),
                    hint=_way_in(holder),
                    holder=holder,
                )
            if same_file(path, os.fstat(descriptor)):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the file was deleted or replaced in between


def _lock(descriptor: int) -> bool:
    """Take the lock. Retries briefly, because readers lock the file for a moment to check for a writer."""
    for pause in (0.0, 0.05, 0.1, 0.2):
        time.sleep(pause)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        return True
    return False


def is_held(path: Path) -> bool:
    """Whether a process has the catalog open for writing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _holder(descriptor: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:  # it is being written
        return {}
    return holder if isinstance(holder, dict) else {}


def _way_in(holder: dict[str, Any]) -> str:
    """What a user can do who finds the catalog locked. The file may contain anything."""
    address = holder.get("address")
    if isinstance(address, str) and _ADDRESS.fullmatch(address):
        return f"a server has it open at {address}: query that, as in `aggregator query {address} …`"
    return "close it there, or open it for reading only"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _described(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    return f"process {holder.get('pid')} on {holder.get('host')} since {holder.get('since')}"
