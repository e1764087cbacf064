"""Who may write: one process, named to the others. The kernel lets go of the lock when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aggregator.errors import CatalogLockedError


class WriterLock:
    """The lock that the writer of a catalog holds from opening to closing."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises CatalogLockedError, which names the holder, at once; OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if not _lock(self._descriptor):
            holder = _holder(self._descriptor)
            os.close(self._descriptor)
            raise CatalogLockedError(
                f"the catalog is open for writing by {_described(holder)}",
                path=str(path.parent),
                hint="close it there, or open it for reading only",
                holder=holder,
            )
        now = datetime.now(UTC).isoformat(timespec="seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(holder).encode(), 0)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let others write."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):  # the name in it is for people
                os.ftruncate(self._descriptor, 0)
            with contextlib.suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file open
            os.close(self._descriptor)
            self._descriptor = -1


def _lock(descriptor: int) -> bool:
    """Take the lock; a moment's patience is for readers, which look whether there is a writer."""
    for pause in (0.0, 0.05, 0.1, 0.2):
        time.sleep(pause)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        return True
    return False


def is_held(path: Path) -> bool:
    """Whether somebody writes to the catalog."""
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
    except ValueError:  # it is being written this moment
        return {}
    return holder if isinstance(holder, dict) else {}


def _described(holder: dict[str, Any]) -> str:
    if not holder:
        return "another process"
    return f"process {holder.get('pid')} on {holder.get('host')} since {holder.get('since')}"
