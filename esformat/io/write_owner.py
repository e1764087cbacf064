"""The process that runs a write, recorded so that others know whether it died and they must end the write."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Any

STALE_SECONDS = 24 * 3600
"""A write on another machine that changed nothing for this long counts as dead."""


def this_owner() -> dict[str, Any]:
    """The process that runs the write: Spark's driver if this process is one of its helpers, else this process."""
    pid = os.getpid()
    with contextlib.suppress(OSError, ValueError, IndexError):
        parent = pid
        while parent > 1:
            name, above, _ = _process(parent)
            if name == "java":
                pid = parent
                break
            parent = above
    return {"host": socket.gethostname(), "pid": pid, "started": _started(pid)}


def _process(pid: int) -> tuple[str, int, str]:
    """Name, parent and start time of a process, from Linux's /proc."""
    text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    return name, int(fields[1]), fields[19]


def _started(pid: int) -> str:
    try:
        return _process(pid)[2]
    except (OSError, ValueError, IndexError):
        return ""


def lives(owner: Any, changed: float | None) -> bool:
    """Whether the process that runs a write is still alive, as far as is known.

    changed: when the write last changed anything, in seconds since 1970; None: none of its files exist any more, so
    another process is already ending it.
    """
    here = runs_here(owner)
    if here is not None:
        return here
    return changed is None or time.time() - changed < STALE_SECONDS


def runs_here(owner: Any) -> bool | None:
    """Whether a process runs on this machine; None if unknown, for example if it is on another machine."""
    try:
        if isinstance(owner, dict) and owner["host"] == socket.gethostname():
            os.kill(int(owner["pid"]), 0)
            return bool(owner["started"] == _started(int(owner["pid"])))
    except ProcessLookupError:
        return False
    except (PermissionError, KeyError, TypeError, ValueError):
        pass
    return None
