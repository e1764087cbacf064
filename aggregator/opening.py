"""`open`, `promote` and `rebuild_manifest`: from a directory to a catalog."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aggregator.base.reports import RebuildReport
from aggregator.catalog import Catalog
from aggregator.engine.follower import ReaderEngine
from aggregator.engine.writer import WriterEngine, now_us
from aggregator.errors import CatalogNotFoundError, InvalidRequestError
from aggregator.policy import Durability, Limits, Tuning
from aggregator.storage.files.layout import Layout
from aggregator.storage.files.modes import create_directory, parse_mode

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def open_catalog(
    path: AnyPath,
    *,
    durability: str | Durability = "fsync",
    limits: Limits | Mapping[str, Any] | None = None,
    read_only: bool = False,
    sealing: str = "thread",
    file_mode: int | None = None,
    tuning: Tuning | None = None,
) -> Catalog:
    """Open the catalog in the directory `path`; make it where it is absent. One process may write to it.

    read_only: only read, beside the process that writes, if there is one: what that acknowledged is seen by the next
        scan, sealed or not. Nothing is made or changed.

    durability: what an acknowledged append survives: "fsync" a power cut, "interval" (or "interval:200ms") and "none"
        a crash of the process; see `Durability`.
    limits: budgets of memory and disk, e.g. {"memory_bytes": "256 MiB"}; see `Limits`.
    sealing: "thread", or "process": segments are then written by a process of its own, which ends with the catalog, so
        that reads and appends of this one do not wait for the interpreter meanwhile (not on Windows).
    file_mode: of all its files, such as 0o640 for a group that may read them; a directory may be passed by who may read
        its files. None: as the catalog has it, a new one is its owner's alone (0o600), whatever the umask is.
    tuning: sizes and pauses that only tests change.

    Raises CatalogLockedError (another process writes to it), CatalogNotFoundError (read_only), CorruptManifestError,
    InvalidRequestError, UnknownVersionError, OSError.
    """
    layout = _layout(path)
    if read_only:
        return Catalog(ReaderEngine(layout, now_us))
    if file_mode is not None:
        file_mode = parse_mode(file_mode)
    make_directory_tree(layout.root)
    checked = Limits.of(dict(limits) if isinstance(limits, Mapping) else limits)
    options: dict[str, Any] = {"sealing": sealing, "file_mode": file_mode, "tuning": tuning}
    return Catalog(WriterEngine(layout, Durability.of(durability), checked, now_us, **options))


def rebuild_manifest(path: AnyPath, *, progress: Callable[[int, int], None] | None = None) -> RebuildReport:
    """Rebuild a lost or damaged manifest from the catalog's segments. The catalog must be closed everywhere.

    Every segment is read from end to end. Damaged ones, and the old manifest, go to `quarantine/`. What was not sealed
    yet comes from the log when the catalog is opened. progress: called with the bytes done and in all.
    Raises CatalogNotFoundError, CatalogLockedError, OSError.
    """
    from aggregator.engine.recovery.rebuild import rebuild  # here: few programs need it

    return rebuild(_layout(path), now_us, progress or (lambda done, total: None))


def promote(path: AnyPath) -> dict[str, Any]:
    """Make a directory that followed a server a catalog of its own, which gives no record index that the server gave;
    gives how far the copy had come, as `Catalog.stats()["follows"]`. The follower must have been stopped.

    Each partition goes on 2^32 record indexes behind the last that was copied: the server may have given some of those
    since. Nothing keeps the server from going on: stop it before, or its later events are in no copy.
    Raises InvalidRequestError (it follows nobody, or is not whole), CatalogLockedError (the follower runs), OSError.
    """
    from aggregator.engine.recovery.promote import promote as promote_follower  # here: few programs need it

    return promote_follower(_layout(path), now_us).lag(now_us())


def make_directory_tree(root: Path) -> None:
    """The root of a catalog, and the directories above it. Raises CatalogNotFoundError where a file is in the way."""
    try:
        create_directory(root)
    except FileExistsError:
        raise CatalogNotFoundError("a file is there, not a directory", path=str(root)) from None


def _layout(path: AnyPath) -> Layout:
    """Where the files of a catalog are, wherever the process goes to meanwhile."""
    given = os.fsdecode(path)
    if "\0" in given:
        raise InvalidRequestError(f"no directory can be called {given!r}", hint="its name has a NUL in it")
    if _ADDRESS.match(given):
        raise InvalidRequestError(
            "a catalog is a directory of a local disk, not an address", path=given,
            hint="segments can lie in object stores: `aggregator export` and `esformat` write them there",
        )  # fmt: skip
    return Layout(Path(given).absolute())
