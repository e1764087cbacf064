"""`promote`: turns a directory that followed a server into a catalog that can be written.

The record indexes that the server assigned after the follower last heard from it are unknown here. To reuse none of
them, each partition continues far after the last copied one, as after a crash without syncs.
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

SKIPPED_INDEXES = 1 << 32
"""Number of record indexes that each partition skips: more than an hour at a million a second."""


def promote(layout: Layout, clock: Callable[[], int]) -> Following:
    """Turn a follower's directory into an ordinary catalog. Return how far it had come. Can be repeated if interrupted.

    Raises CatalogNotFoundError, InvalidRequestError (it follows nobody, is incomplete, or its catalog has a store),
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
                "the directory is not a complete copy yet, or had to restart",
                path=str(layout.root),
                hint="run the follower until `aggregator stats` says that the copy is complete",
            )
        with contextlib.closing(Manifest(layout.manifest)) as manifest:
            _refuse_stores(layout, manifest)
            _skip_indexes(layout, manifest, clock)
            named = {segment.number for segment in manifest.load().segments}
        for number, path in segment_files(layout).items():
            if number not in named:  # copied for a manifest that never arrived, or no longer needed
                path.unlink()
        layout.following.unlink()
        sync_directory(layout.root)
    finally:
        lock.release()
    return note


def _refuse_stores(layout: Layout, manifest: Manifest) -> None:
    """Raise if the catalog has a store: its lease decides who writes, and some segments may be only in the store."""
    settings = StoredRows(manifest).settings()
    if settings is not None:
        raise InvalidRequestError(
            f"the followed catalog has a store, {settings.address}, which decides who writes to it",
            path=str(layout.root),
            hint="take it over with `aggregator serve --standby`, or copy it with `aggregator restore`",
        )


def _skip_indexes(layout: Layout, manifest: Manifest, clock: Callable[[], int]) -> None:
    state = CatalogState(manifest.load())
    spans = adopt_definitions(layout.log, state, manifest, clock)
    ends: dict[int, int] = {}
    for number, (topic, partition) in state.partitions.items():
        if not topic.info.deleted:
            _, logged = spans.get(number, (0, 0))
            reached = max(partition.next_index, partition.sealed_index, partition.reserved_index, logged)
            ends[number] = reached + SKIPPED_INDEXES
    manifest.reserve(ends)
    manifest.put(WRITTEN, "")  # nothing proves that no event is lost
