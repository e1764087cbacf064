"""Leases, so that one job at a time works on a place: each job writes a lease there, renews it, and checks for others.

A lease ends with its job. The lease of a dead process counts no longer: immediately if it ran on this machine, else
once it was not renewed for LEASE_SECONDS. A store only needs to show an object once it is written.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from esformat.errors import ClosedError, UsageError
from esformat.io.commit_folder import CommitFolder
from esformat.io.write_owner import runs_here, this_owner

LEASE_SECONDS = 600
"""How long a job on another machine counts as alive after it renewed its lease. Clocks may differ by minutes."""
_RENEWAL_SECONDS = LEASE_SECONDS / 10
_ATTEMPTS = 5  # at least, because jobs that start at the same moment see each other and all step back
_LONGEST_PAUSE = 0.5
_NAME = re.compile(r"_[a-z]+-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Lease:
    """A job's ownership of a place. name: of the lease file."""

    folder: CommitFolder
    name: str

    def check(self) -> None:
        """Raise ClosedError if another job took this one for dead."""
        holder = _holder(self.folder, self.name)
        if holder is None or _others(self):
            raise ClosedError(
                "another job considered this one dead and took over the directory",
                path=self.folder.name,
                hint="run it again",
            )


@contextmanager
def owned(folder: CommitFolder, job: str, *, kind: str = "lease", wait_seconds: float = 0.0) -> Iterator[Lease]:
    """Own a place, which is created if missing, until the block ends. job: the description that other jobs see.

    kind: leases of other kinds do not count. wait_seconds: how long to wait for another job to end.
    Raises UsageError if another job works there.
    """
    with all_owned([folder], job, kind=kind, wait_seconds=wait_seconds) as (lease,):
        yield lease


@contextmanager
def all_owned(
    folders: Sequence[CommitFolder], job: str, *, kind: str = "lease", wait_seconds: float = 0.0
) -> Iterator[list[Lease]]:
    """Own several places, like `owned`: all of them, or none."""
    leases: list[Lease] = []
    ended = threading.Event()
    renewal = threading.Thread(target=_renew, args=(leases, job, ended), name="esformat-lease", daemon=True)
    try:
        for folder in folders:
            folder.make()
            leases.append(_taken(folder, job, kind, wait_seconds))
        renewal.start()
        yield leases
    finally:
        ended.set()
        if renewal.is_alive():
            renewal.join()
        for lease in leases:
            lease.folder.remove([lease.name])


def _taken(folder: CommitFolder, job: str, kind: str, wait_seconds: float) -> Lease:
    holder: dict[str, Any] = {}
    end = time.monotonic() + wait_seconds
    for attempt in count():
        if attempt >= _ATTEMPTS and time.monotonic() > end:
            break
        if attempt:  # a random pause: two jobs that see each other would otherwise keep doing so
            time.sleep(_LONGEST_PAUSE * secrets.randbelow(1000) / 1000)
        lease = Lease(folder, f"_{kind}-{secrets.token_hex(8)}")
        _put(lease, job)
        others = _others(lease)
        if not others:
            return lease
        folder.remove([lease.name])
        holder = others[0]
    raise UsageError(
        f"another job is running here: {holder['job']}, process {holder['pid']} on {holder['host']}",
        path=folder.name,
        hint="wait until it ends",
    )


def _put(lease: Lease, job: str) -> None:
    content = {"job": job, **this_owner(), "until": time.time() + LEASE_SECONDS}
    lease.folder.put(lease.name, json.dumps(content).encode())


def _renew(leases: Sequence[Lease], job: str, ended: threading.Event) -> None:
    while not ended.wait(_RENEWAL_SECONDS):
        for lease in leases:
            with contextlib.suppress(OSError):  # tried again in a minute; the commit checks the lease
                if _holder(lease.folder, lease.name) is not None:
                    _put(lease, job)


def _others(lease: Lease) -> list[dict[str, Any]]:
    """The other jobs with a lease there. Leases of dead jobs are removed."""
    found = []
    kind = lease.name.rpartition("-")[0]
    for name in lease.folder.names():
        if _NAME.fullmatch(name) and name.rpartition("-")[0] == kind and name != lease.name:
            holder = _holder(lease.folder, name)
            if holder is not None and _lives(holder):
                found.append(holder)
            elif holder is not None:
                lease.folder.remove([name])
    return found


def _holder(folder: CommitFolder, name: str) -> dict[str, Any] | None:
    """The content of a lease; None if it is gone. Raises UsageError if it cannot be read."""
    try:
        found = json.loads(folder.read(name))
        return {
            "job": str(found["job"]),
            "host": str(found["host"]),
            "pid": int(found["pid"]),
            "started": str(found["started"]),
            "until": float(found["until"]),
        }
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise UsageError(
            "cannot read the lease of a job", path=f"{folder.name}/{name}", hint="delete it if no job is running here"
        ) from None


def _lives(holder: dict[str, Any]) -> bool:
    here = runs_here(holder)
    return time.time() < holder["until"] if here is None else here
