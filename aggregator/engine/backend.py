"""`Backend`: the engine of an open catalog, for writing or for reading only."""

from __future__ import annotations

import re
from pathlib import Path

from aggregator.engine.follower import ReaderEngine
from aggregator.engine.writer import WriterEngine, now_us
from aggregator.errors import ReadOnlyError
from aggregator.storage.files.following import read_following
from aggregator.storage.files.layout import Layout

Backend = WriterEngine | ReaderEngine
"""The engine of an open catalog."""

_STORES = re.compile(r"(?:s3|gs|az|file)://")


def is_store(place: object) -> bool:
    """Whether `place` is the address of a store, and not a path."""
    return isinstance(place, str) and _STORES.match(place) is not None


def reader_of(place: str) -> ReaderEngine:
    """Open a catalog for reading only, in a directory or at the address of its store.

    Raises CatalogNotFoundError, CorruptManifestError, UnknownVersionError, StoreError, OSError.
    """
    if not is_store(place):
        return ReaderEngine(Layout(Path(place).absolute()), now_us)
    from aggregator.engine.store_follower import TemporaryStoreReader  # imported here: obstore comes with an extra
    from aggregator.storage.store.client import Store

    return TemporaryStoreReader(Store(place), now_us)


def writer_of(backend: Backend) -> WriterEngine:
    """The backend as a writer engine. Raises ReadOnlyError if it only reads."""
    backend.owner.check()
    if isinstance(backend, WriterEngine):
        return backend
    note = read_following(backend.layout.following)
    hint = (
        f"it follows {note.url}: write to that server" if note else "write through its server, or open it for writing"
    )
    raise ReadOnlyError("the catalog was opened for reading only", path=str(backend.layout.root), hint=hint)
