"""`promote`: a directory that followed a server becomes a catalog that is written to.

What the server gave out after the follower heard from it last is not known here. So nobody gets the record indexes
that it may have given: each partition goes on far behind the last that was copied, as after a crash without syncs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from aggregator.engine.recovery.replay import adopt_definitions
from aggregator.errors import CatalogNotFoundError, InvalidRequestError
from aggregator.storage.files.following import Following, read_following
from aggregator.storage.files.layout import Layout, segment_files
from aggregator.storage.files.lock import WriterLock
from aggregator.storage.manifest import WRITTEN, Manifest, StoredRows
from aggregator.storage.state.state import CatalogState
from esformat.parts import sync_directory

PASSED_OVER = 1 << 32
"""So many record indexes of each partition are passed over: more than an hour of a million a second."""


def promote(layout: Layout, clock: Callable[[], int]) -> Following:
    """Make a follower's directory an ordinary catalog; gives how far it had come. Interrupted, it can be done again.

    Raises CatalogNotFoundError, InvalidRequestError (it follows nobody, is not whole, or its catalog has a store),
    CatalogLockedError (the follower runs), OSError.
    """
    if not layout.root.is_dir():
        raise CatalogNotFoundError("no catalog found", path=str(layout.root), hint="name the directory of a follower")
    lock = WriterLock(layout.writer_lock)
    try:
        note = read_following(layout.following)
        if note is None:
            raise InvalidRequestError("the directory is not the copy of a follower", path=str(layout.root))
        if not note.whole:
            raise InvalidRequestError(
                "the directory is not a whole copy yet, or had to begin anew",
                path=str(layout.root),
                hint="let the follower go on until `aggregator stats` says that it is whole",
            )
        with contextlib.closing(Manifest(layout.manifest)) as manifest:
            _refuse_stores(layout, manifest)
            _pass_over(layout, manifest, clock)
            named = {segment.number for segment in manifest.load().segments}
        for number, path in segment_files(layout).items():
            if number not in named:  # it was copied for a manifest that did not come, or is not needed any more
                path.unlink()
        layout.following.unlink()
        sync_directory(layout.root)
    finally:
        lock.release()
    return note


def _refuse_stores(layout: Layout, manifest: Manifest) -> None:
    """Of a catalog with a store the lease says who writes, and segments may lie there alone."""
    settings = StoredRows(manifest).settings()
    if settings is not None:
        raise InvalidRequestError(
            f"the catalog that is followed has a store, {settings.address}: who writes to it is decided there",
            path=str(layout.root),
            hint="`aggregator serve --standby` takes it over; `aggregator restore` makes a copy in an empty directory",
        )


def _pass_over(layout: Layout, manifest: Manifest, clock: Callable[[], int]) -> None:
    state = CatalogState(manifest.load())
    spans = adopt_definitions(layout.log, state, manifest, clock)
    ends: dict[int, int] = {}
    for number, (topic, partition) in state.partitions.items():
        if not topic.info.deleted:
            _, logged = spans.get(number, (0, 0))
            reached = max(partition.next_index, partition.sealed_index, partition.reserved_index, logged)
            ends[number] = reached + PASSED_OVER
    manifest.reserve(ends)
    manifest.put(WRITTEN, "")  # nobody can tell that nothing is lost
