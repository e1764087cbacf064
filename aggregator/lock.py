"""Who may write: one process, named to the others. The kernel lets go of the lock when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aggregator.errors import CatalogLockedError


class WriterLock:
    """The lock that the writer of a catalog holds from opening to closing."""

    def __init__(self, path: Path) -> None:
        """Take the lock. Raises CatalogLockedError, which names the holder, at once."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _holder(self._descriptor)
            os.close(self._descriptor)
            raise CatalogLockedError(
                f"the catalog is open for writing by {_described(holder)}",
                path=str(path.parent),
                hint="close it there, or open it with read_only=True",
                holder=holder,
            ) from None
        now = datetime.now(UTC).isoformat(timespec="seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": now}
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(holder).encode(), 0)

    def release(self) -> None:
        """Let others write."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


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
